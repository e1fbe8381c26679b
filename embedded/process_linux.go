package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const supported = true

// flock takes an exclusive lock on f without waiting; ErrInUse when it is held.
func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	return err
}

// funlock gives the lock on f back. Closing f would not do while a child that
// another goroutine is forking still has a copy of it.
func funlock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
}

// childAttributes makes a child that gets atParentDeath when this process
// dies. It has a process group of its own: Ctrl-C at the terminal must reach
// the owner, which ends the server in order, and not the server first.
func childAttributes(as *account, atParentDeath syscall.Signal) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Pdeathsig: atParentDeath, Setpgid: true}
	if as != nil {
		a.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return a
}

// owner returns the user and group that own a file.
func owner(info os.FileInfo) (uid, gid uint32, known bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return st.Uid, st.Gid, true
}

// workingIn lists the processes named postgres whose working directory is dir:
// a postmaster's and each of its backends' is the data directory. sure is
// false when some process of that name hides its directory, as it does from a
// container's root that has no CAP_SYS_PTRACE. A zombie has no directory and
// is not listed.
func workingIn(dir string) (pids []int, sure bool, err error) {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, false, fmt.Errorf("list processes: %w", err)
	}
	sure = true
	for _, p := range all {
		comm, err := os.ReadFile(p + "/comm")
		if err != nil || strings.TrimSpace(string(comm)) != "postgres" {
			continue
		}
		cwd, err := os.Readlink(p + "/cwd")
		switch {
		case errors.Is(err, os.ErrPermission):
			sure = false
		case err == nil && cwd == dir:
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids, sure, nil
}
