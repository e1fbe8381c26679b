package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/musterhq/muster/sources"
)

// maxPages ends a list that never ends.
const maxPages = 20000

// errMoved says that a list changed under its pages: what was read of it may
// lack something.
var errMoved = errors.New("the list changed while it was read")

// walk reads a list page by page. NetBox's own address of the next page is
// followed as it is: the size of a page is NetBox's to choose, at every page.
type walk struct {
	c     *Client
	op    string
	next  string
	pages int
	seen  map[string]bool // addresses
	ids   map[int64]bool
	odd   int // elements without a readable id
	count int // as NetBox says; of the first page
}

func (c *Client) walk(op, below string, query url.Values) *walk {
	return &walk{c: c, op: op, next: c.path(below, query), seen: map[string]bool{}, ids: map[int64]bool{}, count: -1}
}

func (w *walk) more() bool { return w.next != "" }

// page reads the next page and gives the elements that no page has brought
// before. An error other than errMoved is an *sources.Error; after the last page
// errMoved also says that fewer came than NetBox counts.
func (w *walk) page(ctx context.Context) (at time.Time, fresh []json.RawMessage, err error) {
	if w.seen[w.next] {
		return at, nil, w.broken(fmt.Errorf("page %d has been read before", w.pages+1))
	}
	if w.pages >= maxPages {
		return at, nil, w.broken(fmt.Errorf("the list does not end after %d pages", w.pages))
	}
	w.seen[w.next] = true
	w.pages++
	a, fault := w.c.call(ctx, w.op, request{method: "GET", url: w.next})
	if fault != nil {
		return at, nil, fault
	}
	p, err := decodePage(a.body)
	if err != nil {
		return at, nil, w.broken(err)
	}
	for _, element := range p.results {
		var o struct {
			ID json.RawMessage `json:"id"`
		}
		_ = json.Unmarshal(element, &o)
		id, ok := integer(o.ID)
		switch {
		case !ok || id <= 0:
			w.odd++
		case !w.ids[id]:
			w.ids[id] = true
			fresh = append(fresh, element)
		}
	}
	if p.next != "" {
		if err := w.c.onward(p.next); err != nil {
			return at, nil, &sources.Error{Kind: sources.KindRefused, Op: w.op, Message: err.Error(), Err: err}
		}
		if len(p.results) == 0 {
			return at, nil, w.broken(errors.New("an empty page is not the last one"))
		}
	}
	w.next = p.next
	if w.count < 0 {
		w.count = p.count
	}
	if p.count != w.count || w.next == "" && len(w.ids)+w.odd < p.count {
		return a.at, fresh, errMoved
	}
	return a.at, fresh, nil
}

func (w *walk) broken(err error) *sources.Error {
	return &sources.Error{Kind: sources.KindTransient, Op: w.op, Message: err.Error(), Err: err}
}
