package slurm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources"
)

// DefaultVersions are the API versions tried, newest first.
var DefaultVersions = []string{"v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42", "v0.0.41", "v0.0.40", "v0.0.39", "v0.0.38"}

// slowest is how long slurmrestd itself waits for a silent controller before
// it answers; a client that gives up earlier never learns which of them fails.
const slowest = 10 * time.Second

// Config says where a cluster's slurmrestd is and as whom to ask it.
type Config struct {
	URL       string   // http://host:port, https://host:port or unix:/path
	User      string   // sent with the token; default root
	Token     string   // a JWT; empty on a socket that needs none
	TokenFile string   // read again whenever it changes; also the output of `scontrol token`
	Versions  []string // API versions to try, newest first; default DefaultVersions
	// NodeConf is what a dynamic node is created with besides its name, as in
	// slurm.conf; default State=CLOUD.
	NodeConf string

	// Transport bounds the calls. Header and total time-outs stay above 10 s.
	Transport sources.Options
	Meter     Meter // default none
}

// Meter counts what nodes gave that could not be used, for metrics.
type Meter interface {
	Unmodelled(node, token string) // a state token that muster does not know
	DecodeFailed(fact string)      // one field of one node
}

type noMeter struct{}

func (noMeter) Unmodelled(string, string) {}
func (noMeter) DecodeFailed(string)       {}

// Client is one cluster. It may be used by many goroutines.
type Client struct {
	base     string // scheme://host of every request
	user     string
	token    *sources.Token
	versions []string
	nodeConf string
	http     *http.Client
	wait     func(context.Context, time.Duration) error
	clock    sources.Clock
	log      hclog.Logger
	meter    Meter

	deciding chan struct{} // holds the right to negotiate

	mu      sync.Mutex
	version string            // negotiated, "" not yet
	strange map[string]string // node → its unmodelled tokens, as last warned of
}

// New gives a client. Nothing is asked of the cluster yet: it may be down.
func New(c Config, clock sources.Clock, log hclog.Logger) (*Client, error) {
	const op = "configure the SLURM source"
	if clock == nil {
		return nil, errors.New(op + ": a clock is needed")
	}
	options := c.Transport
	if options.Retries == 0 {
		options.Retries = 1 // slurmrestd has tried the controller for 10 s itself
	}
	if options.BodyLimit == 0 {
		options.BodyLimit = 256 << 20 // 2.5 kB a node
	}
	if options.Answered == nil {
		options.Answered = answered
	}
	options.Clock = clock
	base := strings.TrimRight(c.URL, "/")
	if path, ok := strings.CutPrefix(base, "unix:"); ok {
		options.Socket, base = "/"+strings.TrimLeft(path, "/"), "http://localhost"
	}
	address, err := url.Parse(base)
	if err != nil || address.Host == "" || address.Scheme != "http" && address.Scheme != "https" {
		return nil, fmt.Errorf("%s: %q is not http://HOST:PORT, https://HOST:PORT or unix:/PATH", op, c.URL)
	}
	options = options.WithDefaults()
	if options.HeaderTimeout <= slowest || options.TotalTimeout <= slowest {
		return nil, fmt.Errorf("%s: the time-outs (header %s, total %s) must be above %s, after which slurmrestd tells that its controller is down",
			op, options.HeaderTimeout, options.TotalTimeout, slowest)
	}
	client, err := sources.NewClient(options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	versions := c.Versions
	if len(versions) == 0 {
		versions = DefaultVersions
	}
	for _, v := range versions {
		if versionNumber(v) == 0 {
			return nil, fmt.Errorf("%s: %q is not an API version such as %s", op, v, DefaultVersions[0])
		}
	}
	user, meter := c.User, c.Meter
	if user == "" {
		user = "root"
	}
	if meter == nil {
		meter = noMeter{}
	}
	if log == nil {
		log = hclog.NewNullLogger()
	}
	return &Client{
		base: base, user: user, token: &sources.Token{
			Of: "SLURM", Value: c.Token, File: c.TokenFile,
			Prefix: "SLURM_JWT=", Hint: ": write the output of `scontrol token` into it",
		}, versions: versions, nodeConf: first(c.NodeConf, "State=CLOUD"),
		http: client, wait: options.Wait, clock: clock, log: log.Named("slurm"), meter: meter,
		deciding: make(chan struct{}, 1), strange: map[string]string{},
	}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

var _ sources.Source = (*Client)(nil)
