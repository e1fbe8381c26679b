package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// ErrTaken says that another program listens on the address.
var ErrTaken = errors.New("is taken by another program: stop that, or listen elsewhere (--listen)")

// Listen takes an address, with TLS where a certificate is given.
func Listen(address, certificate, key string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s %w", address, ErrTaken)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	if certificate == "" {
		return listener, nil
	}
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the server's certificate: %w", err), listener.Close())
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}), nil
}

// URL is where a listener answers, for people of this machine.
func URL(listener net.Listener, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return scheme + "://" + listener.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
