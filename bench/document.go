package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// document writes the run as Markdown, with what one has to know to judge it.
func (r *report) document(file, server string, e effort, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Measured %s\n\n", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "By `cd bench && go run . -out FILE` at commit %s, in %s. Machine: %s; %d cores; Linux %s; %s; PostgreSQL %s. Load average over the last five minutes: %s before, %s after.\n\n",
		r.commit, took.Round(time.Second), cpuModel(), runtime.NumCPU(), kernel(), runtime.Version(), server, r.loadBefore, loadAverage())
	fmt.Fprintf(&b, `What needs no database is measured in CPU time of the process: %d rounds of about %v a contender, by turns, each round starting with another one; medians, and the middle half of the rounds as the noise. "Of the first" is the median of the ratios round by round to the first contender above. Answers are compared before anything is timed. The other engines are used straightforwardly: programs compiled and inputs converted beforehand.

What is stored goes to a private PostgreSQL with its default settings (durable: fsync and synchronous commit on, 128 MB of shared buffers), through the reconciler's own sweeps from sources in memory; wall time, site by site in turns with the plain way, which is COPY into a temporary table and one upsert of the same condition rows in batches of %s on one connection, into a table with the primary key alone.

## In short

%s
## In full
`, e.rounds, e.slice, thousands(plainBatch), r.summary())
	for _, t := range r.tables {
		b.WriteString(t.markdown())
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// commit names the source that was measured, "unknown" outside a work tree.
func commit(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changes, err := exec.CommandContext(ctx, "git", append([]string{"status", "--porcelain", "--"}, measured...)...).Output()
	if err != nil || len(changes) > 0 {
		return strings.TrimSpace(string(head)) + " with changes"
	}
	return strings.TrimSpace(string(head))
}

// measured are the folders whose code or policies the figures are of.
var measured = []string{".", "../devices", "../embedded", "../engine", "../facts", "../fleet", "../jobs", "../migrations", "../operations", "../policies", "../reconciler", "../schema", "../sources", "../store", "../workflows"}

func cpuModel() string { return after("/proc/cpuinfo", "model name\t: ") }
func kernel() string   { return strings.TrimSpace(after("/proc/sys/kernel/osrelease", "")) }

// after gives what follows a word in a file, to the end of the line.
func after(file, word string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	_, rest, found := strings.Cut(string(text), word)
	if !found {
		return "unknown"
	}
	line, _, _ := strings.Cut(rest, "\n")
	return line
}

// loadAverage is the machine's load average over five minutes.
func loadAverage() string {
	fields := strings.Fields(after("/proc/loadavg", ""))
	if len(fields) < 2 {
		return "unknown"
	}
	return fields[1]
}
