package embedded

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// childEnv makes this test binary an owner of the directory it names, so that
// tests can kill an owner.
const childEnv = "MUSTER_EMBEDDED_TEST_OWNER"

// deadline bounds each wait of a test, on a machine that does much else.
const deadline = 90 * time.Second

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		if err := own(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if dir := os.Getenv(temporalEnv); dir != "" {
		if err := ownTemporal(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// An operator's settings, none of which may reach a private server.
	for name, value := range map[string]string{"PGPORT": "1", "PGDATA": "/nonexistent", "LC_ALL": "xx_XX", "TZ": "Asia/Tokyo"} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	m.Run()
	if err := os.RemoveAll(prepared.dir); err != nil {
		panic(err)
	}
}

// self is this test binary.
const self = "/proc/self/exe"

// announcement is what an owner prints once its server answers.
type announcement struct {
	URL string
	PID int
}

// own is the life of an owner: until its standard input ends, or it is killed.
func own(dir string) error {
	d, err := OpenDataDir(dir, Versions{Muster: Layout, Schema: 1})
	if err != nil {
		return err
	}
	p, err := StartPostgres(context.Background(), options(d.Path("p")))
	if err != nil {
		return err
	}
	if err := d.Announce("http://127.0.0.1:1"); err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(announcement{URL: p.URL(), PID: p.server.cmd.Process.Pid}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(d) // a lock that is collected is given back
	runtime.KeepAlive(p)
	return err
}

func options(dir string) PostgresOptions {
	return PostgresOptions{Dir: dir, Params: map[string]string{"fsync": "off", "shared_buffers": "16MB"}}
}

// shortParent is where test directories go: clusters are many small files,
// copied much faster in memory.
func shortParent() string {
	var st syscall.Statfs_t
	if err := syscall.Statfs("/dev/shm", &st); err != nil || st.Bavail*uint64(st.Bsize) < 4<<30 {
		return "/tmp"
	}
	return "/dev/shm"
}

// folder makes a directory with a path short enough for a socket.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(shortParent(), "me-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

// prepared is a cluster that initdb has made once, to copy.
var prepared struct {
	once sync.Once
	dir  string
	err  error
}

// withCluster puts a cluster into dir, as a stopped server leaves it.
func withCluster(t *testing.T, dir string) string {
	t.Helper()
	prepared.once.Do(func() {
		if prepared.dir, prepared.err = os.MkdirTemp(shortParent(), "me-"); prepared.err != nil {
			return
		}
		if prepared.err = os.Chmod(prepared.dir, 0o711); prepared.err != nil {
			return
		}
		var p *Postgres
		if p, prepared.err = StartPostgres(context.Background(), options(prepared.dir)); prepared.err == nil {
			prepared.err = p.Stop(context.Background())
		}
	})
	if prepared.err != nil {
		t.Fatal(prepared.err)
	}
	if err := makeOpen(dir); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(prepared.dir, dataName), dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the cluster: %v\n%s", err, out)
	}
	return dir
}

// start starts a server that ends with the test.
func start(t *testing.T, o PostgresOptions) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

func query[T any](t *testing.T, url, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func run(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// ownerProcess is another process that owns a data directory.
type ownerProcess struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

// startOwner runs a program, which is this test binary or runs it, as owner.
func startOwner(t *testing.T, dir string, as *account, program ...string) *ownerProcess {
	t.Helper()
	return startOwnerOf(t, childEnv, dir, as, program...)
}

// startOwnerOf is startOwner for the owner that a variable asks for.
func startOwnerOf(t *testing.T, variable, dir string, as *account, program ...string) *ownerProcess {
	t.Helper()
	cmd := exec.Command(program[0], program[1:]...)
	cmd.Env = append(os.Environ(), variable+"="+dir)
	cmd.Stderr, cmd.Dir = os.Stderr, "/"
	cmd.SysProcAttr = childAttributes(as, syscall.SIGKILL)
	stdin, err := cmd.StdinPipe() // its end ends the owner
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr.Pdeathsig = 0 // the thread of a test may end before it
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed: an error every time
	})
	return &ownerProcess{cmd: cmd, stdout: bufio.NewReader(stdout)}
}

// announced waits until the owner's server answers.
func (o *ownerProcess) announced(t *testing.T) (a announcement) {
	t.Helper()
	line, err := o.stdout.ReadBytes('\n')
	if err != nil {
		t.Fatalf("the owner ended before its server answered: %v", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for !is() {
		if pause(ctx) != nil {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
