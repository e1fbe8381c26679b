package ironic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// maxPages bounds a listing whatever the server says of further pages.
const maxPages = 10_000

// List gives every node of Ironic.
func (c *Client) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	start := c.clock()
	s, err := c.session(ctx)
	if err != nil {
		return sources.End{}, err
	}
	l := listing{client: c, session: s, refs: map[string]bool{}, markers: map[string]bool{"": true}}
	for at, marker := start, ""; ; at = c.clock() {
		records, next, err := l.page(ctx, marker, at)
		if err != nil {
			return sources.End{}, err
		}
		if len(records) > 0 {
			if err := yield(records); err != nil {
				return sources.End{}, fmt.Errorf("take a page of ironic nodes: %w", err)
			}
		}
		if next == "" {
			break
		}
		marker = next
	}
	if l.most != 0 && l.most != s.most {
		c.forget(s) // the server was upgraded or rolled back
	}
	return sources.End{At: start, Complete: true, Records: len(l.refs), Dropped: l.dropped, Lost: s.lost}, nil
}

// listing is one walk over the pages.
type listing struct {
	client  *Client
	session *session
	refs    map[string]bool // given already
	markers map[string]bool // asked for already
	dropped int
	most    int
}

const listOp = "list ironic nodes"

// page reads the page after a marker; next is the following marker, "" at the end.
func (l *listing) page(ctx context.Context, marker string, at time.Time) (records []sources.Record, next string, err error) {
	c, sc := l.client, l.session.sc
	query := url.Values{"limit": {strconv.Itoa(c.config.PageSize)}}
	if marker != "" {
		query.Set("marker", marker)
	}
	// Ironic wants the commas of fields as they are.
	address := sc.ServiceURL("nodes") + "?fields=" + l.session.fields + "&" + query.Encode()
	body, header, err := c.read(ctx, l.session, address, listOp)
	if sources.KindOf(err) == sources.KindMissing {
		err = &sources.Error{Kind: sources.KindTransient, Op: listOp, Message: "the node at the page's edge was deleted meanwhile", Err: err}
	}
	if err != nil {
		return nil, "", err
	}
	if most, err := minorOf(header.Get(headerMax)); err == nil {
		l.most = most
	}
	page, err := decodePage(body)
	if err != nil {
		return nil, "", err
	}
	for _, element := range page.nodes {
		raw, ok := decodeNode(element)
		if !ok {
			l.dropped++
			continue
		}
		record := c.record(raw, l.session, at)
		if !l.refs[record.Ref] {
			l.refs[record.Ref] = true
			records = append(records, *record)
		}
	}
	if page.next != "" {
		next, err = l.follow(page.next, len(page.nodes))
	}
	return records, next, err
}

// follow takes the next marker from a page's link. A link that would not end
// the walk, or lead away from the endpoint, fails the listing.
func (l *listing) follow(link string, nodes int) (string, error) {
	fault := func(format string, args ...any) (string, error) {
		return "", &sources.Error{Kind: sources.KindTransient, Op: listOp, Message: fmt.Sprintf(format, args...)}
	}
	shown := sources.CleanText(link, 200)
	next, err := url.Parse(link)
	if err != nil {
		return fault("the link to the next page cannot be read: %s", shown)
	}
	own, err := url.Parse(l.session.sc.Endpoint)
	if err != nil {
		return fault("the endpoint cannot be read: %s", err)
	}
	if next.Host != "" && !strings.EqualFold(hostPort(next), hostPort(own)) && !strings.EqualFold(next.Host, own.Host) {
		return fault("the next page is on %s, not on %s: set [api]public_endpoint of Ironic to the address that muster uses", next.Host, own.Host)
	}
	marker := next.Query().Get("marker")
	switch {
	case marker == "" || len(marker) > 256:
		return fault("the link to the next page has no marker: %s", shown)
	case l.markers[marker]:
		return fault("the link to the next page leads to a page that was read already: %s", shown)
	case nodes == 0:
		return fault("an empty page has a next one: %s", shown)
	case len(l.markers) >= maxPages:
		return fault("there are more than %d pages", maxPages)
	}
	l.markers[marker] = true
	return marker, nil
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Hostname() + ":" + port
}

type page struct {
	nodes []json.RawMessage
	next  string
}

// decodePage takes a listing's body apart. What is not a listing, such as an
// error or an HTML page with the status 200, is a failed read.
func decodePage(body []byte) (page, error) {
	var raw struct {
		Nodes json.RawMessage `json:"nodes"`
		Next  json.RawMessage `json:"next"`

		Errors  json.RawMessage `json:"errors"`
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"error_message"`
	}
	err := json.Unmarshal(body, &raw)
	if err != nil || !absent(raw.Errors) || !absent(raw.Error) || !absent(raw.Message) {
		return page{}, foreign(listOp, body)
	}
	var p page
	if !bytes.HasPrefix(raw.Nodes, []byte("[")) || json.Unmarshal(raw.Nodes, &p.nodes) != nil {
		return page{}, foreign(listOp, body)
	}
	if absent(raw.Next) {
		return p, nil
	}
	if err := json.Unmarshal(raw.Next, &p.next); err != nil || p.next == "" {
		return page{}, &sources.Error{Kind: sources.KindTransient, Op: listOp, Message: "the link to the next page is no text", Err: err}
	}
	return p, nil
}
