package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

const (
	// TemporalSchema is what muster-temporal's database is made with, as its
	// --version says. A program of another schema refuses to run for this one.
	TemporalSchema = "0.11/0.1"
	// TemporalNamespace is the namespace that the server has.
	TemporalNamespace = "muster"
	// TemporalProgram is the name of the server's program.
	TemporalProgram = "muster-temporal"
)

const (
	// temporalStop bounds an ordered end, before the server is killed.
	temporalStop = 15 * time.Second
	// programPause is between two looks for a program that is not built yet.
	programPause = 500 * time.Millisecond
	// restarts bounds how often a server that ends by itself is started again.
	// One that was ready for restartForgiven has them all again.
	restarts        = 10
	restartForgiven = time.Minute
	// The pause before a start doubles from the first to the longest.
	firstRestartPause   = 200 * time.Millisecond
	longestRestartPause = 20 * time.Second
)

// ErrPortTaken is wrapped by errors about a port that another program has.
var ErrPortTaken = errors.New("is taken by another program")

// Phase says what a Temporal does now.
type Phase string

// The phases. Failed is the last one: it is not started again.
const (
	PhaseAbsent   Phase = "absent"   // its program is not there yet
	PhaseStarting Phase = "starting" // for the first time, or again
	PhaseReady    Phase = "ready"    // it takes workflows
	PhaseFailed   Phase = "failed"
	PhaseStopped  Phase = "stopped" // Run has ended because it was told to, or was never called
)

// TemporalOptions says where and how a private Temporal runs.
type TemporalOptions struct {
	Dir     string // holds its database and locks; made when missing
	Program string // muster-temporal; one that is missing is waited for
	Port    int    // on 127.0.0.1; 0 = any free one, the same until Close
	Log     io.Writer
	// Changed is told each new phase, and why when that is for a failure. It
	// must not call back. May be nil.
	Changed func(Phase, error)
}

// Temporal is a private Temporal server, kept running by Run. Its methods may
// be called by any goroutine.
type Temporal struct {
	options TemporalOptions
	lock    *os.File
	port    *heldPort

	restarts int           // see the constants
	pause    time.Duration // the first

	mu      sync.Mutex
	pid     int // of the server's process, of the newest
	phase   Phase
	why     error         // of PhaseFailed, or of the restart
	changed chan struct{} // closed when the phase changes
}

// OpenTemporal takes the directory and the port; Run starts the server. It
// fails with ErrInUse when the directory has an owner, with ErrPortTaken when
// the port has.
func OpenTemporal(o TemporalOptions) (*Temporal, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" || o.Program == "" {
		return nil, errors.Join(errors.New("Temporal needs a directory and a program"), err)
	}
	o.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make Temporal's directory: %w", err)
	}
	lock, err := acquire(filepath.Join(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("Temporal in %s: %w", dir, err)
	}
	port, err := holdPort(o.Port)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take a port for Temporal: %w", err), release(lock))
	}
	return &Temporal{
		options: o, lock: lock, port: port, restarts: restarts, pause: firstRestartPause,
		phase: PhaseStopped, changed: make(chan struct{}),
	}, nil
}

// Address is where the server answers, or will: host:port.
func (t *Temporal) Address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(t.port.number))
}

// Phase says what the server does now, and why if something went wrong.
func (t *Temporal) Phase() (Phase, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.phase, t.why
}

// Ready returns when the server takes workflows, or will not any more.
func (t *Temporal) Ready(ctx context.Context) error {
	for {
		t.mu.Lock()
		phase, why, changed := t.phase, t.why, t.changed
		t.mu.Unlock()
		switch phase {
		case PhaseReady:
			return nil
		case PhaseFailed:
			return why
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("Temporal is not ready (%s): %w", phase, errors.Join(ctx.Err(), why))
		}
	}
}

func (t *Temporal) enter(phase Phase, why error) {
	t.mu.Lock()
	before := t.phase
	t.phase, t.why = phase, why
	close(t.changed)
	t.changed = make(chan struct{})
	t.mu.Unlock()
	if t.options.Changed != nil && (before != phase || why != nil) {
		t.options.Changed(phase, why)
	}
}

// Run waits for the program, starts it, and starts it again when it ends, until
// ctx ends; then it ends the server in order and returns nil. It returns an
// error when the server cannot run, or has ended too often: what it kept is
// still there. It may be called once at a time.
func (t *Temporal) Run(ctx context.Context) error {
	left, pause := t.restarts, t.pause
	var why error
	for {
		if !t.awaitProgram(ctx) {
			t.enter(PhaseStopped, nil)
			return nil
		}
		t.enter(PhaseStarting, why)
		held, err := t.serve(ctx)
		if ctx.Err() != nil {
			t.enter(PhaseStopped, err)
			return err
		}
		if held {
			left, pause = t.restarts, t.pause
		}
		if left--; left < 0 || errors.Is(err, errUnfit) {
			err = fmt.Errorf("Temporal is not started again: %w", err)
			t.enter(PhaseFailed, err)
			return err
		}
		why = err
		if !sleep(ctx, pause) {
			t.enter(PhaseStopped, nil)
			return nil
		}
		pause = min(2*pause, longestRestartPause)
	}
}

// awaitProgram returns when the program is there, false when ctx ended first.
func (t *Temporal) awaitProgram(ctx context.Context) bool {
	for ctx.Err() == nil {
		if info, err := os.Stat(t.options.Program); err == nil && info.Mode().IsRegular() {
			return true
		}
		if phase, _ := t.Phase(); phase != PhaseAbsent {
			t.enter(PhaseAbsent, nil)
		}
		if !sleep(ctx, programPause) {
			return false
		}
	}
	return false
}

// sleep waits, and returns false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Close gives the directory and the port up. Run has returned. It may be called
// again.
func (t *Temporal) Close() error {
	return errors.Join(t.port.release(), release(t.lock))
}
