package sources

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// Options bound every call that an adapter makes over HTTP. Zero values take
// the defaults of WithDefaults.
type Options struct {
	ConnectTimeout time.Duration // to a connection, default 10 s
	TLSTimeout     time.Duration // the TLS handshake, default 10 s
	HeaderTimeout  time.Duration // from the request to the answer's header, default 30 s
	TotalTimeout   time.Duration // one call with its waiting, its retries and its body, default 60 s
	BodyLimit      int64         // bytes of one answer after decompression, default 64 MiB

	InFlight int // calls at a time per endpoint, default 16

	Retries       int           // further tries of a GET or HEAD, default 2, negative none
	BackoffBase   time.Duration // before the first retry, doubled for each further one, default 250 ms
	BackoffCap    time.Duration // the longest of our own waits, default 10 s
	RetryAfterCap time.Duration // the longest wait that we take from Retry-After, default 30 s: a longer one is the caller's to plan

	BreakerFailures int           // failures in a row that open an endpoint's breaker, default 5, negative never
	BreakerCoolDown time.Duration // from open to the probe, default 30 s

	TLS    TLS
	Socket string // path of a unix socket to dial whatever the URL's host says

	// Answered tells, of an answer with status 500 and more, that the system
	// works and judges the request: such an answer is neither retried nor
	// counted by the breaker. The body is its first 64 KiB. Default: 501, 505
	// and 511.
	Answered func(status int, body []byte) bool

	Clock Clock          // default time.Now
	Rand  func() float64 // in [0,1), for jitter; default none: the full wait is taken
	// Wait sleeps for d or until ctx ends; default a timer.
	Wait  func(ctx context.Context, d time.Duration) error
	Meter Meter // default none
}

// TLS says whom the client trusts.
type TLS struct {
	CAFile   string // PEM certificates trusted besides the system's
	Insecure bool   // no verification at all
}

// Meter receives what the transport does, for metrics; its methods are called
// from many goroutines. An endpoint is scheme://host:port.
type Meter interface {
	Call(endpoint, method string, status int, took time.Duration) // one try; status 0 without an answer
	Retry(endpoint string)
	Breaker(endpoint string, open bool)
}

type noMeter struct{}

func (noMeter) Call(string, string, int, time.Duration) {}
func (noMeter) Retry(string)                            {}
func (noMeter) Breaker(string, bool)                    {}

// WithDefaults gives the options with every zero value replaced.
func (o Options) WithDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.TLSTimeout, 10*time.Second)
	def(&o.HeaderTimeout, 30*time.Second)
	def(&o.TotalTimeout, 60*time.Second)
	def(&o.BackoffBase, 250*time.Millisecond)
	def(&o.BackoffCap, 10*time.Second)
	def(&o.RetryAfterCap, 30*time.Second)
	def(&o.BreakerCoolDown, 30*time.Second)
	if o.BodyLimit == 0 {
		o.BodyLimit = 64 << 20
	}
	if o.InFlight <= 0 {
		o.InFlight = 16
	}
	if o.Retries == 0 {
		o.Retries = 2
	}
	if o.BreakerFailures == 0 {
		o.BreakerFailures = 5
	}
	if o.Answered == nil {
		o.Answered = func(status int, _ []byte) bool { return status == 501 || status == 505 || status == 511 }
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Rand == nil {
		o.Rand = func() float64 { return 1 }
	}
	if o.Wait == nil {
		o.Wait = waitTimer
	}
	if o.Meter == nil {
		o.Meter = noMeter{}
	}
	return o
}

func waitTimer(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// NewClient gives an HTTP client that keeps law 4 of the adapters: it also
// serves as the client of a library, such as gophercloud. Redirects to another
// host or scheme are not followed: the caller gets the redirect itself.
//
// A call that an open breaker refuses fails with an *Error of KindOpen; an
// answer beyond the limit with an error that wraps ErrTooLarge.
func NewClient(o Options) (*http.Client, error) {
	o = o.WithDefaults()
	base, err := o.base()
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport:     &transport{options: o, base: base, endpoints: map[string]*endpoint{}},
		CheckRedirect: sameHost,
		Timeout:       o.TotalTimeout,
	}, nil
}

