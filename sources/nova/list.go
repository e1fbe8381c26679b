package nova

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/musterhq/muster/sources"
)

// maxPages bounds a listing whatever the server says of further pages.
const maxPages = 1000

// Filter says which servers are asked for; what is "" is not asked about.
type Filter struct {
	Node    string // uuid of the Ironic node
	Name    string // exactly
	Project string // id
}

func (f Filter) fits(s *Server) bool {
	return (f.Node == "" || strings.EqualFold(s.Node, f.Node)) && (f.Name == "" || s.Name == f.Name) && (f.Project == "" || s.Project == f.Project)
}

const listOp = "list servers of Nova"

// Servers reads the servers of all projects that a filter fits, those that Nova
// has deleted and only remembers left out. A server that cannot be read, or
// whose node is hidden from the account, refuses the whole: it may be one.
func (c *Client) Servers(ctx context.Context, f Filter) ([]Server, error) {
	if f == (Filter{}) {
		return nil, refused(sources.KindRefused, listOp, "it must be said which: by node, name or project")
	}
	query := url.Values{"all_tenants": {"1"}, "limit": {strconv.Itoa(c.config.PageSize)}}
	if f.Node != "" {
		query.Set("node", f.Node)
	}
	if f.Name != "" { // Nova's filter is a pattern: the exact name is told apart here
		query.Set("name", "^"+quoted(f.Name)+"$")
	}
	if f.Project != "" {
		query.Set("project_id", f.Project)
	}
	var found []Server
	seen := map[string]bool{}
	for range maxPages {
		body, err := c.api.Call(ctx, http.MethodGet, listOp, query, "servers", "detail")
		if err != nil {
			return nil, err
		}
		page, next, err := decodePage(body)
		if err != nil {
			return nil, err
		}
		last := ""
		for _, element := range page {
			s, ok := decodeServer(element)
			switch {
			case !ok:
				return nil, refused(sources.KindTransient, listOp, "a server of the answer cannot be read")
			case f.Node != "" && !s.NodeKnown:
				return nil, refused(sources.KindForbidden, listOp, "the node of server %s is hidden: the user needs a role that may see where servers are", s.ID)
			case !seen[s.ID] && !s.Ended() && f.fits(s):
				found = append(found, *s)
			}
			last = s.ID
			if !next || !seen[s.ID] {
				seen[s.ID] = true
				continue
			}
			return nil, refused(sources.KindTransient, listOp, "a page repeats server %s of an earlier one", s.ID)
		}
		if !next {
			return found, nil
		}
		if last == "" {
			return nil, refused(sources.KindTransient, listOp, "an empty page has a next one")
		}
		query.Set("marker", last)
	}
	return nil, refused(sources.KindTransient, listOp, "there are more than %d pages", maxPages)
}

// quoted makes a pattern of a name in which nothing has a meaning: Nova leaves
// patterns to its database, which knows brackets but not every escape.
func quoted(name string) string {
	var b strings.Builder
	for _, r := range name {
		if strings.ContainsRune(`\.+*?()|[]{}^$`, r) {
			b.WriteRune('.')
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// decodePage takes a listing's body apart; next says that another page follows.
func decodePage(body []byte) (servers []json.RawMessage, next bool, err error) {
	var raw struct {
		Servers json.RawMessage `json:"servers"`
		Links   []struct {
			Rel string `json:"rel"`
		} `json:"servers_links"`
	}
	if json.Unmarshal(body, &raw) != nil || json.Unmarshal(raw.Servers, &servers) != nil || servers == nil {
		return nil, false, foreign(listOp, body)
	}
	for _, link := range raw.Links {
		next = next || link.Rel == "next"
	}
	return servers, next, nil
}
