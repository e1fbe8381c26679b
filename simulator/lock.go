package simulator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// One process at a time has a directory. One that is just ending is waited for.
const (
	lockName  = "lock"
	lockTries = 100
	lockPause = 100 * time.Millisecond
)

// lock takes the directory until the file is closed, or the process ends.
func lock(ctx context.Context, dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the simulator's directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the simulator's directory: %w", err)
	}
	for range lockTries {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockPause):
		}
	}
	if err == nil {
		return file, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another simulator runs on it: end that one, or give another directory")
	}
	return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), file.Close())
}