// sameHost follows up to three redirects of a GET within the endpoint.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > 3 || req.URL.Scheme != first.Scheme || req.URL.Host != first.Host || via[0].Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	return nil
}

func (o Options) base() (*http.Transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.TLS.Insecure}
	if o.TLS.CAFile != "" {
		pem, err := os.ReadFile(o.TLS.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read the CA file: %s holds no PEM certificate", o.TLS.CAFile)
		}
		config.RootCAs = pool
	}
	dialer := &net.Dialer{Timeout: o.ConnectTimeout, KeepAlive: 30 * time.Second}
	dial := dialer.DialContext
	if o.Socket != "" {
		dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", o.Socket)
		}
	}
	return &http.Transport{
		DialContext:            dial,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    o.TLSTimeout,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		MaxIdleConnsPerHost:    o.InFlight,
		IdleConnTimeout:        90 * time.Second,
	}, nil
}

// transport is the chain retry → breaker → slot → limit over one http.Transport.
type transport struct {
	options Options
	base    *http.Transport

	mu        sync.Mutex
	endpoints map[string]*endpoint
}

type endpoint struct {
	name    string
	slots   chan struct{}
	breaker *breaker
}

func (t *transport) endpoint(req *http.Request) *endpoint {
	name := req.URL.Scheme + "://" + req.URL.Host
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.endpoints[name]
	if e == nil {
		e = &endpoint{
			name:  name,
			slots: make(chan struct{}, t.options.InFlight),
			breaker: &breaker{
				endpoint: name, failures: t.options.BreakerFailures, coolDown: t.options.BreakerCoolDown,
				clock: t.options.Clock, meter: t.options.Meter,
			},
		}
		t.endpoints[name] = e
	}
	return e
}

// CloseIdleConnections lets http.Client.CloseIdleConnections through.
func (t *transport) CloseIdleConnections() { t.base.CloseIdleConnections() }

// try makes one request: through the breaker, in a slot. The slot and the
// breaker's verdict end with the body. faulty: the answer says that the system
// itself failed.
func (t *transport) try(req *http.Request, e *endpoint) (resp *http.Response, faulty bool, err error) {
	select {
	case e.slots <- struct{}{}:
	case <-req.Context().Done():
		return nil, false, fmt.Errorf("wait for one of %d calls in flight to %s to end: %w", cap(e.slots), e.name, req.Context().Err())
	}
	free := func() { <-e.slots }
	done, err := e.breaker.enter()
	if err != nil {
		free()
		return nil, false, err
	}
	start := time.Now()
	resp, err = t.base.RoundTrip(req)
	if err != nil {
		t.options.Meter.Call(e.name, req.Method, 0, time.Since(start))
		done(verdict(err), err.Error())
		free()
		return nil, false, err
	}
	t.options.Meter.Call(e.name, req.Method, resp.StatusCode, time.Since(start))
	b := &body{ReadCloser: resp.Body, left: t.options.BodyLimit, limit: t.options.BodyLimit}
	if resp.StatusCode >= 500 {
		head := b.peek(peekLimit)
		faulty = !t.options.Answered(resp.StatusCode, head)
	}
	why := "HTTP " + resp.Status
	b.ended = func(err error) {
		switch {
		case faulty:
			done(failed, why)
		case err != nil && !errors.Is(err, ErrTooLarge):
			done(verdict(err), "the answer's body: "+err.Error())
		default:
			done(worked, "")
		}
		free()
	}
	resp.Body = b
	if resp.ContentLength > t.options.BodyLimit {
		size := resp.ContentLength
		_ = b.Close()
		return nil, false, fmt.Errorf("%s answers with %d bytes: %w of %d bytes", e.name, size, ErrTooLarge, t.options.BodyLimit)
	}
	return resp, faulty, nil
}

// verdict tells a failure of the endpoint from a caller that gave up.
func verdict(err error) outcome {
	if errors.Is(err, context.Canceled) {
		return unclear
	}
	return failed
}

// certificate reports a refusal of the other's certificate, which a retry
// would meet again.
func certificate(err error) bool {
	var verify *tls.CertificateVerificationError
	return errors.As(err, &verify) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}
