package embedded

import (
	"errors"
	"fmt"
	"syscall"
)

// heldPort is a loopback port that no other program is given, and that one told
// its number may still listen at. While none does, connections are refused.
type heldPort struct {
	number     int
	descriptor int // -1 once released
}

// holdPort binds a socket to a port of 127.0.0.1, 0 for any free one, and does
// not listen. It fails with ErrPortTaken when another program listens there.
func holdPort(number int) (*heldPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// Two sockets that both say so may share a port while at most one listens;
	// Go's listeners do.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}})
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("127.0.0.1:%d %w", number, ErrPortTaken)
	}
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, errors.Join(err, syscall.Close(fd))
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return nil, errors.Join(fmt.Errorf("bound to an address of type %T", name), syscall.Close(fd))
	}
	return &heldPort{number: bound.Port, descriptor: fd}, nil
}

// release gives the port up. It may be called again.
func (p *heldPort) release() error {
	if p.descriptor < 0 {
		return nil
	}
	err := syscall.Close(p.descriptor)
	p.descriptor = -1
	return err
}
