package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	dataName   = "data"     // the cluster, under PostgresOptions.Dir
	socketName = "s"        // the socket's folder: short, for the path's limit
	newPrefix  = "data.new" // a cluster in the making; random suffix
	pollEvery  = 20 * time.Millisecond
)

// cluster is a data directory and who works on it.
type cluster struct {
	dir      string // PostgresOptions.Dir, absolute
	binaries Binaries
	as       *account // nil: this process's own user
	fast     bool     // created without fsync: may be lost when the machine fails
}

func (c *cluster) data() string   { return filepath.Join(c.dir, dataName) }
func (c *cluster) socket() string { return filepath.Join(c.dir, socketName) }

// prepare makes the cluster ready for its postmaster: it waits for earlier
// processes to end, then creates what is missing or refuses what does not fit.
// The caller holds the lock of the directory.
func (c *cluster) prepare(ctx context.Context) error {
	if err := c.clearPrevious(ctx); err != nil {
		return err
	}
	if err := c.clearUnfinished(ctx); err != nil {
		return err
	}
	if err := c.own(c.socket(), 0o700); err != nil {
		return err
	}
	major, err := clusterMajor(c.data())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.create(ctx)
	case err != nil:
		return err
	case major != c.binaries.Major:
		return &MismatchError{Data: c.data(), Have: major, Binaries: c.binaries}
	}
	return nil
}

// MismatchError refuses a cluster that the programs found cannot read.
type MismatchError struct {
	Data     string
	Have     int // major version that made the cluster
	Binaries Binaries
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s was made by PostgreSQL %d, but the programs in %s are version %s: install PostgreSQL %d"+
		" or name its programs with --postgres-bin, convert the data with pg_upgrade, or start afresh with `muster dev --fresh`"+
		" (moves the directory aside, deletes nothing)", e.Data, e.Have, e.Binaries.Dir, e.Binaries.Version, e.Have)
}

// clusterMajor returns the major version that made a cluster; an error that
// wraps fs.ErrNotExist when there is no directory, or an empty one.
func clusterMajor(data string) (int, error) {
	text, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		entries, derr := os.ReadDir(data)
		if derr == nil && len(entries) > 0 {
			return 0, fmt.Errorf("%s holds files but no PG_VERSION, so it is no PostgreSQL cluster: move it away", data)
		}
		return 0, fmt.Errorf("read the cluster's version: %w", err)
	}
	if err != nil {
		return 0, fmt.Errorf("read the cluster's version: %w", err)
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(text)), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		return 0, fmt.Errorf("%s/PG_VERSION holds %q, which is no version: restore it, or move the directory away", data, text)
	}
	return n, nil
}

// create runs initdb under a name of its own and renames the result: an initdb
// that is killed leaves nothing that looks like a cluster, and an orphaned one,
// which clears its directory as it ends, never touches a later one's.
func (c *cluster) create(ctx context.Context) error {
	fresh, err := os.MkdirTemp(c.dir, newPrefix+".")
	if err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	if err := c.own(fresh, 0o700); err != nil {
		return err
	}
	args := []string{"-D", fresh, "-U", superuser, "--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions"}
	if c.fast {
		args = append(args, "--no-sync")
	}
	cmd := exec.Command(filepath.Join(c.binaries.Dir, "initdb"), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), childAttributes(c.as, syscall.SIGKILL)
	init, err := startChild(cmd, nil)
	if err != nil {
		return fmt.Errorf("start initdb: %w", c.explain(err))
	}
	select {
	case <-init.done:
	case <-ctx.Done():
		err := init.stop(ctx, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL)
		return errors.Join(fmt.Errorf("create the cluster with initdb: %w", ctx.Err()), err)
	}
	if init.err != nil {
		return fmt.Errorf("create the cluster with initdb: %w\n%s", c.explain(init.err), init.output.tail())
	}
	if err := os.Rename(fresh, c.data()); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return syncDir(c.dir)
}

// own makes a folder that only the server's user may enter.
func (c *cluster) own(dir string, mode os.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	if c.as == nil {
		return nil
	}
	if err := os.Chown(dir, int(c.as.uid), int(c.as.gid)); err != nil {
		return fmt.Errorf("give %s to the server's user: %w", dir, err)
	}
	return nil
}

// explain adds to a failed start the closed folder that explains it.
func (c *cluster) explain(err error) error {
	for _, path := range []string{c.dir, c.binaries.Dir} {
		if closed := closedFolder(c.as, path); closed != "" {
			return fmt.Errorf("%w: user %s, which PostgreSQL runs as instead of root, may not enter %s, on the way to %s:"+
				" choose another directory, or open that one (chmod o+x)", err, c.as.name, closed, path)
		}
	}
	return err
}

// clearPrevious ends what an earlier owner left running, then drops the lock
// files it left. PostgreSQL by itself takes a lock file for live while any
// process has the number in it: a zombie that nobody has reaped yet or, after
// a reboot or in a new container, a stranger. The caller holds the directory's
// lock, and no postgres works in the data directory: then they are stale.
func (c *cluster) clearPrevious(ctx context.Context) error {
	sure, err := c.endPrevious(ctx)
	if err != nil {
		return err
	}
	if !sure {
		return nil // a process hides from us: PostgreSQL's own, stricter check decides
	}
	stale, err := filepath.Glob(filepath.Join(c.socket(), ".s.PGSQL.*"))
	if err != nil {
		return fmt.Errorf("list stale sockets: %w", err)
	}
	for _, f := range append(stale, filepath.Join(c.data(), "postmaster.pid")) {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop a stale lock file: %w", err)
		}
	}
	return nil
}

// endPrevious asks an earlier postmaster for a fast shutdown and waits until
// no process works in the data directory.
func (c *cluster) endPrevious(ctx context.Context) (sure bool, err error) {
	for asked := false; ; asked = true {
		pids, sure, err := workingIn(c.data())
		if err != nil || len(pids) == 0 {
			return sure, err
		}
		if pid := c.postmaster(); !asked && slices.Contains(pids, pid) {
			if err := interrupt(pid); err != nil {
				return false, fmt.Errorf("end the earlier postgres %d: %w", pid, err)
			}
		}
		if err := pause(ctx); err != nil {
			return false, fmt.Errorf("earlier postgres processes %v still work in %s: end them: %w", pids, c.data(), err)
		}
	}
}

func interrupt(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	if err := p.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// postmaster returns the process that the cluster's lock file names, 0 for none.
func (c *cluster) postmaster() int {
	text, err := os.ReadFile(filepath.Join(c.data(), "postmaster.pid"))
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0
	}
	return pid
}

// clearUnfinished removes what killed runs of initdb left. Such a run's last
// process may still write, so removal is tried until it holds.
func (c *cluster) clearUnfinished(ctx context.Context) error {
	for {
		left, err := filepath.Glob(filepath.Join(c.dir, newPrefix+".*"))
		if err != nil {
			return fmt.Errorf("list unfinished clusters: %w", err)
		}
		var failed error
		for _, d := range left {
			failed = errors.Join(failed, os.RemoveAll(d))
		}
		if failed == nil {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("remove an unfinished cluster: %w", failed)
		}
	}
}

// pause waits for the next look at something that other processes change.
func pause(ctx context.Context) error {
	t := time.NewTimer(pollEvery)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// syncDir makes renames in dir outlive a failure of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
