package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Discard removes the directory of a server that nobody needs any more, with
// its data: for tests, which make servers to throw away. It fails with
// ErrInUse while the server has an owner or still runs, and refuses a
// directory in which StartPostgres never ran.
func Discard(dir string) error {
	path := filepath.Join(dir, "lock")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		// Gone meanwhile, or empty: no harm either way, and RemoveAll is not called.
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("discard a directory without a server's lock: %w", err)
		}
		return nil
	}
	lock, err := acquire(path)
	if err != nil {
		return err
	}
	return errors.Join(discard(dir), release(lock))
}

func discard(dir string) error {
	pids, sure, err := workingIn(filepath.Join(dir, dataName))
	if err != nil {
		return err
	}
	if len(pids) > 0 || !sure {
		return fmt.Errorf("discard %s: its server may still run: %w", dir, ErrInUse)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("discard %s: %w", dir, err)
	}
	return nil
}
