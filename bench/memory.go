package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

const heldDevices = 10_000

// held is what a process that holds a fleet says of its memory, in bytes.
type held struct {
	Start, Live, Resident, Peak uint64
}

// benchMemory measures a process of its own that does what the server does for
// 10,000 devices: it has swept them twice.
func benchMemory(ctx context.Context, r *report, s *server) error {
	url, err := s.pg.CreateDatabase(ctx, "held")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	var out bytes.Buffer
	child := exec.CommandContext(ctx, self, "-hold", url)
	child.Stdout, child.Stderr = &out, os.Stderr
	if err := child.Run(); err != nil {
		return fmt.Errorf("measure memory: %w", err)
	}
	var h held
	if err := json.Unmarshal(out.Bytes(), &h); err != nil {
		return fmt.Errorf("read what was measured of memory: %w", err)
	}
	t := r.table("Memory for 10,000 devices", "a process of its own: bundle, pool, reconciler, after two sweeps of both sources; HTTP is not in it, the other engines' code is")
	t.header = []string{"what", "MiB"}
	for _, row := range []struct {
		what  string
		bytes uint64
	}{{"resident at its start", h.Start}, {"live heap", h.Live}, {"resident, after returning what is free", h.Resident}, {"resident at most, in the first sweeps", h.Peak}} {
		t.row(row.what, fmt.Sprintf("%.0f", float64(row.bytes)/(1<<20)))
	}
	t.target("resident at most, MiB", float64(h.Peak)/(1<<20), atMost, 250)
	return nil
}

// hold is the child's part.
func hold(ctx context.Context, url string, out io.Writer) error {
	h := held{Start: statusOf("VmRSS")}
	now := time.Now().UTC()
	page := func(slurm bool) *listing {
		return &listing{pages: heldDevices / pageSize, page: func(i int) []sources.Record {
			nodes, states := siteOf(i, pageSize, now) // as a site each, so that no two pages have the same
			if slurm {
				return states
			}
			return nodes
		}}
	}
	w, err := newWorld(ctx, url, []map[string]*listing{{"ironic": page(false), "slurm": page(true)}})
	if err != nil {
		return err
	}
	defer w.stop()
	for _, names := range [][]string{{"ironic"}, {"slurm"}, {"ironic", "slurm"}} {
		if err := w.sweep(ctx, w.sites, names...); err != nil {
			return err
		}
	}
	h.Peak = statusOf("VmHWM")
	debug.FreeOSMemory()
	h.Resident = statusOf("VmRSS")
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	h.Live = m.HeapAlloc
	return json.NewEncoder(out).Encode(h)
}

// statusOf reads one size of this process, in bytes; 0 where there is none.
func statusOf(name string) uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), name+":")
	var kilobytes uint64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}
