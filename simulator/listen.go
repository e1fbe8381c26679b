package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// listenAgain listens where the last run did, if that is free, so that what was
// told of this fleet stays true; elsewhere if not.
func listenAgain(ctx context.Context, config *net.ListenConfig, host string, port int) (net.Listener, error) {
	l, err := config.Listen(ctx, "tcp4", net.JoinHostPort(host, strconv.Itoa(port)))
	if port != 0 && errors.Is(err, syscall.EADDRINUSE) {
		l, err = config.Listen(ctx, "tcp4", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", host, err)
	}
	return l, nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// onLoopback makes a socket that hears the loopback alone, whatever address it
// is bound to.
func onLoopback(_, _ string, c syscall.RawConn) error {
	var inner error
	err := c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") })
	return errors.Join(err, inner)
}

// loopbackOnly drops what was not asked of a loopback address: the second lock
// on the same door.
type loopbackOnly struct{ net.Listener }

func (l loopbackOnly) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if at, ok := conn.LocalAddr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
			return conn, nil
		}
		_ = conn.Close()
	}
}
