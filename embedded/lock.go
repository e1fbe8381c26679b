package embedded

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// ErrInUse is wrapped by errors about a directory that another process, or
// another part of this one, owns now.
var ErrInUse = errors.New("in use by another process")

// ErrUnsupported is wrapped by every start on a system other than Linux.
var ErrUnsupported = errors.New("embedded servers run on Linux only: give --postgres-url and --temporal-address instead")

// lockAttempts bounds the race with a directory that is moved aside while its
// lock is being taken.
const lockAttempts = 10

// acquire takes the lock at path, or fails with ErrInUse at once. The lock is
// given back by release, and by the kernel when this process ends.
func acquire(path string) (*os.File, error) {
	for range lockAttempts {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open lock: %w", err)
		}
		if err := flock(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if leadsTo(path, f) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("lock %s: the file changes under every attempt: %w", path, ErrInUse)
}

// leadsTo says whether path still names f. Once it names another file, or
// none, a lock on f guards nothing.
func leadsTo(path string, f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(mine, named)
}

// release gives a lock back. It may be called again.
func release(f *os.File) error {
	if err := funlock(f); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, syscall.EBADF) {
		return errors.Join(fmt.Errorf("unlock %s: %w", f.Name(), err), f.Close())
	}
	if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("unlock %s: %w", f.Name(), err)
	}
	return nil
}
