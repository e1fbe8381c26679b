package embedded

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// temporalEnv makes this test binary an owner of a Temporal in the directory
// that it names.
const temporalEnv = "MUSTER_EMBEDDED_TEST_TEMPORAL"

// builtTemporal is the path of muster-temporal, "" where it was not built.
func builtTemporal() string {
	path := os.Getenv("MUSTER_TEMPORAL_BIN")
	if path == "" {
		path = filepath.Join("..", "bin", TemporalProgram)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// withTemporal skips a test where the server was not built, which takes minutes.
func withTemporal(t *testing.T) string {
	t.Helper()
	path := builtTemporal()
	if path == "" {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN: workflows run on a real Temporal only")
	}
	return path
}

// ownTemporal is the life of an owner: until its standard input ends, or it is
// killed.
func ownTemporal(dir string) error {
	s, err := OpenTemporal(TemporalOptions{Dir: dir, Program: os.Getenv("MUSTER_TEMPORAL_BIN")})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	err = s.Ready(ctx)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(announcement{URL: s.Address(), PID: s.process()})
	}
	if err == nil {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	cancel()
	return errors.Join(err, <-done, s.Close())
}

func (t *Temporal) process() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pid
}

// runTemporal runs a server that ends with the test. got has what Run returned
// once that has.
func runTemporal(t *testing.T, s *Temporal) (got chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	got, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		got <- s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return got
}

func startTemporal(t *testing.T, dir, program string) *Temporal {
	t.Helper()
	s, err := OpenTemporal(TemporalOptions{Dir: dir, Program: program})
	if err != nil {
		t.Fatal(err)
	}
	runTemporal(t, s)
	awaitReady(t, s)
	return s
}

func awaitReady(t *testing.T, s *Temporal) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		t.Fatal(err)
	}
}

// silent takes what the SDK says about a server that is killed under it.
type silent struct{}

func (silent) Debug(string, ...any) {}
func (silent) Info(string, ...any)  {}
func (silent) Warn(string, ...any)  {}
func (silent) Error(string, ...any) {}

var _ log.Logger = silent{}

func dial(t *testing.T, address string) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: address, Namespace: TemporalNamespace, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const queue = "test"

// step is an activity that counts its runs.
type step struct{ runs atomic.Int32 }

func (s *step) Run(context.Context) (int32, error) { return s.runs.Add(1), nil }

// twoSteps runs the step, waits for a word, and runs it again.
func twoSteps(ctx workflow.Context) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 30 * time.Second})
	var first, second int32
	if err := workflow.ExecuteActivity(ctx, "Run").Get(ctx, &first); err != nil {
		return "", err
	}
	var word string
	workflow.GetSignalChannel(ctx, "word").Receive(ctx, &word)
	if err := workflow.ExecuteActivity(ctx, "Run").Get(ctx, &second); err != nil {
		return "", err
	}
	return fmt.Sprint(first, word, second), nil
}

func work(t *testing.T, c client.Client, s *step) {
	t.Helper()
	w := worker.New(c, queue, worker.Options{})
	w.RegisterWorkflowWithOptions(twoSteps, workflow.RegisterOptions{Name: "twoSteps"})
	w.RegisterActivity(s)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
}

func TestAWorkflowGoesOnWhenTemporalIsKilled(t *testing.T) {
	t.Parallel()
	s := startTemporal(t, folder(t), withTemporal(t))
	c := dial(t, s.Address())
	var counted step
	work(t, c, &counted)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	started, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "one", TaskQueue: queue}, "twoSteps")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first step has run", func() bool { return counted.runs.Load() == 1 })
	killed := s.process()
	kill(t, killed)
	eventually(t, "another server is ready", func() bool {
		phase, _ := s.Phase()
		return phase == PhaseReady && s.process() != killed
	})
	// The SDK may still be on its way back: the address is the same.
	eventually(t, "the word is taken", func() bool { return c.SignalWorkflow(ctx, "one", "", "word", " and ") == nil })
	var said string
	if err := started.Get(ctx, &said); err != nil || !strings.HasPrefix(said, "1 and ") {
		t.Errorf("the workflow came to %q, %v", said, err)
	}
	if _, err := c.DescribeWorkflow(ctx, "one", ""); err != nil {
		t.Error(err)
	}
}

func TestTemporalEndsWithItsKilledOwnerAndKeepsItsHistory(t *testing.T) {
	t.Parallel()
	program, dir := withTemporal(t), folder(t)
	t.Logf("the server is %s", program)
	owner := startOwnerOf(t, temporalEnv, dir, nil, "env", "MUSTER_TEMPORAL_BIN="+program, "/proc/"+fmt.Sprint(os.Getpid())+"/exe")
	a := owner.announced(t)
	c := dial(t, a.URL)
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if _, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "kept", TaskQueue: queue}, "twoSteps"); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTemporal(TemporalOptions{Dir: dir, Program: program}); !errors.Is(err, ErrInUse) {
		t.Fatalf("open beside a living owner: %v, want ErrInUse", err)
	}
	kill(t, owner.cmd.Process.Pid)
	_ = owner.cmd.Wait()
	next := startTemporal(t, dir, program) // at once: the child of the killed one may still be ending
	eventually(t, "the first server is gone", func() bool {
		process := fmt.Sprintf("/proc/%d", a.PID)
		_, err := os.Stat(process)
		return err != nil || isZombie(process)
	})
	found, err := dial(t, next.Address()).DescribeWorkflow(ctx, "kept", "")
	if err != nil || found.WorkflowCloseTime != nil {
		t.Errorf("the workflow is %+v, %v", found, err)
	}
}

