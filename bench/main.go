package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	quick := flag.Bool("quick", false, "a smoke test: the same work on less, in about a minute")
	count := flag.Int("devices", 0, "devices of the fleet in the database; 0: 100,000, with -quick 5,000")
	only := flag.String("only", "", "measure only \"engine\", \"database\" or \"rack\"")
	url := flag.String("hold", "", "internal: hold a fleet in the database at this URL and print the memory it takes")
	out := flag.String("out", "", "write the run to a file as Markdown too")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to a file")
	flag.Parse()
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return fmt.Errorf("write a profile: %w", err)
		}
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("write a profile: %w", err)
		}
		defer func() {
			pprof.StopCPUProfile()
			err = errors.Join(err, file.Close())
		}()
	}
	if *url != "" {
		return hold(ctx, *url, os.Stdout)
	}
	e := effort{rounds: 15, slice: 30 * time.Millisecond}
	devices := 100_000
	if *quick {
		e = effort{rounds: 5, slice: 5 * time.Millisecond}
		devices = 5_000
	}
	if *count > 0 {
		devices = *count / siteCount * siteCount
	}
	start := time.Now()
	r := &report{said: os.Stdout, commit: commit(ctx), loadBefore: loadAverage()}
	if *only == "" || *only == "engine" {
		if err := benchEngine(r, e); err != nil {
			return err
		}
	}
	server := "not used"
	if *only != "engine" {
		if server, err = benchStored(ctx, r, *only, devices, *quick); err != nil {
			return err
		}
	}
	r.say()
	fmt.Print("\n", r.summary())
	if *out == "" {
		return nil
	}
	return r.document(*out, server, e, time.Since(start))
}

// benchEngine measures what needs no database.
func benchEngine(r *report, e effort) error {
	b, err := loadShipped()
	if err != nil {
		return err
	}
	wide, err := loadWide()
	if err != nil {
		return err
	}
	if err := benchDerive(r, e, b, wide); err != nil {
		return err
	}
	if err := benchObserve(r, e, b); err != nil {
		return err
	}
	if err := benchIngest(r, e); err != nil {
		return err
	}
	benchMillion(r, e, b)
	return benchLoad(r, e)
}

// benchStored measures what is stored, on a PostgreSQL of its own, whose
// version it gives.
func benchStored(ctx context.Context, r *report, only string, devices int, quick bool) (version string, err error) {
	s, err := startServer(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	if only != "rack" {
		if err := benchDatabase(ctx, r, s, devices, quick); err != nil {
			return "", err
		}
		if err := benchMemory(ctx, r, s); err != nil {
			return "", err
		}
	}
	if only == "database" {
		return s.version, nil
	}
	return s.version, benchRack(ctx, r, s, quick)
}
