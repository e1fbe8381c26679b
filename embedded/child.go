package embedded

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

const (
	// pipeGrace is how long descendants of an ended child may keep its output
	// open before the child counts as gone all the same.
	pipeGrace = 10 * time.Second
	// killGrace is how long a child may take over each harsher signal.
	killGrace = 10 * time.Second
	tailBytes = 4096
)

// child is a process that ends with this one. done is closed when it is gone
// and reaped; err and the output are final then.
type child struct {
	cmd    *exec.Cmd
	output *output
	done   chan struct{}
	err    error
}

// startChild starts cmd, whose SysProcAttr is of childAttributes, and sends
// both its outputs to log, which may be nil.
func startChild(cmd *exec.Cmd, log io.Writer) (*child, error) {
	c := &child{cmd: cmd, output: &output{to: log}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.output, c.output, pipeGrace
	started := make(chan error, 1)
	go func() {
		// The kernel sends the parent's-death signal when the thread that
		// forked ends, not the process: the thread stays with the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// stop sends the signals in turn, the first with as much time as ctx leaves,
// the others with killGrace each, and returns when the child is gone.
func (c *child) stop(ctx context.Context, first syscall.Signal, harsher ...syscall.Signal) error {
	if err := c.signal(first); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	for _, s := range harsher {
		if err := c.signal(s); err != nil {
			return err
		}
		t := time.NewTimer(killGrace)
		select {
		case <-c.done:
			t.Stop()
			return nil
		case <-t.C:
		}
	}
	return errors.New("the process does not end")
}

func (c *child) signal(s syscall.Signal) error {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// output passes a child's output on and keeps its end for error texts. It
// never fails: a child must not die of its owner's full disk.
type output struct {
	mu  sync.Mutex
	to  io.Writer
	end []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to != nil {
		if _, err := o.to.Write(p); err != nil {
			o.to = nil
		}
	}
	o.end = append(o.end, p...)
	if len(o.end) > tailBytes {
		o.end = append(o.end[:0], o.end[len(o.end)-tailBytes:]...)
	}
	return len(p), nil
}

// tail returns the last tailBytes of the output.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.end)
}
