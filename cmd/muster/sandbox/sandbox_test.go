package sandbox_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/muster/sandbox"
)

// TestMain is the child where it is started as one.
func TestMain(m *testing.M) {
	if !sandbox.Entered(os.Getenv) {
		m.Run()
		return
	}
	if err := sandbox.Enter(os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
	child(os.Args[1])
}

// child does one thing that a bundle may do to us.
func child(what string) {
	switch what {
	case "eat":
		var all [][]byte
		for i := 0; ; i++ {
			block := make([]byte, 8<<20)
			for at := range block {
				block[at] = byte(i)
			}
			all = append(all, block)
			time.Sleep(time.Millisecond)
			runtime.KeepAlive(all)
		}
	case "spin":
		for i := 0; ; i++ {
			_ = i * i
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "environment":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "seven":
		fmt.Fprintln(os.Stderr, "said")
		os.Exit(7)
	}
}

func TestAChildIsEndedAtItsLimits(t *testing.T) {
	t.Parallel()
	roomy := sandbox.Limits{Memory: 4 << 30, CPU: time.Minute, Time: time.Minute}
	for name, c := range map[string]struct {
		does   string
		limits sandbox.Limits
		want   string
		code   int
	}{
		"memory":       {"eat", sandbox.Limits{Memory: 256 << 20, CPU: roomy.CPU, Time: roomy.Time}, "more than 256 MiB of memory", 0},
		"cpu":          {"spin", sandbox.Limits{Memory: roomy.Memory, CPU: time.Second, Time: roomy.Time}, "more than 1s of CPU", 0},
		"time":         {"sleep", sandbox.Limits{Memory: roomy.Memory, CPU: roomy.CPU, Time: 500 * time.Millisecond}, "longer than 500ms", 0},
		"its own code": {"seven", roomy, "", 7},
		"none":         {"nothing", roomy, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, err := sandbox.Run(context.Background(), sandbox.Command{Args: []string{os.Args[0], c.does}, Env: os.Environ(), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}}, c.limits)
			switch {
			case c.want == "" && (err != nil || code != c.code):
				t.Errorf("code %d, %v", code, err)
			case c.want != "" && (!errors.Is(err, sandbox.ErrLimit) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("code %d, %v, want %q", code, err, c.want)
			}
		})
	}
}

func TestAChildDoesNotSeeOurSecrets(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	env := []string{"PATH=/bin", "MUSTER_TOKEN=secret", "AWS_SECRET=secret", "MUSTER_DATABASE_URL=postgres://u:secret@h/d"}
	if _, err := sandbox.Run(context.Background(), sandbox.Command{Args: []string{os.Args[0], "environment"}, Env: env, Stdout: &out, Stderr: &out},
		sandbox.Limits{Memory: 1 << 30, CPU: time.Minute, Time: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "secret") || !strings.Contains(text, "PATH=/bin") {
		t.Errorf("it sees\n%s", text)
	}
}

func TestWhoGivesUpEndsTheChild(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	_, err := sandbox.Run(ctx, sandbox.Command{Args: []string{os.Args[0], "sleep"}, Env: os.Environ(), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}},
		sandbox.Limits{Memory: 1 << 30, CPU: time.Minute, Time: time.Minute})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
