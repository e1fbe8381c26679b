package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Variable is set in a child: its limits.
const Variable = "MUSTER_SANDBOX"

// exitLimit is the exit code of a child that met one of its limits.
const exitLimit = 75

// Limits are what a child may use.
type Limits struct {
	Memory int64         // bytes
	CPU    time.Duration // of all threads together
	Time   time.Duration // by the clock on the wall
}

// ErrLimit says that a child was ended at one of its limits.
var ErrLimit = errors.New("ended at a limit")

// Command is the child to be run: this program with other limits.
type Command struct {
	Args   []string // the program's name first
	Env    []string // of the parent; the child sees little of it
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// inherited are the variables that a child sees: what finds files and tells how
// to print. Tokens and passwords are not among them.
var inherited = []string{"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TERM", "NO_COLOR", "GOMAXPROCS", "GOCOVERDIR", "GORACE"}

// Run runs the command under limits and gives its exit code. An ErrLimit names
// the limit.
func Run(ctx context.Context, c Command, l Limits) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("start the limited process: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, l.Time)
	defer cancel()
	child := exec.CommandContext(ctx, self, c.Args[1:]...)
	child.Args[0] = c.Args[0]
	child.Env = append(kept(c.Env), l.variable(), fmt.Sprintf("GOMEMLIMIT=%d", l.Memory*9/10))
	child.Stdin, child.Stdout, child.Stderr = c.Stdin, c.Stdout, c.Stderr
	child.WaitDelay = time.Second
	bind(child)
	runtime.LockOSThread() // the child ends with the thread that started it
	defer runtime.UnlockOSThread()
	err = child.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() == context.DeadlineExceeded:
		return 0, fmt.Errorf("%w: it took longer than %s", ErrLimit, l.Time)
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err == nil:
		return 0, nil
	case !errors.As(err, &exit):
		return 0, fmt.Errorf("start the limited process: %w", err)
	case exit.ExitCode() == exitLimit:
		return 0, fmt.Errorf("%w: it needed more than %d MiB of memory", ErrLimit, l.Memory>>20)
	case exit.ExitCode() < 0 && overCPU(exit, l):
		return 0, fmt.Errorf("%w: it needed more than %s of CPU", ErrLimit, l.CPU)
	case exit.ExitCode() < 0:
		return 0, fmt.Errorf("the limited process ended: %w", err)
	}
	return exit.ExitCode(), nil
}

// kept picks the variables that a child sees.
func kept(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return !slices.Contains(inherited, name)
	})
}

func (l Limits) variable() string {
	return fmt.Sprintf("%s=%d,%d", Variable, l.Memory, int64(l.CPU.Seconds()+0.999))
}

// Entered reports whether this process is a child, by its environment.
func Entered(getenv func(string) string) bool { return getenv(Variable) != "" }

// Enter takes the limits of a child upon this process: call it before anything
// that is not trusted is read. It returns at once.
func Enter(getenv func(string) string) error {
	memory, cpu, ok := strings.Cut(getenv(Variable), ",")
	bytes, merr := strconv.ParseInt(memory, 10, 64)
	seconds, cerr := strconv.ParseUint(cpu, 10, 64)
	if !ok || merr != nil || cerr != nil {
		return fmt.Errorf("%s is %q, not what this program sets", Variable, getenv(Variable))
	}
	go watch(bytes)
	return restrict(bytes, seconds)
}
