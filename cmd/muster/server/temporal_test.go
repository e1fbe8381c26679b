package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

const patience = 60 * time.Second

// frontend answers as far as a look at Temporal goes.
type frontend struct {
	workflowservice.UnimplementedWorkflowServiceServer
	namespace string
	keys      chan string // what each caller showed
}

func (*frontend) GetSystemInfo(context.Context, *workflowservice.GetSystemInfoRequest) (*workflowservice.GetSystemInfoResponse, error) {
	return &workflowservice.GetSystemInfoResponse{}, nil
}

func (f *frontend) DescribeNamespace(ctx context.Context, r *workflowservice.DescribeNamespaceRequest) (*workflowservice.DescribeNamespaceResponse, error) {
	if f.keys != nil {
		got, _ := metadata.FromIncomingContext(ctx)
		f.keys <- strings.Join(got.Get("authorization"), " ")
	}
	if r.GetNamespace() != f.namespace {
		return nil, serviceerror.ToStatus(serviceerror.NewNamespaceNotFound(r.GetNamespace())).Err()
	}
	return &workflowservice.DescribeNamespaceResponse{}, nil
}

// answer serves f at an address until stop is called.
func answer(t *testing.T, f *frontend, address string, o ...grpc.ServerOption) (at string, stop func()) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(o...)
	workflowservice.RegisterWorkflowServiceServer(s, f)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(listener) // ends with Stop
	}()
	stop = func() { s.Stop(); <-ended }
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

func TestMusterLivesWithATemporalThatComesAndGoes(t *testing.T) {
	t.Parallel()
	f := &frontend{namespace: "muster"}
	address, stop := answer(t, f, "127.0.0.1:0")
	stop() // the address is known, and nobody is there
	c, err := ConnectTemporal(Temporal{Address: address, Namespace: "muster"}, hclog.NewNullLogger())
	if err != nil {
		t.Fatalf("a Temporal that is away hinders the start: %v", err)
	}
	defer c.Close()
	var said strings.Builder
	w, err := newTemporalWatch(c, "muster", hclog.New(&hclog.LoggerOptions{Output: &said}), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w.up.Set(7) // nobody has looked
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); w.run(ctx, 10*time.Millisecond) }()
	shows := func(want float64) {
		t.Helper()
		for began := time.Now(); testutil.ToFloat64(w.up) != want; time.Sleep(time.Millisecond) {
			if time.Since(began) > patience {
				t.Fatalf("the metric never shows %v", want)
			}
		}
	}
	shows(0)
	_, stop = answer(t, f, address)
	shows(1)
	stop()
	shows(0)
	answer(t, f, address)
	shows(1)
	cancel()
	<-ended
	if n := strings.Count(said.String(), "Temporal is away"); n != 2 || strings.Count(said.String(), "Temporal answers") != 2 {
		t.Errorf("it is told:\n%s", said.String())
	}
}

func TestAMissingNamespaceIsNamed(t *testing.T) {
	t.Parallel()
	address, _ := answer(t, &frontend{namespace: "other"}, "127.0.0.1:0")
	c, err := ConnectTemporal(Temporal{Address: address, Namespace: "muster"}, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := newTemporalWatch(c, "muster", hclog.NewNullLogger(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.look(t.Context()); err == nil || !strings.Contains(err.Error(), "no namespace muster") {
		t.Errorf("it says %v", err)
	}
}

// certificate makes a certificate that vouches for itself, and files of it.
func certificate(t *testing.T, dir string) (pair tls.Certificate, cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	body, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: body}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if pair, err = tls.LoadX509KeyPair(cert, key); err != nil {
		t.Fatal(err)
	}
	return pair, cert, key
}

func TestTemporalIsShownACertificateAndTheNewestKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair, cert, key := certificate(t, dir)
	trusted := x509.NewCertPool()
	trusted.AddCert(pair.Leaf)
	f := &frontend{namespace: "muster", keys: make(chan string, 1)}
	address, _ := answer(t, f, "127.0.0.1:0", grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted, MinVersion: tls.VersionTLS12,
	})))
	secret := filepath.Join(dir, "api-key")
	where := Temporal{Address: address, Namespace: "muster", TLS: true, CA: cert, Certificate: cert, Key: key, APIKey: "file:" + secret}
	if _, err := ConnectTemporal(where, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), "temporal.api_key") {
		t.Errorf("a key that is not there: %v", err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secret, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	c, err := ConnectTemporal(where, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, want := range []string{"first", "second"} {
		write(want)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: "muster"})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if got := <-f.keys; got != "Bearer "+want {
			t.Errorf("it was shown %q, not the key %s", got, want)
		}
	}
}

func TestWrongFilesForTemporalAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, cert, key := certificate(t, dir)
	for says, o := range map[string]Temporal{
		"temporal.tls.ca":  {TLS: true, CA: filepath.Join(dir, "none")},
		"no certificate":   {TLS: true, CA: key},
		"temporal.tls.key": {TLS: true, Certificate: cert, Key: cert},
	} {
		o.Address, o.Namespace = "127.0.0.1:1", "muster"
		if _, err := ConnectTemporal(o, hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v does not say %q", o, err, says)
		}
	}
}
