package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Exit codes of muster-temporal that are told apart here.
const (
	temporalInUse = 3
	temporalTaken = 4
	temporalUnfit = 5
)

// errUnfit says that another start will end the same way.
var errUnfit = errors.New("the program and its data, or this muster, do not fit together")

// serve runs the server once: until it ends by itself, or ctx ends and the
// server was ended in order. held says that it was ready for restartForgiven.
func (t *Temporal) serve(ctx context.Context) (held bool, err error) {
	said := &announcements{to: t.options.Log, ready: make(chan struct{})}
	cmd := exec.Command(t.options.Program, "--dir", t.options.Dir, "--port", strconv.Itoa(t.port.number),
		"--namespace", TemporalNamespace, "--schema", TemporalSchema)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), childAttributes(nil, syscall.SIGTERM)
	server, err := startChild(cmd, said)
	if err != nil {
		return false, fmt.Errorf("start Temporal: %w", err)
	}
	t.mu.Lock()
	t.pid = server.cmd.Process.Pid
	t.mu.Unlock()
	starting := time.NewTimer(startTimeout)
	defer starting.Stop()
	select {
	case <-said.ready:
		t.enter(PhaseReady, nil)
	case <-server.done:
		return false, ended(server)
	case <-starting.C:
		return false, errors.Join(fmt.Errorf("Temporal is not ready after %s:\n%s", startTimeout, server.output.tail()), end(ctx, server))
	case <-ctx.Done():
		return false, end(ctx, server)
	}
	forgiven := time.NewTimer(restartForgiven)
	defer forgiven.Stop()
	for {
		select {
		case <-server.done:
			return held, ended(server)
		case <-forgiven.C:
			held = true
		case <-ctx.Done():
			return held, end(ctx, server)
		}
	}
}

// end ends the server in order, whether ctx has ended or not. How it ended is
// no error: what workflows did is in the database.
func end(ctx context.Context, server *child) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), temporalStop)
	defer cancel()
	if err := server.stop(ctx, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		return fmt.Errorf("stop Temporal (process %d): %w", server.cmd.Process.Pid, err)
	}
	return nil
}

// ended says why the server is gone.
func ended(server *child) error {
	how := server.err
	var exit *exec.ExitError
	if errors.As(how, &exit) {
		switch exit.ExitCode() {
		case temporalInUse:
			how = ErrInUse
		case temporalTaken:
			how = ErrPortTaken
		case temporalUnfit:
			how = errUnfit
		}
	}
	if how == nil {
		how = errors.New("it was told to by another")
	}
	return fmt.Errorf("Temporal has ended: %w\n%s", how, server.output.tail())
}

// announcements passes a server's output on and notices the line that says it
// is ready. It never fails.
type announcements struct {
	to    io.Writer
	ready chan struct{} // closed when the server is ready

	mu   sync.Mutex
	line []byte // begun and not ended
	told bool
}

// maxLine bounds what is kept of a line, in bytes.
const maxLine = 1 << 10

func (a *announcements) Write(p []byte) (int, error) {
	if a.to != nil {
		if _, err := a.to.Write(p); err != nil {
			a.to = nil
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for rest := p; !a.told && len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		a.line = append(a.line, line[:min(len(line), max(0, maxLine-len(a.line)))]...)
		rest = after
		if !whole {
			break
		}
		if bytes.HasPrefix(a.line, []byte(TemporalProgram+" ready ")) {
			a.told = true
			close(a.ready)
		}
		a.line = a.line[:0]
	}
	return len(p), nil
}