// The program itself refuses what its parent would: somebody may run it by hand.
func TestMusterTemporalTellsWhyItDoesNotRun(t *testing.T) {
	t.Parallel()
	program, dir := withTemporal(t), folder(t)
	s := startTemporal(t, filepath.Join(dir, "used"), program)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // after the parallel cases
	_, taken, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, "old")
	write(t, filepath.Join(old, "temporal.db"), "")
	write(t, filepath.Join(old, "schema"), "0.1/0.1\n")
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"directory in use", []string{"--dir", s.options.Dir, "--port", "1"}, temporalInUse, "in use by another"},
		{"port in use", []string{"--dir", filepath.Join(dir, "a"), "--port", taken}, temporalTaken, "127.0.0.1:" + taken + " is taken"},
		{"parent of another build", []string{"--dir", filepath.Join(dir, "b"), "--schema", "9"}, temporalUnfit, "knows 9"},
		{"database of another build", []string{"--dir", old, "--port", "7"}, temporalUnfit, "has schema 0.1/0.1"},
		{"no directory", nil, 2, "usage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			said, err := exec.CommandContext(ctx, program, tt.args...).CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != tt.code || !strings.Contains(string(said), tt.says) {
				t.Errorf("it ended with %v, want %d, and said %s", err, tt.code, said)
			}
		})
	}
}

func TestATakenPortIsNamed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("no TCP address")
	}
	dir := folder(t)
	_, err = OpenTemporal(TemporalOptions{Dir: dir, Program: "/nonexistent", Port: address.Port})
	if !errors.Is(err, ErrPortTaken) || !strings.Contains(err.Error(), address.String()) {
		t.Errorf("%v, want the address that is taken", err)
	}
	s, err := OpenTemporal(TemporalOptions{Dir: dir, Program: "/nonexistent"}) // the directory is free again
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if s.Address() == address.String() {
		t.Error("it was given a taken port")
	}
}

// script makes a stand-in for muster-temporal.
func script(t *testing.T, path, body string) {
	t.Helper()
	// Another process writes it: a file that a fork of this one has open cannot be run.
	cmd := exec.Command("sh", "-c", `cat >"$1.new" && chmod +x "$1.new" && mv "$1.new" "$1"`, "sh", path)
	cmd.Stdin = strings.NewReader("#!/bin/sh\n" + body)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestAProgramThatIsBuiltLaterIsStarted(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	program := filepath.Join(dir, TemporalProgram)
	phases := make(chan Phase, 10)
	s, err := OpenTemporal(TemporalOptions{Dir: filepath.Join(dir, "t"), Program: program, Changed: func(p Phase, _ error) { phases <- p }})
	if err != nil {
		t.Fatal(err)
	}
	runTemporal(t, s)
	if first := <-phases; first != PhaseAbsent {
		t.Errorf("it begins %s", first)
	}
	script(t, program, "echo noise; printf 'muster-temporal re' >&2; echo 'ady 127.0.0.1:1' >&2; exec sleep 600\n")
	awaitReady(t, s)
	for _, want := range []Phase{PhaseStarting, PhaseReady} {
		if got := <-phases; got != want {
			t.Errorf("then it is %s, not %s", got, want)
		}
	}
}

func TestAServerThatEndsIsStartedAgainSoOften(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		body   string
		starts int
		is     error
	}{
		{"it fails", "echo too bad >&2; exit 1\n", 4, nil},
		{"it is ready and fails", "echo 'muster-temporal ready x' >&2; echo too bad; exit 0\n", 4, nil},
		{"its port is taken", "echo too bad >&2; exit 4\n", 4, ErrPortTaken},
		{"its data is another's", "echo too bad >&2; exit 5\n", 1, errUnfit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			program, log := filepath.Join(dir, TemporalProgram), filepath.Join(dir, "starts")
			script(t, program, "echo start >>"+log+"; "+tt.body)
			s, err := OpenTemporal(TemporalOptions{Dir: filepath.Join(dir, "t"), Program: program})
			if err != nil {
				t.Fatal(err)
			}
			s.restarts, s.pause = 3, time.Millisecond
			err = <-runTemporal(t, s)
			if err == nil || !strings.Contains(err.Error(), "too bad") || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("it gave up with %v", err)
			}
			starts, rerr := os.ReadFile(log)
			if n := strings.Count(string(starts), "start"); rerr != nil || n != tt.starts {
				t.Errorf("it was started %d times, not %d, %v", n, tt.starts, rerr)
			}
			if phase, why := s.Phase(); phase != PhaseFailed || !errors.Is(why, err) {
				t.Errorf("it is %s for %v", phase, why)
			}
			if err := s.Ready(t.Context()); err == nil {
				t.Error("it is ready")
			}
		})
	}
}

func TestATemporalThatIgnoresTheEndIsKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	program := filepath.Join(dir, TemporalProgram)
	script(t, program, "trap '' TERM; echo 'muster-temporal ready x' >&2; while :; do sleep 1; done\n")
	s, err := OpenTemporal(TemporalOptions{Dir: filepath.Join(dir, "t"), Program: program})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	awaitReady(t, s)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(s.process(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
}
