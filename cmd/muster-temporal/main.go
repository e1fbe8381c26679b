// Command muster-temporal is a whole Temporal server for one machine: what
// `muster dev` starts beside itself, and what tests run workflows on. It keeps
// everything in one SQLite file, listens on the loopback address only, and has
// one namespace beside Temporal's own. It is not for production, where
// temporal.address names a Temporal that others run.
//
// It is a Go module of its own because the server and the newest SDK need
// different versions of Temporal's API. Nothing of muster is in it; what it has
// in common with its parent, package embedded, are its flags, its exit codes,
// and the line that says it is ready.
//
// It writes its log, then `muster-temporal ready ADDRESS` once, to standard
// error, and ends in order on SIGTERM and SIGINT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/server/common/headers"
)

// Exit codes beside 0, 1 (it failed) and 2 (wrong usage), known to package
// embedded.
const (
	exitFailed = 1
	exitUsage  = 2
	exitInUse  = 3 // another muster-temporal works in the directory
	exitTaken  = 4 // another program listens at the port
	exitUnfit  = 5 // the directory, or the parent, is of another schema
)

// patience bounds the wait for a predecessor that is ending: its lock, its port.
const patience = 15 * time.Second

// stopTimeout bounds an ordered end.
const stopTimeout = 10 * time.Second

type options struct {
	dir       string
	port      int
	namespace string
	schema    string // what the parent expects; empty = anything
	level     string
	version   bool
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("muster-temporal", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.dir, "dir", "", "directory of the database and its lock, made when missing")
	flags.IntVar(&o.port, "port", 7233, "port on 127.0.0.1")
	flags.StringVar(&o.namespace, "namespace", "muster", "namespace, made when missing")
	flags.StringVar(&o.schema, "schema", "", "refuse to run when this program's schema is another one")
	flags.StringVar(&o.level, "log-level", "warn", "what to log: debug, info, warn, error")
	flags.BoolVar(&o.version, "version", false, "say the versions of the server and of its schema")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage
	}
	if o.version {
		fmt.Fprintf(stdout, "server %s, schema %s\n", headers.ServerVersion, schemaVersion)
		return 0
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.level)); err != nil || o.dir == "" || o.port < 1 || o.port > 65535 || flags.NArg() > 0 {
		fmt.Fprintln(stderr, "usage: muster-temporal --dir DIR [--port PORT] [--namespace NAME] [--schema VERSION] [--log-level LEVEL]")
		return exitUsage
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	err := serve(ctx, o, log, func(address string) { fmt.Fprintf(stderr, "muster-temporal ready %s\n", address) })
	if err != nil {
		fmt.Fprintf(stderr, "muster-temporal: %v\n", err)
		return exitCode(err)
	}
	return 0
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, errInUse):
		return exitInUse
	case errors.Is(err, errTaken):
		return exitTaken
	case errors.Is(err, errUnfit):
		return exitUnfit
	}
	return exitFailed
}

// serve runs the server until ctx ends. ready is called once, when workflows
// can be started in the namespace.
func serve(ctx context.Context, o options, log *slog.Logger, ready func(address string)) error {
	if o.schema != "" && o.schema != schemaVersion {
		return fmt.Errorf("%w: this program's schema is %s, the muster that started it knows %s: build both from one tree (make build)",
			errUnfit, schemaVersion, o.schema)
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := lock(waiting, o.dir)
	if err != nil {
		return err
	}
	defer unlock() // the kernel does it as well
	ports, err := reservePorts(waiting, o.port)
	if err != nil {
		return err
	}
	defer ports.release()
	store, err := openStore(o.dir, o.namespace)
	if err != nil {
		return err
	}
	server, err := newServer(store, ports, log)
	if err != nil {
		return err
	}
	if err := server.Start(); err != nil {
		return fmt.Errorf("start Temporal: %w", err)
	}
	err = awaitReady(ctx, ports.address(), o.namespace)
	if err == nil {
		ready(ports.address())
		<-ctx.Done()
	} else if ctx.Err() != nil {
		err = nil // asked to end while it started
	}
	return errors.Join(err, stop(server))
}

// stop ends the server in order. One that does not end is left to the end of
// the process: what a workflow did is in the database when it is acknowledged.
func stop(server interface{ Stop() error }) error {
	done := make(chan error, 1)
	go func() { done <- server.Stop() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("stop Temporal: %w", err)
		}
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("stop Temporal: it did not end within %s", stopTimeout)
	}
}
