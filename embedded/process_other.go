//go:build !linux

package embedded

import (
	"os"
	"syscall"
)

const supported = false

func flock(*os.File) error { return ErrUnsupported }

func funlock(*os.File) error { return ErrUnsupported }

func childAttributes(*account, syscall.Signal) *syscall.SysProcAttr { return nil }

func owner(os.FileInfo) (uid, gid uint32, known bool) { return 0, 0, false }

func workingIn(string) (pids []int, sure bool, err error) { return nil, false, ErrUnsupported }

type heldPort struct{ number int }

func holdPort(int) (*heldPort, error) { return nil, ErrUnsupported }

func (*heldPort) release() error { return nil }
