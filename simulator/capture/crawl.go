package capture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
)

// Options are what a crawl is given.
type Options struct {
	User, Password string
	Client         *http.Client // how the BMC is reached; its redirects are not followed

	Timeout   time.Duration // of one request, default 30 s
	Resources int           // how many at most, default 4000
	Body      int64         // bytes of one body at most, default 8 MiB
	Bytes     int64         // of all bodies at most, default 256 MiB
}

// Missed is a resource that is not in the tree, and why.
type Missed struct {
	Path, Why string
}

// Outcome is what a crawl found.
type Outcome struct {
	Tree    Tree
	Missed  []Missed // that could not be had
	Skipped int      // that are never asked for
	Foreign int      // links to other hosts
	Whole   bool     // no bound was met
}

// seeds are where a crawl begins.
var seeds = []string{"/redfish", "/redfish/v1", "/redfish/v1/odata"}

// lostLimit is how many requests in a row may get no answer.
const lostLimit = 5

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Resources <= 0 {
		o.Resources = 4000
	}
	if o.Body <= 0 {
		o.Body = 8 << 20
	}
	if o.Bytes <= 0 {
		o.Bytes = 256 << 20
	}
	return o
}

// Never tells whether a path is never asked for: accounts, sessions, logs,
// certificates, licences, jobs.
func Never(uri string) bool {
	for segment := range strings.SplitSeq(strings.ToLower(uri), "/") {
		for _, word := range []string{"account", "session", "logservice", "certificate", "licens", "licenc"} {
			if strings.Contains(segment, word) {
				return true
			}
		}
		if segment == "jobs" || strings.HasSuffix(segment, "jobservice") || segment == "keyservice" || strings.HasPrefix(segment, "secureboot") {
			return true
		}
	}
	return false
}

// crawler is one crawl.
type crawler struct {
	options Options
	base    *url.URL
	client  *http.Client
	outcome Outcome
	seen    map[string]bool
	queue   []string
	bytes   int64
	lost    int // requests in a row that got no answer
}

// Crawl reads the Redfish service at a URL such as https://10.0.0.5, one request
// at a time, following the links that it gives on the same host. At ctx's
// deadline it gives what it has.
func Crawl(ctx context.Context, target string, o Options) (*Outcome, error) {
	base, err := url.Parse(target)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" || base.User != nil {
		return nil, fmt.Errorf("%q is no address of a BMC: give one such as https://10.0.0.5, without a user", target)
	}
	c := &crawler{options: o.withDefaults(), base: base, seen: map[string]bool{}, outcome: Outcome{Tree: Tree{}, Whole: true}}
	client := *http.DefaultClient
	if o.Client != nil {
		client = *o.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.client = &client
	for _, seed := range seeds {
		c.want(seed)
	}
	for len(c.queue) > 0 {
		if len(c.outcome.Tree) >= c.options.Resources || c.bytes >= c.options.Bytes {
			c.outcome.Whole = false
			break
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		err := c.visit(ctx, next)
		if errors.Is(err, context.DeadlineExceeded) && len(c.outcome.Tree) > 0 {
			c.outcome.Whole = false // what there is, is worth having
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(c.outcome.Tree) == 0 {
		return nil, fmt.Errorf("read the BMC at %s: no answer: %s", base.Host, c.outcome.Missed[0].Why)
	}
	return &c.outcome, nil
}

// want queues what a link names, once.
func (c *crawler) want(uri string) {
	u, err := c.base.Parse(uri)
	if err != nil {
		return
	}
	if u.Host != c.base.Host || u.Scheme != c.base.Scheme {
		c.outcome.Foreign++
		return
	}
	at := path.Clean("/" + u.Path)
	if at != "/redfish" && !strings.HasPrefix(at, "/redfish/") {
		return
	}
	if u.RawQuery != "" {
		at += "?" + u.RawQuery
	}
	if c.seen[at] {
		return
	}
	c.seen[at] = true
	if Never(at) {
		c.outcome.Skipped++
		return
	}
	c.queue = append(c.queue, at)
}

// visit reads one resource. Its error ends the crawl.
func (c *crawler) visit(ctx context.Context, at string) error {
	a, err := c.get(ctx, at)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.outcome.Missed = append(c.outcome.Missed, Missed{at, err.Error()})
		if c.lost++; c.lost >= lostLimit {
			return fmt.Errorf("read the BMC at %s: %d requests in a row got no answer, the last: %w", c.base.Host, lostLimit, err)
		}
		return nil
	}
	c.lost = 0
	if a.Status == http.StatusUnauthorized {
		return fmt.Errorf("read the BMC at %s: it refuses the login at %s: give another user or password; nothing more is tried, so that nobody is locked out", c.base.Host, at)
	}
	c.outcome.Tree[at] = *a
	for _, link := range links(a.Body) {
		c.want(link)
	}
	return nil
}

func (c *crawler) get(ctx context.Context, at string) (*Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	u := *c.base
	u.Path, u.RawQuery, _ = strings.Cut(at, "?")
	if at == "/redfish/v1" {
		u.Path += "/"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("OData-Version", "4.0")
	if c.options.User != "" {
		r.SetBasicAuth(c.options.User, c.options.Password)
	}
	resp, err := c.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // the body was read or is given up
	raw, err := io.ReadAll(io.LimitReader(resp.Body, c.options.Body+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > c.options.Body {
		return nil, errors.New("the body is too long")
	}
	c.bytes += int64(len(raw))
	a := &Answer{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, name := range keptHeaders {
		if value := resp.Header.Get(name); value != "" {
			a.Headers[name] = value
		}
	}
	if body, err := decode(raw); err == nil {
		a.Body = body
	}
	return a, nil
}

// links gives where a body leads: its @odata.id, the action infos, the next
// pages, in an order that is always the same.
func links(body any) (found []string) {
	switch at := body.(type) {
	case map[string]any:
		for name, value := range at {
			if text, ok := value.(string); ok && (name == "@odata.id" || name == "@Redfish.ActionInfo" || strings.HasSuffix(name, "@odata.nextLink")) {
				found = append(found, text)
			}
			found = append(found, links(value)...)
		}
	case []any:
		for i := range at {
			found = append(found, links(at[i])...)
		}
	}
	slices.Sort(found)
	return found
}
