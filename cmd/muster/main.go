// Command muster decides what every machine of a fleet is fit for, and says why.
//
// This package holds the commands, one a file, each thin: flags in, a call, a
// table or JSON out. What they do lies beside them: server/ wires the roles of
// `muster serve`, dev/ brings along what `muster dev` needs, client/ speaks to a
// running server, config/, bundle/, recording/, sandbox/ and render/ what their
// names say.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	// A second signal ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	a := &app{
		args: os.Args, environ: os.Environ(), getenv: os.Getenv, now: time.Now,
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr,
	}
	os.Exit(a.run(ctx))
}
