package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/sandbox"
)

// limits are the flags that bound what a bundle may cost.
type limits struct {
	memoryMiB int64
	cpu, wall time.Duration
}

func newLimits() *limits { return &limits{} }

func (l *limits) flags(c *cobra.Command) {
	c.Flags().Int64Var(&l.memoryMiB, "max-memory", 2048, "MiB of memory that it may use")
	c.Flags().DurationVar(&l.cpu, "max-cpu", 2*time.Minute, "CPU time that it may use")
	c.Flags().DurationVar(&l.wall, "max-time", 3*time.Minute, "how long it may take")
}

// limited runs f in a child process with limits; here it only waits for it.
func (a *app) limited(l *limits, f func(args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if sandbox.Entered(a.getenv) {
			if err := sandbox.Enter(a.getenv); err != nil {
				return err
			}
			return f(args)
		}
		if l.memoryMiB < 64 || l.cpu <= 0 || l.wall <= 0 {
			return usage("--max-memory is at least 64, --max-cpu and --max-time are positive")
		}
		code, err := sandbox.Run(c.Context(), sandbox.Command{
			Args: a.args, Env: a.environ, Stdin: a.stdin, Stdout: a.stdout, Stderr: a.stderr,
		}, sandbox.Limits{Memory: l.memoryMiB << 20, CPU: l.cpu, Time: l.wall})
		switch {
		case errors.Is(err, sandbox.ErrLimit):
			return nope("%w: simplify the policies, or allow more (--max-memory, --max-cpu, --max-time)", err)
		case err != nil:
			return err
		case code != 0:
			return &exitError{code: code}
		}
		return nil
	}
}
