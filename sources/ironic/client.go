package ironic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// Client is one Ironic. It is safe for concurrent use and connects when it is
// first used, again whenever the endpoint, the token or the version is lost.
type Client struct {
	config Config
	access keystone.Access
	cap    int // newest version to speak
	http   *http.Client
	clock  sources.Clock
	log    hclog.Logger

	gate    chan struct{} // held while connecting and while the three below are touched
	service *gophercloud.ServiceClient
	current *session

	mu         sync.Mutex
	unmodelled map[string]bool // states already warned of
}

var _ sources.Source = (*Client)(nil)

// session is a connection with a version agreed on; it never changes.
type session struct {
	sc     *gophercloud.ServiceClient
	minor  int
	most   int // the newest that the server had then
	fields string
	lost   []string
}

func (s *session) has(fact string) bool {
	for _, lost := range s.lost {
		if lost == fact {
			return false
		}
	}
	return true
}

// New checks the configuration; it calls nobody.
func New(config Config, clock sources.Clock, log hclog.Logger) (*Client, error) {
	config = config.withDefaults()
	if err := config.check(); err != nil {
		return nil, fmt.Errorf("configure the ironic source: %w", err)
	}
	config.HTTP.Clock = clock
	client, err := sources.NewClient(config.HTTP)
	if err != nil {
		return nil, fmt.Errorf("configure the ironic source: %w", err)
	}
	access := config.access()
	if err := access.Open(config.HTTP); err != nil {
		return nil, fmt.Errorf("configure the ironic source: %w", err)
	}
	c := &Client{
		config: config, access: access, cap: newest, http: client, clock: clock, log: log.Named("ironic"),
		gate: make(chan struct{}, 1), unmodelled: map[string]bool{},
	}
	if config.Version != "" {
		minor, _ := minorOf(config.Version)
		c.cap = min(newest, minor)
	}
	return c, nil
}

// Close releases the connections.
func (c *Client) Close() {
	c.http.CloseIdleConnections()
	c.access.Close()
}

// session gives the agreed connection, making it if there is none.
func (c *Client) session(ctx context.Context) (*session, error) {
	select {
	case c.gate <- struct{}{}:
		defer func() { <-c.gate }()
	case <-ctx.Done():
		return nil, sources.Failure("connect to Ironic", ctx.Err())
	}
	if c.current != nil {
		return c.current, nil
	}
	if c.service == nil {
		service, err := c.connect(ctx)
		if err != nil {
			return nil, err
		}
		c.service = service
	}
	s, err := c.negotiate(ctx, c.service)
	if err != nil {
		// The catalog may name another endpoint by now.
		c.access.Forget(c.service)
		c.service = nil
		return nil, err
	}
	c.current = s
	return s, nil
}

// forget drops a session, so that the next use agrees on a new one.
func (c *Client) forget(s *session) {
	c.gate <- struct{}{}
	defer func() { <-c.gate }()
	if c.current == s {
		c.access.Forget(c.service)
		c.current, c.service = nil, nil
	}
}

// fetch reads one answer to its end.
func (c *Client) fetch(ctx context.Context, sc *gophercloud.ServiceClient, address, op string) ([]byte, http.Header, error) {
	resp, err := sc.Get(ctx, address, nil, &gophercloud.RequestOpts{KeepResponseBody: true, OkCodes: []int{http.StatusOK}})
	if err != nil {
		return nil, nil, c.classify(op, err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, nil, sources.Failure(op, fmt.Errorf("read the answer: %w", err))
	}
	return body, resp.Header, nil
}

// read is fetch within a session, which a lost endpoint or version ends.
func (c *Client) read(ctx context.Context, s *session, address, op string) ([]byte, http.Header, error) {
	body, header, err := c.fetch(ctx, s.sc, address, op)
	if lostSession(err) {
		c.forget(s)
	}
	return body, header, err
}

// Get reads one node by its uuid.
func (c *Client) Get(ctx context.Context, ref string) (*sources.Record, error) {
	o, err := c.observe(ctx, ref)
	if err != nil {
		return nil, err
	}
	return o.record, nil
}

// observation is one node as one answer showed it.
type observation struct {
	record *sources.Record
	facts  *facts.Ironic
	raw    *rawNode
}

func (c *Client) observe(ctx context.Context, ref string) (*observation, error) {
	const op = "read an ironic node"
	o, err := c.fetchNode(ctx, op, ref)
	if err == nil && o.record.Ref != ref {
		return nil, &sources.Error{Kind: sources.KindTransient, Op: op, Message: "asked for " + ref + ", answered with " + o.record.Ref}
	}
	return o, err
}

// fetchNode reads the node that Ironic finds under a uuid or a name.
func (c *Client) fetchNode(ctx context.Context, op, ident string) (*observation, error) {
	if !validRef(ident) {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: fmt.Sprintf("%q is no uuid of a node", sources.CleanText(ident, 64))}
	}
	s, err := c.session(ctx)
	if err != nil {
		return nil, err
	}
	at := c.clock()
	body, _, err := c.read(ctx, s, s.sc.ServiceURL("nodes", url.PathEscape(ident))+"?fields="+s.fields, op)
	if err != nil {
		return nil, keystone.Gone(err)
	}
	raw, ok := decodeNode(body)
	if !ok {
		return nil, foreign(op, body)
	}
	record := c.record(raw, s, at)
	return &observation{record: record, facts: record.Ironic, raw: raw}, nil
}
