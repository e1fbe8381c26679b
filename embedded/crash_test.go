package embedded

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestStartAfterKill(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		kill func(t *testing.T, owner, server int)
	}{
		{"owner", func(t *testing.T, owner, _ int) { kill(t, owner) }},
		{"owner and server", func(t *testing.T, owner, server int) { kill(t, owner); kill(t, server) }},
		{"server, then owner", func(t *testing.T, owner, server int) { kill(t, server); kill(t, owner) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			withCluster(t, filepath.Join(dir, "p"))
			write(t, filepath.Join(dir, versionsName), `{"muster":1,"schema":1}`)
			owner := startOwner(t, dir, nil, self)
			a := owner.announced(t)
			run(t, a.URL, "CREATE TABLE a AS SELECT 7 AS v")
			if _, err := StartPostgres(t.Context(), options(filepath.Join(dir, "p"))); !errors.Is(err, ErrInUse) {
				t.Fatalf("start beside a living owner: %v, want ErrInUse", err)
			}
			tt.kill(t, owner.cmd.Process.Pid, a.PID)
			_ = owner.cmd.Wait() // its lock is free from here on; the server may be ending
			p := start(t, options(filepath.Join(dir, "p")))
			if v := query[int](t, p.URL(), "SELECT v FROM a"); v != 7 {
				t.Errorf("the committed row holds %d, want 7", v)
			}
		})
	}
}

// A container's root often has no CAP_SYS_PTRACE and cannot see by itself where
// the processes of user postgres work.
func TestRootThatMayNotLookIntoProcessesStartsAfterKill(t *testing.T) {
	t.Parallel()
	asRoot(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	limited := []string{"setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", program}
	if _, err := exec.LookPath(limited[0]); err != nil {
		t.Skip("needs setpriv of util-linux to give a capability up:", err)
	}
	dir := folder(t)
	withCluster(t, filepath.Join(dir, "p"))
	write(t, filepath.Join(dir, versionsName), `{"muster":1,"schema":1}`)
	first := startOwner(t, dir, nil, limited...)
	a := first.announced(t)
	kill(t, first.cmd.Process.Pid)
	kill(t, a.PID)
	_ = first.cmd.Wait()
	// A server of the same user elsewhere must not be taken for ours.
	start(t, options(withCluster(t, folder(t))))
	query[int](t, startOwner(t, dir, nil, limited...).announced(t).URL, "SELECT 1")
}

func TestServerEndsWithItsKilledOwner(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	data := filepath.Join(withCluster(t, filepath.Join(dir, "p")), dataName)
	write(t, filepath.Join(dir, versionsName), `{"muster":1,"schema":1}`)
	owner := startOwner(t, dir, nil, self)
	owner.announced(t)
	if pids, _, err := workingIn(data); err != nil || len(pids) == 0 {
		t.Fatalf("no process works in %s under a running server: %v", data, err)
	}
	kill(t, owner.cmd.Process.Pid)
	eventually(t, "no process works in the data directory", func() bool {
		pids, _, err := workingIn(data)
		return err == nil && len(pids) == 0
	})
}

func TestStartAfterKillInInitdb(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	owner := startOwner(t, dir, nil, self)
	eventually(t, "initdb has begun", func() bool {
		made, _ := filepath.Glob(filepath.Join(dir, "p", newPrefix+".*", "PG_VERSION"))
		return len(made) > 0
	})
	kill(t, owner.cmd.Process.Pid)
	_ = owner.cmd.Wait()
	if _, err := os.Stat(filepath.Join(dir, "p", dataName)); err == nil {
		t.Fatal("initdb was over before the kill: this shows nothing")
	}
	p := start(t, options(filepath.Join(dir, "p")))
	query[int](t, p.URL(), "SELECT 1")
	if left, _ := filepath.Glob(filepath.Join(dir, "p", newPrefix+".*")); len(left) > 0 {
		t.Errorf("what the killed initdb made is still there: %v", left)
	}
}

// A server that somehow outlived its owner is asked to end, and waited for.
func TestOrphanedServerIsEndedFirst(t *testing.T) {
	t.Parallel()
	dir := withCluster(t, folder(t))
	c, err := newCluster(t.Context(), options(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(c.binaries.Dir, "postgres"), "-D", c.data(), "-k", c.socket(), "-p", "5432", "-c", "listen_addresses=")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), childAttributes(c.as, syscall.SIGINT)
	orphan, err := startChild(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := orphan.stop(context.Background(), syscall.SIGQUIT); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the orphan answers", func() bool {
		return strings.Contains(orphan.output.tail(), "ready to accept connections")
	})
	start(t, options(dir))
	select {
	case <-orphan.done:
	default:
		t.Error("two servers work on one cluster")
	}
}
