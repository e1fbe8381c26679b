package simulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/simulator/capture"
	"github.com/musterhq/muster/simulator/redfish"
)

// ReplayOptions are what one captured BMC is served with.
type ReplayOptions struct {
	Dir    string // of the certificates
	File   string // what was captured
	Listen string // default 127.0.0.1, any port
	User   string // who may log in, with the password; "": everybody
	Secret string
	Clock  func() time.Time // default time.Now
	Log    hclog.Logger     // default none

	// Ready is told where it answers, and which authority its certificate is of.
	Ready func(url, ca string)
}

// Replay serves a captured BMC over TLS until ctx ends.
func Replay(ctx context.Context, o ReplayOptions) error {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	host, _, err := net.SplitHostPort(o.Listen)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("listen on %q: give an address of the loopback with a port, such as 127.0.0.1:8443", o.Listen)
	}
	tree, err := capture.ReadFile(o.File)
	if err != nil {
		return err
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	authority, err := redfish.OpenAuthority(o.Dir, o.Clock)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", o.Listen)
	if err != nil {
		return fmt.Errorf("listen for the captured BMC: %w", err)
	}
	s := &simulator{Options: Options{Log: o.Log}}
	server := s.server(redfish.Replay(tree, redfish.ReplayOptions{User: o.User, Password: o.Secret, Clock: o.Clock}))
	server.TLSConfig = authority.TLS()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ended(server.ServeTLS(listener, "", "")) })
	group.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if err := server.Shutdown(stopping); err != nil && !errors.Is(err, http.ErrServerClosed) {
			return server.Close()
		}
		return nil
	})
	if o.Ready != nil {
		o.Ready("https://"+listener.Addr().String(), authority.Path())
	}
	return group.Wait()
}
