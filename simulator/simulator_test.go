package simulator_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/world"
)

// run runs a simulator of a directory until end is called, which waits for it.
func run(t *testing.T, dir string) (e simulator.Endpoints, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan simulator.Endpoints, 1), make(chan error, 1)
	go func() {
		done <- simulator.Run(ctx, simulator.Options{
			Dir: dir, Shape: world.Shape{Sites: 2, Racks: 1}, Still: true, Ready: func(e simulator.Endpoints) { ready <- e },
		})
	}()
	end = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
		done <- nil
	}
	t.Cleanup(end)
	select {
	case e = <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	return e, end
}

// What is said is true: each BMC answers at its own address with a certificate
// of the authority, the control API to its token, everything from files that
// others cannot read.
func TestItIsReachedAsItSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, _ := run(t, dir)
	said, there, err := simulator.ReadEndpoints(dir)
	if err != nil || !there || said.URL != e.URL || len(said.Sites) != 2 || said.Devices != 74 {
		t.Fatalf("the file says %+v, %v, %v", said, there, err)
	}
	pem, err := os.ReadFile(e.CA)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 10 * time.Second}
	for _, address := range []string{"127.1.1.1", "127.2.1.9"} {
		answer, err := client.Get(fmt.Sprintf("https://%s:%d/redfish/v1/", address, e.BMCPort))
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Errorf("%s answers %s", address, answer.Status)
		}
	}
	c, _, err := simulator.ReadControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	if told, err := control.Dial(c.URL, c.Token).World(t.Context()); err != nil || told.Devices != 74 {
		t.Errorf("the control says %+v, %v", told, err)
	}
	for _, path := range []string{filepath.Join(dir, "control.json"), filepath.Join(dir, "endpoints.json"), e.Secrets.BMC, e.Secrets.NetBox, e.Secrets.Password, e.Secrets.Slurm,
		e.Secrets.Factory, e.Secrets.DHCP, e.Secrets.Credentials, e.Secrets.Topology} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// No address but the loopback's reaches the BMCs, although their socket is bound
// to all.
func TestBMCsAreOnTheLoopbackAlone(t *testing.T) {
	t.Parallel()
	e, _ := run(t, t.TempDir())
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, one := range addresses {
		at, ok := one.(*net.IPNet)
		if !ok || at.IP.IsLoopback() || at.IP.To4() == nil {
			continue
		}
		tried++
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 5 * time.Second}
		if answer, err := client.Get(fmt.Sprintf("https://%s:%d/redfish/v1/", at.IP, e.BMCPort)); err == nil {
			_ = answer.Body.Close()
			t.Errorf("%s answers", at.IP)
		}
	}
	if tried == 0 {
		t.Skip("this machine has no address beside the loopback's")
	}
}

// The next run listens where the last one did; where that is taken, elsewhere.
// One directory has one run at a time and one size.
func TestItIsThereAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, end := run(t, dir)
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := simulator.Run(impatient, simulator.Options{Dir: dir}); err == nil {
		t.Error("two have one directory")
	}
	end()
	second, end := run(t, dir)
	if second.URL != first.URL || second.BMCPort != first.BMCPort {
		t.Errorf("first %s and %d, then %s and %d", first.URL, first.BMCPort, second.URL, second.BMCPort)
	}
	end()
	taken, err := net.Listen("tcp4", strings.TrimPrefix(first.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	third, end := run(t, dir)
	if third.URL == first.URL || third.BMCPort != first.BMCPort {
		t.Errorf("on taken ground it listens at %s and %d", third.URL, third.BMCPort)
	}
	if third.Sites[0].NetBox != third.URL+"/netbox" {
		t.Errorf("NetBox is at %s", third.Sites[0].NetBox)
	}
	end()
	var shape *world.ShapeError
	if err := simulator.Run(t.Context(), simulator.Options{Dir: dir, Shape: world.Shape{Sites: 3}}); !errors.As(err, &shape) {
		t.Errorf("another size: %v", err)
	}
}
