package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Program is a process of ours that ends when this one does, however that is.
// Its methods may be called by any goroutine.
type Program struct {
	name  string
	child *child
}

// StartProgram starts a program with its arguments, with both its outputs going
// to log, which may be nil.
func StartProgram(log io.Writer, path string, args ...string) (*Program, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = childAttributes(nil, syscall.SIGKILL)
	c, err := startChild(cmd, log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return &Program{name: path, child: c}, nil
}

// PID is the process's.
func (p *Program) PID() int { return p.child.cmd.Process.Pid }

// Done is closed when the program has ended, asked or not.
func (p *Program) Done() <-chan struct{} { return p.child.done }

// Err says how the program ended and what it said last. It may be called once
// Done is closed.
func (p *Program) Err() error {
	how := p.child.err
	if how == nil {
		how = errors.New("it ended by itself")
	}
	return fmt.Errorf("%w:\n%s", how, p.child.output.tail())
}

// Stop ends the program in order, in a hurry once ctx ends. How it ended is no
// error.
func (p *Program) Stop(ctx context.Context) error {
	if err := p.child.stop(ctx, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		return fmt.Errorf("stop %s (process %d): %w", p.name, p.PID(), err)
	}
	return nil
}
