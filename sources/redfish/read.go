package redfish

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
)

// rootPath is where every Redfish service begins.
const rootPath = "/redfish/v1/"

const (
	memberLimit = 128 // of a collection whose members are asked for one by one
	pageLimit   = 8   // of one collection
)

// bmc is one BMC while it is read or acted on, by one goroutine.
type bmc struct {
	*line
	client *Client
	target Target
	login  login

	anonymous bool   // no login goes along: there is none, or it is not risked
	why       error  // of anonymous
	answered  bool   // some answer was had
	accepted  bool   // the login was
	denied    error  // the login is not risked any more
	expand    string // the query that brings members with their collection; "" where it is not served
	services  document
}

func (c *Client) bmc(target Target, l login) *bmc {
	b := &bmc{line: c.line(target.Address), client: c, target: target, login: l}
	switch {
	case !l.usable():
		b.anonymous, b.why = true, l.err
	case c.refusals.blocked(target.Address, l):
		b.anonymous, b.why = true, ErrBlocked
	}
	return b
}

// request makes one request and reads its answer; an error is that none came.
// The first answer may take as long as the BMC may.
func (b *bmc) request(ctx context.Context, path string) (*answer, error) {
	limit := b.client.config.RequestTimeout
	if !b.answered {
		limit = b.client.config.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.base+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("OData-Version", "4.0")
	if !b.anonymous {
		req.SetBasicAuth(b.login.user, b.login.password)
	}
	a := &answer{at: b.client.clock()}
	resp, err := b.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b.answered = true
	a.status, a.header = resp.StatusCode, resp.Header
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	a.doc = parse(a.body)
	return a, nil
}

// get reads one resource that a link names. What may pass by itself is tried
// once more: a cut connection, a resource that is there only after its parent
// was read, one refusal of a login that was accepted before.
func (b *bmc) get(ctx context.Context, uri string) (*answer, error) {
	path, err := b.path(uri)
	if err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		if b.denied != nil {
			return nil, b.denied
		}
		a, err := b.request(ctx, path)
		if err != nil {
			if again || !b.answered || ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
				return nil, err
			}
			continue
		}
		refused := a.refusal(true)
		b.learn(path, refused)
		switch {
		case refused == nil:
			return a, nil
		case again || refused.Status != http.StatusUnauthorized && refused.Status != http.StatusNotFound || refused.Class == ClassCredential && !b.accepted:
			return a, refused
		}
	}
}

// learn counts what an answer says of the login. The service root is open at
// most BMCs and says nothing of it.
func (b *bmc) learn(path string, refused *Refused) {
	switch {
	case b.anonymous:
	case refused == nil && path != rootPath:
		b.accepted = true
		b.client.refusals.accepted(b.target.Address)
	case refused == nil || refused.Class != ClassCredential:
	case refused.Status == http.StatusUnauthorized || !b.accepted: // a resource of its own may be forbidden
		last := b.refusedLogin()
		if last || !b.accepted {
			b.denied = refused
		}
	}
}

// refusedLogin counts a refusal of the login, and reports whether it was the last
// that is risked. If the login came from the store, that may have another by now.
func (b *bmc) refusedLogin() (last bool) {
	b.client.dropOwn(b.target.Name)
	return b.client.refusals.refused(b.target.Address, b.login)
}

// root reads the service root, and from it what the service can do.
func (b *bmc) root(ctx context.Context) error {
	a, err := b.get(ctx, rootPath)
	if err != nil {
		return err
	}
	b.services = a.doc
	features := a.doc.object("ProtocolFeaturesSupported").object("ExpandQuery")
	if own, _ := features.boolean("NoLinks"); own {
		b.expand = "?$expand=.($levels=1)"
	} else if all, _ := features.boolean("ExpandAll"); all {
		b.expand = "?$expand=*($levels=1)"
	}
	return nil
}

