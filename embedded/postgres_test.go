package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestServerKeepsItsDataFromStartToStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(folder(t), "made", "by start")
	p, err := StartPostgres(t.Context(), options(dir)) // initdb and all
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"TimeZone": "UTC", "lc_messages": "C", "server_encoding": "UTF8"} {
		if v := query[string](t, p.URL(), "SELECT current_setting('"+name+"')"); !strings.HasSuffix(v, want) {
			t.Errorf("%s is %q, want %s whatever the operator's environment says", name, v, want)
		}
	}
	run(t, p.URL(), "CREATE TABLE a AS SELECT 7 AS v")
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("a stopped server is not done")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop again: %v", err)
	}
	again := start(t, options(dir))
	if v := query[int](t, again.URL(), "SELECT v FROM a"); v != 7 {
		t.Errorf("the row holds %d, want 7", v)
	}
}

func TestServerListensOnItsSocketOnly(t *testing.T) {
	t.Parallel()
	p := start(t, options(withCluster(t, folder(t))))
	if v := query[string](t, p.URL(), "SHOW listen_addresses"); v != "" {
		t.Errorf("listens on %q", v)
	}
	info, err := os.Stat(p.socket)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's folder has mode %v, others may connect as superuser", info.Mode())
	}
	group, err := syscall.Getpgid(p.server.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Error("the server is in our process group: Ctrl-C would end it before us")
	}
}

func TestServerListensOnAPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	o := options(withCluster(t, folder(t)))
	o.Port = port
	if _, err := StartPostgres(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Address already in use") {
		t.Fatalf("start on a taken port: %v, want the server's own words", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	p := start(t, o)
	run(t, p.URL(), "CREATE ROLE r LOGIN PASSWORD 'secret'")
	address := fmt.Sprintf("postgres://r:secret@127.0.0.1:%d/postgres", port)
	if v := query[string](t, address, "SELECT current_user::text"); v != "r" {
		t.Errorf("connected as %q", v)
	}
	if _, err := pgx.Connect(t.Context(), strings.Replace(address, "secret", "wrong", 1)); err == nil {
		t.Error("a wrong password is good enough over TCP")
	}
}

func TestCreateDatabaseMayBeRepeated(t *testing.T) {
	t.Parallel()
	p := start(t, options(withCluster(t, folder(t))))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := p.CreateDatabase(t.Context(), `Fleet "A"/?`); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	url, err := p.CreateDatabase(t.Context(), `Fleet "A"/?`)
	if err != nil {
		t.Fatal(err)
	}
	if v := query[string](t, url, "SELECT current_database()::text"); v != `Fleet "A"/?` {
		t.Errorf("the URL leads to %q", v)
	}
	for _, name := range []string{"", strings.Repeat("x", 64)} {
		if _, err := p.CreateDatabase(t.Context(), name); err == nil {
			t.Errorf("a name of %d bytes is taken", len(name))
		}
	}
}

func TestSecondOwnerIsRefused(t *testing.T) {
	t.Parallel()
	dir := withCluster(t, folder(t))
	p := start(t, options(dir))
	if _, err := StartPostgres(t.Context(), options(dir)); !errors.Is(err, ErrInUse) {
		t.Errorf("second start: %v, want ErrInUse", err)
	}
	query[int](t, p.URL(), "SELECT 1") // the first is unharmed
	if err := Discard(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("discard under a server: %v, want ErrInUse", err)
	}
}

func TestServerThatEndsByItselfSaysWhy(t *testing.T) {
	t.Parallel()
	dir := withCluster(t, folder(t))
	p, err := StartPostgres(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.server.cmd.Process.Pid, syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	case <-time.After(deadline):
		t.Fatal("the server is gone and not done")
	}
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "immediate shutdown") {
		t.Errorf("stop after it: %v, want the end of the server's log", err)
	}
	start(t, options(dir))
}

func TestStopUnderConnectionsAndWithoutTime(t *testing.T) {
	t.Parallel()
	p, err := StartPostgres(t.Context(), options(withCluster(t, folder(t))))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	// Orderly or in a hurry, whichever the server got to first: it is gone.
	_ = p.Stop(over)
	select {
	case <-p.Done():
	default:
		t.Error("the server outlives Stop")
	}
}

func TestUnfitDirectoriesAreRefusedUntouched(t *testing.T) {
	t.Parallel()
	long := "/tmp/" + strings.Repeat("d", 90)
	tests := []struct {
		name  string
		dir   string // empty: a new one
		files map[string]string
		want  []string
	}{
		{"older cluster", "", map[string]string{"data/PG_VERSION": "9.6\n", "data/base/1": "x"},
			[]string{"made by PostgreSQL 9,", "are version ", "--postgres-bin", "pg_upgrade", "--fresh"}},
		{"newer cluster", "", map[string]string{"data/PG_VERSION": "99\n"}, []string{"made by PostgreSQL 99,", "install PostgreSQL 99"}},
		{"damaged version", "", map[string]string{"data/PG_VERSION": "?\n"}, []string{"PG_VERSION", "no version"}},
		{"no cluster", "", map[string]string{"data/photo": "x"}, []string{"no PG_VERSION", "move it away"}},
		{"socket path too long", long, nil, []string{"path of 111 bytes, the kernel takes 107", "shorter directory"}},
		{"no directory", " ", nil, []string{"needs a directory"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := strings.TrimSpace(tt.dir)
			if tt.dir == "" {
				dir = folder(t)
			}
			for name, text := range tt.files {
				write(t, filepath.Join(dir, name), text)
			}
			_, err := StartPostgres(t.Context(), options(dir))
			for _, w := range tt.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("start: %v, want %q in it", err, w)
				}
			}
			for name, text := range tt.files {
				if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != text {
					t.Errorf("%s holds %q (%v) after the refusal", name, got, err)
				}
			}
		})
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	dir := folder(t)
	go func() {
		defer cancel()
		for ctx.Err() == nil {
			if made, _ := filepath.Glob(filepath.Join(dir, newPrefix+".*", "PG_VERSION")); len(made) > 0 {
				return
			}
			_ = pause(ctx)
		}
	}()
	if _, err := StartPostgres(ctx, options(dir)); !errors.Is(err, context.Canceled) {
		t.Fatalf("start: %v, want it canceled in initdb", err)
	}
	if _, err := os.Stat(filepath.Join(dir, dataName)); err == nil {
		t.Error("a half-made cluster has its final name")
	}
	start(t, options(dir))
}

// A number in a lock file proves nothing: after a reboot any process has it.
func TestStaleLockFilesThatNameAStranger(t *testing.T) {
	t.Parallel()
	dir := withCluster(t, folder(t))
	as, err := serverAccount("", filepath.Join(dir, dataName))
	if err != nil {
		t.Fatal(err)
	}
	// PostgreSQL takes only a process of its own user for a live owner.
	stranger := exec.Command("sleep", "600")
	stranger.SysProcAttr = childAttributes(as, syscall.SIGKILL)
	c, err := startChild(stranger, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(context.Background(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	pid := stranger.Process.Pid
	write(t, filepath.Join(dir, dataName, "postmaster.pid"),
		fmt.Sprintf("%d\n%s\n1\n5432\n%s\n\n", pid, filepath.Join(dir, dataName), filepath.Join(dir, socketName)))
	write(t, filepath.Join(dir, socketName, ".s.PGSQL.5432.lock"),
		fmt.Sprintf("%d\n%s\n1\n5432\n%s\n", pid, filepath.Join(dir, dataName), filepath.Join(dir, socketName)))
	start(t, options(dir))
	select {
	case <-c.done:
		t.Error("the stranger was ended")
	default:
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
