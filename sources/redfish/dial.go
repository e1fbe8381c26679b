package redfish

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/musterhq/muster/fleet"
)

// errOutside says that an address lies in none of the site's BMC networks.
var errOutside = errors.New("the address is outside the BMC networks of the site: it was not dialled; correct the inventory, or add its network to the site's bmc.networks")

// errForeign says that a BMC named a place on another host.
var errForeign = errors.New("the BMC names a place on another host: it is not followed")

// trust judges the certificates of BMCs.
type trust struct {
	roots        *x509.CertPool // nil: the system's
	named        bool           // authorities were named
	fingerprints map[[sha256.Size]byte]bool
	insecure     bool
}

func newTrust(t TLS) (trust, error) {
	result := trust{insecure: t.Insecure}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return trust{}, fmt.Errorf("read the CA file: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return trust{}, fmt.Errorf("read the CA file: %s holds no PEM certificate", t.CAFile)
		}
		result.roots, result.named = pool, true
	}
	for _, text := range t.Fingerprints {
		raw, err := hex.DecodeString(strings.ReplaceAll(text, ":", ""))
		if err != nil || len(raw) != sha256.Size {
			return trust{}, fmt.Errorf("%q is no SHA-256 fingerprint", text)
		}
		if result.fingerprints == nil {
			result.fingerprints = map[[sha256.Size]byte]bool{}
		}
		result.fingerprints[[sha256.Size]byte(raw)] = true
	}
	return result, nil
}

func (t trust) config() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.roots, InsecureSkipVerify: t.insecure}
	if len(t.fingerprints) > 0 && !t.insecure {
		config.InsecureSkipVerify = true // VerifyConnection does it
		config.VerifyConnection = t.verify
	}
	return config
}

func (t trust) verify(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the BMC shows no certificate")
	}
	leaf := state.PeerCertificates[0]
	print := sha256.Sum256(leaf.Raw)
	if t.fingerprints[print] {
		return nil
	}
	if !t.named {
		return fmt.Errorf("the certificate's fingerprint %s is none of the site's bmc.tls.fingerprints", hex.EncodeToString(print[:]))
	}
	options := x509.VerifyOptions{Roots: t.roots, DNSName: state.ServerName, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := leaf.Verify(options)
	return err
}

// inside is the check of a dialled address, after names were resolved.
func (c *Client) inside(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w (%s)", errOutside, address)
	}
	ip := ap.Addr().Unmap().WithZone("")
	for _, network := range c.networks {
		if network.Contains(ip) {
			return nil
		}
	}
	return fmt.Errorf("%w (%s)", errOutside, ip)
}

// host spells host:port of a target's address for a URL.
func (c *Client) host(address string) string {
	return net.JoinHostPort(fleet.AddressKey(address), strconv.Itoa(c.config.Port))
}

// line is the connection to one BMC, for as long as one thing is done with it:
// one connection, one request at a time, no redirect followed.
type line struct {
	base     string // https://host:port
	http     *http.Client
	carrier  *http.Transport
	requests atomic.Int64
}

func (c *Client) line(address string) *line {
	l := &line{base: "https://" + c.host(address)}
	dialer := &net.Dialer{Timeout: c.config.ConnectTimeout, Control: c.inside, KeepAlive: -1}
	l.carrier = &http.Transport{
		DialContext:            dialer.DialContext,
		TLSClientConfig:        c.trust.config(),
		TLSHandshakeTimeout:    c.config.ConnectTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxConnsPerHost:        1,
		MaxIdleConnsPerHost:    1,
		ReadBufferSize:         4 << 10,
		WriteBufferSize:        4 << 10,
	}
	l.http = &http.Client{
		Transport:     guard{line: l, limit: c.config.BodyLimit},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l
}

func (l *line) close() { l.carrier.CloseIdleConnections() }

// guard lets nothing go to another host, whatever built the request, and
// bounds what is read of an answer.
type guard struct {
	line  *line
	limit int64
}

func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme+"://"+req.URL.Host != g.line.base {
		return nil, errForeign
	}
	g.line.requests.Add(1)
	resp, err := g.line.carrier.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &bounded{ReadCloser: resp.Body, left: g.limit}
	return resp, nil
}

type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errors.New("the answer is beyond the limit of its size")
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// path gives the path and query of a URI that this BMC named, relative or
// absolute; errForeign where it is another host's.
func (l *line) path(uri string) (string, error) {
	parsed, err := url.Parse(strings.TrimSpace(uri))
	if err != nil || uri == "" {
		return "", fmt.Errorf("the BMC names a place that is no URI")
	}
	if parsed.Scheme != "" || parsed.Host != "" {
		host := parsed.Host
		if parsed.Port() == "" && parsed.Scheme == "https" {
			host = net.JoinHostPort(strings.Trim(parsed.Hostname(), "[]"), "443")
		}
		if parsed.Scheme != "" && parsed.Scheme != "https" || !strings.EqualFold("https://"+host, l.base) {
			return "", errForeign
		}
	}
	if !strings.HasPrefix(parsed.Path, "/") || strings.Contains(parsed.Path, "/../") {
		return "", fmt.Errorf("the BMC names a place that is no path of its own")
	}
	path := parsed.EscapedPath()
	if parsed.RawQuery != "" {
		path += "?" + parsed.RawQuery
	}
	return path, nil
}

// neverSent reports a failure that came before the request could reach the BMC.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var handshake *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	return errors.As(err, &handshake) || errors.As(err, &record) || errors.As(err, &alert) ||
		errors.Is(err, errOutside) || errors.Is(err, errForeign)
}
