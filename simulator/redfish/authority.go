package redfish

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Authority makes the certificates that the simulated BMCs answer with: one for
// each local address, when it is first asked for. Its own certificate is what
// clients trust.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	leaf *ecdsa.PrivateKey // of all BMCs: keys are dear to make
	now  func() time.Time
	path string

	mu    sync.Mutex
	certs map[netip.Addr]*tls.Certificate
}

const (
	caFile       = "bmc-ca.crt"
	caKeyFile    = "bmc-ca.key"
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour
	certsKept    = 20_000
)

// OpenAuthority reads the authority of a directory, or makes it.
func OpenAuthority(dir string, now func() time.Time) (*Authority, error) {
	a := &Authority{now: now, path: filepath.Join(dir, caFile), certs: map[netip.Addr]*tls.Certificate{}}
	err := a.load(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = a.create(dir)
	}
	if err == nil {
		a.leaf, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		return nil, fmt.Errorf("open the certificate authority of the simulated BMCs: %w", err)
	}
	return a, nil
}

// Path is the file that holds the authority's certificate, in PEM.
func (a *Authority) Path() string { return a.path }

// Pool is what a client of the BMCs trusts.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// TLS is how a listener of the BMCs answers.
func (a *Authority) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: a.certificate, NextProtos: []string{"http/1.1"}}
}

func (a *Authority) load(dir string) error {
	cert, err := readPEM(a.path)
	if err != nil {
		return err
	}
	key, err := readPEM(filepath.Join(dir, caKeyFile))
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(cert); err != nil {
		return fmt.Errorf("%s: %w", a.path, err)
	}
	if a.key, err = x509.ParseECPrivateKey(key); err != nil {
		return fmt.Errorf("%s: %w", caKeyFile, err)
	}
	if a.now().After(a.cert.NotAfter) {
		return fs.ErrNotExist // it has run out: made anew
	}
	return nil
}

func (a *Authority) create(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := serialNumber()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Simulated BMCs"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: a.now().Add(-24 * time.Hour), NotAfter: a.now().Add(caLifetime),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, caKeyFile), "EC PRIVATE KEY", secret, 0o600); err != nil {
		return err
	}
	if err := writePEM(a.path, "CERTIFICATE", der, 0o644); err != nil {
		return err
	}
	a.key = key
	a.cert, err = x509.ParseCertificate(der)
	return err
}

// certificate gives the certificate of the address that a connection came in at.
func (a *Authority) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	at, err := netip.ParseAddrPort(hello.Conn.LocalAddr().String())
	if err != nil {
		return nil, err
	}
	addr := at.Addr().Unmap()
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.certs[addr]; c != nil && a.now().Before(c.Leaf.NotAfter.Add(-time.Hour)) {
		return c, nil
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: addr.String()}, IPAddresses: []net.IP{addr.AsSlice()},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotBefore: a.now().Add(-24 * time.Hour), NotAfter: a.now().Add(leafLifetime),
	}, a.cert, &a.leaf.PublicKey, a.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", addr, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	if len(a.certs) >= certsKept {
		clear(a.certs)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: leaf}
	a.certs[addr] = c
	return c, nil
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
}

func readPEM(path string) ([]byte, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(body)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block: remove it to have it made anew", path)
	}
	return block.Bytes, nil
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode)
}
