package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

func run(ctx context.Context) error {
	quick := flag.Bool("quick", false, "a smoke test: the same work on less, in about a minute")
	flag.Parse()
	e := effort{rounds: 15, slice: 30 * time.Millisecond}
	if *quick {
		e = effort{rounds: 5, slice: 5 * time.Millisecond}
	}
	_ = ctx
	r := &report{said: os.Stdout}
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
	if err := benchLoad(r, e); err != nil {
		return err
	}
	r.say()
	fmt.Print("\n", r.summary())
	return nil
}
