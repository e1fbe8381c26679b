package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
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
// a postmaster's and each of its backends' is the data directory. Only the
// owner of a data directory can work in it. sure is false when such a process
// hides its directory. A zombie has none and is not listed.
func workingIn(dir string) (pids []int, sure bool, err error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for processes in %s: %w", dir, err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, false, fmt.Errorf("look for processes in %s: %w", dir, err)
	}
	all, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, false, fmt.Errorf("list processes: %w", err)
	}
	sure = true
	for _, p := range all {
		comm, err := os.ReadFile(p + "/comm")
		if err != nil || strings.TrimSpace(string(comm)) != "postgres" || !sameOwner(p, info) {
			continue
		}
		cwd, err := os.Readlink(p + "/cwd")
		if errors.Is(err, fs.ErrPermission) {
			cwd, err = readlinkAs(info, p+"/cwd")
		}
		switch {
		case err == nil && cwd == real:
			if pid, err := strconv.Atoi(filepath.Base(p)); err == nil {
				pids = append(pids, pid)
			}
		case errors.Is(err, fs.ErrPermission):
			sure = false
		}
	}
	return pids, sure, nil
}

// sameOwner says whether a process, by its folder in /proc, is of the user who
// owns a file.
func sameOwner(process string, file os.FileInfo) bool {
	info, err := os.Stat(process)
	if err != nil {
		return false
	}
	uid, _, known := owner(info)
	want, _, wanted := owner(file)
	return known && wanted && uid == want
}

// readlinkAs reads a link of /proc as the owner of a file: a container's root
// without CAP_SYS_PTRACE is refused what the process's own user may see. It
// fails with fs.ErrPermission when that user is refused too.
func readlinkAs(file os.FileInfo, link string) (string, error) {
	uid, gid, known := owner(file)
	if !known || os.Geteuid() != 0 {
		return "", fs.ErrPermission
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "readlink", link)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	out, err := cmd.Output()
	if err == nil {
		return strings.TrimSuffix(string(out), "\n"), nil
	}
	if _, gone := os.Stat(filepath.Dir(link)); errors.Is(gone, fs.ErrNotExist) || isZombie(filepath.Dir(link)) {
		return "", fs.ErrNotExist
	}
	return "", fs.ErrPermission
}

// isZombie says whether a process, by its folder in /proc, has ended and waits
// to be reaped.
func isZombie(process string) bool {
	stat, err := os.ReadFile(process + "/stat")
	if err != nil {
		return true
	}
	// The state follows the name, which is in parentheses and may hold any.
	_, after, found := strings.Cut(string(stat), ") ")
	return found && strings.HasPrefix(after, "Z")
}