// service gives where the root says that a service is, or where it is by rule.
func (b *bmc) service(name string) string {
	if uri := b.services.link(name); uri != "" {
		return uri
	}
	return rootPath + name
}

// listed reads the URIs of a collection's members, without the members.
func (b *bmc) listed(ctx context.Context, uri string) ([]string, error) {
	var uris []string
	err := b.pages(ctx, uri, func(page document) { uris = append(uris, page.links("Members")...) })
	return uris, err
}

func (b *bmc) pages(ctx context.Context, uri string, use func(document)) error {
	seen := map[string]bool{}
	for range pageLimit {
		a, err := b.get(ctx, uri)
		if err != nil {
			return err
		}
		use(a.doc)
		seen[uri] = true
		uri = a.doc.text("Members@odata.nextLink")
		if uri == "" || seen[uri] {
			return nil
		}
	}
	return nil
}

// member is one resource of a collection, or why it could not be read.
type member struct {
	uri string
	doc document
	err error
}

// members reads a collection with its members: by one request where the
// service can, else one by one, up to memberLimit of those that pick wants (nil:
// all).
func (b *bmc) members(ctx context.Context, uri string, pick func(id string) bool) ([]member, error) {
	var found []member
	collect := func(page document) {
		for _, one := range page.objects("Members") {
			at := one.text("@odata.id")
			if name := one.text("Id"); at == "" && name != "" {
				at = strings.TrimRight(uri, "/") + "/" + name
			}
			if at != "" && (pick == nil || pick(id(at))) {
				found = append(found, member{uri: at, doc: one})
			}
		}
	}
	expanded := false
	if b.expand != "" && !strings.Contains(uri, "?") {
		switch err := b.pages(ctx, uri+b.expand, collect); {
		case err == nil:
			expanded = true
		case ClassOf(err) == ClassMissing || ClassOf(err) == ClassCredential || ctx.Err() != nil:
			return nil, err
		default: // it announces what it cannot do, or not in time
			b.expand, found = "", nil
		}
	}
	if !expanded {
		if err := b.pages(ctx, uri, collect); err != nil {
			return nil, err
		}
	}
	asked := 0
	for i := range found {
		if !found[i].doc.only() {
			continue
		}
		if asked++; asked > memberLimit {
			found[i].doc, found[i].err = nil, fmt.Errorf("more than %d members", memberLimit)
			continue
		}
		a, err := b.get(ctx, found[i].uri)
		if err != nil {
			found[i].doc, found[i].err = nil, err
			continue
		}
		found[i].doc = a.doc
	}
	return found, nil
}

// Which of the Systems is the machine, by the ids that vendors give it. HGX
// baseboards and DPUs are Systems of their own beside it.
var (
	hostIDs  = []string{"System_0", "System.Embedded.1", "Self", "system", "1", "Node0"}
	otherIDs = []string{"HGX_*", "*BlueField*", "DPU*"}
)

func isOther(id string) bool {
	return slices.ContainsFunc(otherIDs, func(p string) bool { return fits(p, id) })
}

// ErrNoHost says that a BMC has no System that is surely the machine.
var ErrNoHost = errors.New("which of the BMC's Systems is the machine is not certain: nothing is done")

// host picks the System that is the machine: never by its place in the list.
func (b *bmc) host(systems []string) (string, error) {
	if len(systems) == 1 && !b.isHost() {
		return systems[0], nil
	}
	var left []string
	for _, uri := range systems {
		if !isOther(id(uri)) {
			left = append(left, uri)
		}
	}
	if len(left) == 1 {
		return left[0], nil
	}
	for _, want := range hostIDs {
		for _, uri := range left {
			if id(uri) == want {
				return uri, nil
			}
		}
	}
	names := make([]string, len(systems))
	for i, uri := range systems {
		names[i] = id(uri)
	}
	return "", fmt.Errorf("%w (it has %s)", ErrNoHost, strings.Join(names[:min(len(names), 8)], ", "))
}
