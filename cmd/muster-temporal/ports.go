package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"

	"go.temporal.io/server/common/primitives"
)

const loopback = "127.0.0.1"

var errTaken = errors.New("is taken by another program: end that, or name another --port")

// ports are what the services listen at. Each is held by a socket that is bound
// and does not listen: no other program is given it, and the server, which
// takes port numbers and not listeners, may still listen there.
type ports struct {
	byService map[primitives.ServiceName]int
	held      []int // descriptors
}

// reservePorts takes the given port for the clients and free ones for the
// server's own use. It waits until ctx ends for a predecessor that still
// listens.
func reservePorts(ctx context.Context, frontend int) (*ports, error) {
	p := &ports{byService: map[primitives.ServiceName]int{}}
	for name, port := range map[primitives.ServiceName]int{
		primitives.FrontendService: frontend, primitives.HistoryService: 0, primitives.MatchingService: 0, primitives.WorkerService: 0,
	} {
		if err := p.reserve(ctx, name, port); err != nil {
			p.release()
			return nil, err
		}
	}
	return p, nil
}

func (p *ports) reserve(ctx context.Context, name primitives.ServiceName, port int) error {
	for {
		descriptor, got, err := bind(port)
		if err == nil {
			p.held = append(p.held, descriptor)
			p.byService[name] = got
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("take port %d: %w", port, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s %w", hostPort(port), errTaken)
		case <-time.After(lockPause):
		}
	}
}

// bind binds a socket to a loopback port, 0 for any.
func bind(port int) (descriptor, got int, err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, err
	}
	// Two sockets that both say so may share a port that neither listens at.
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
	}
	if err != nil {
		return 0, 0, errors.Join(err, syscall.Close(fd))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, 0, errors.Join(err, syscall.Close(fd))
	}
	bound, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return 0, 0, errors.Join(fmt.Errorf("bound to %T", name), syscall.Close(fd))
	}
	return fd, bound.Port, nil
}

func (p *ports) release() {
	for _, fd := range p.held {
		_ = syscall.Close(fd) // nothing was written
	}
	p.held = nil
}

// address is where clients connect.
func (p *ports) address() string { return hostPort(p.byService[primitives.FrontendService]) }

func hostPort(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
