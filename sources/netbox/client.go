package netbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources"
)

// DefaultPageSize is how many devices are asked for at a time.
const DefaultPageSize = 500

// Config says where a NetBox is, as whom to ask it and which of its sites are
// ours.
type Config struct {
	URL       string   // http(s)://HOST[:PORT][/PATH], with or without /api
	Token     string   // v1, or v2 (nbt_…)
	TokenFile string   // in place of Token; read again whenever it changes
	PageSize  int      // devices in a page, default DefaultPageSize; NetBox may give fewer
	Sites     []string // slugs; at least one
	HTTP      sources.Options
	Told      *Told // what was logged of it already; default nothing
}

// Client is the devices of our sites in one NetBox. It may be used by many
// goroutines.
type Client struct {
	base     *url.URL // without /api
	token    *sources.Token
	pageSize int
	sites    map[string]bool
	http     *http.Client
	clock    sources.Clock
	log      hclog.Logger

	racks atomic.Pointer[rackNames] // as read last; nil not yet

	told *Told
}

// Told is what was logged of one NetBox, so that it is logged again only when
// it changes. It may outlive the clients that it is given to. Its zero value is
// ready; it must not be copied.
type Told struct {
	mu      sync.Mutex
	version string // of the newest answer, such as "4.7"; "" not yet known
	hidden  bool   // no racks are shown
}

// hears takes the version of an answer and reports whether it is another one.
func (t *Told) hears(version string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.version
	t.version = version
	return was != version
}

// hides takes whether the racks are hidden and reports whether that has changed.
func (t *Told) hides(hidden bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.hidden
	t.hidden = hidden
	return was != hidden
}

// New gives a client. Nothing is asked of NetBox yet: it may be down.
func New(c Config, clock sources.Clock, log hclog.Logger) (*Client, error) {
	const op = "configure the NetBox source"
	if clock == nil {
		return nil, errors.New(op + ": a clock is needed")
	}
	base, err := url.Parse(strings.TrimSuffix(strings.TrimRight(c.URL, "/"), "/api"))
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" || base.RawQuery != "" {
		return nil, fmt.Errorf("%s: %q is not http://HOST[:PORT][/PATH] or https://HOST[:PORT][/PATH]", op, c.URL)
	}
	if c.Token == "" && c.TokenFile == "" {
		return nil, errors.New(op + ": a token is needed: NetBox shows nothing without one")
	}
	sites := map[string]bool{}
	for _, slug := range c.Sites {
		sites[slug] = slug != ""
	}
	if len(sites) == 0 || slices.Contains(c.Sites, "") {
		return nil, errors.New(op + ": the slugs of the sites that are ours are needed")
	}
	size := c.PageSize
	if size == 0 {
		size = DefaultPageSize
	}
	if size < 0 {
		return nil, fmt.Errorf("%s: a page of %d devices cannot be asked for", op, size)
	}
	options := c.HTTP
	options.Clock = clock
	if options.BodyLimit == 0 {
		options.BodyLimit = 256 << 20 // 3 to 10 kB a device where `fields` is not known
	}
	client, err := sources.NewClient(options)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if log == nil {
		log = hclog.NewNullLogger()
	}
	told := c.Told
	if told == nil {
		told = &Told{}
	}
	return &Client{
		told: told, base: base, token: &sources.Token{Of: "NetBox", Value: c.Token, File: c.TokenFile}, pageSize: size, sites: sites,
		http: client, clock: clock, log: log.Named("netbox"),
	}, nil
}

// Version gives the API version of the newest answer, such as "4.7"; "" before
// any.
func (c *Client) Version() string {
	c.told.mu.Lock()
	defer c.told.mu.Unlock()
	return c.told.version
}

func (c *Client) heard(h http.Header) {
	if version := sources.CleanText(h.Get("API-Version"), 16); version != "" && c.told.hears(version) {
		c.log.Info("NetBox answers", "url", c.base.String(), "version", version)
	}
}

// Close releases the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

var _ sources.Source = (*Client)(nil)
