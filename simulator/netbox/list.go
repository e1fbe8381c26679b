package netbox

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

const (
	defaultPage = 50
	maximalPage = 1000
)

// page is which part of a list is asked for.
type page struct {
	limit, offset int
	start         int // of a cursor
	cursor        bool
}

// page reads it as NetBox does: what makes no sense is the default, what is too
// much the most there is.
func (x *exchange) page() (p page, refusal string) {
	p.limit = defaultPage
	if n, err := strconv.Atoi(x.query.Get("limit")); err == nil && n >= 0 {
		p.limit = n
		if n == 0 || n > maximalPage {
			p.limit = maximalPage
		}
	}
	if n, err := strconv.Atoi(x.query.Get("offset")); err == nil && n > 0 {
		p.offset = n
	}
	if x.generation < 46 || !x.query.Has("start") {
		return p, ""
	}
	switch {
	case x.query.Has("offset"):
		return p, "'start' and 'offset' are mutually exclusive."
	case x.query.Has("ordering"):
		return p, "Ordering cannot be specified in conjunction with cursor-based pagination."
	}
	p.cursor = true
	p.start, _ = strconv.Atoi(x.query.Get("start"))
	return p, ""
}

// list answers a list: the objects that fit, in order, a page of them.
func (x *exchange) list(k *kind) {
	p, refusal := x.page()
	if refusal != "" {
		x.send(http.StatusBadRequest, wire.QuoteAll(nil, []string{refusal}))
		return
	}
	var found []*world.Object
	problems := map[string]any{}
	x.world.Read(func(s *world.State) {
		fits := x.filters(s, k, problems)
		if len(problems) > 0 {
			return
		}
		for o := range x.objects(s, k) {
			if fits(o) {
				found = append(found, o)
			}
		}
	})
	if len(problems) > 0 {
		x.send(http.StatusBadRequest, wire.Value(nil, problems))
		return
	}
	count := len(found)
	found, next, previous := x.cut(found, p)
	v := x.view(k, found)
	b := make([]byte, 0, 512+3072*len(found))
	b = append(b, `{"count":`...)
	if p.cursor {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, int64(count), 10)
	}
	b = nullText(append(b, `,"next":`...), next)
	b = nullText(append(b, `,"previous":`...), previous)
	b = append(b, `,"results":[`...)
	shown := x.shown(k)
	for i, o := range found {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.print(b, k, shown, o)
	}
	x.send(http.StatusOK, append(b, "]}"...))
}

// cut orders what was found and takes the page out of it, with the addresses of
// those beside it.
func (x *exchange) cut(found []*world.Object, p page) (list []*world.Object, next, previous string) {
	if p.cursor {
		first, _ := slices.BinarySearchFunc(found, p.start, func(o *world.Object, id int) int { return cmp.Compare(o.ID, id) })
		list = found[first:min(first+p.limit, len(found))]
		if len(list) == p.limit {
			next = x.address("start", list[len(list)-1].ID+1, p.limit)
		}
		return list, next, ""
	}
	order(found, x.query.Get("ordering"))
	first := min(p.offset, len(found))
	list = found[first:min(first+p.limit, len(found))]
	if p.offset+p.limit < len(found) {
		next = x.address("offset", p.offset+p.limit, p.limit)
	}
	if p.offset > 0 {
		previous = x.address("offset", p.offset-p.limit, p.limit)
	}
	return list, next, previous
}

// address is that of another page of the same question.
func (x *exchange) address(marker string, at, limit int) string {
	query := url.Values{}
	for name, values := range x.query {
		query[name] = values
	}
	if x.query.Has("limit") || marker == "offset" {
		query.Set("limit", strconv.Itoa(limit))
	}
	query.Set(marker, strconv.Itoa(at))
	if marker == "offset" && at <= 0 {
		query.Del("offset")
	}
	return x.base() + x.r.URL.Path + "?" + query.Encode()
}

// order sorts by the fields that are asked for, then by name; what NetBox does
// not know, it does not sort by.
func order(list []*world.Object, by string) {
	if by == "id" {
		return // the world keeps them so
	}
	var keys []func(a, b *world.Object) int
	for _, field := range strings.Split(by, ",") {
		name, down := strings.CutPrefix(field, "-")
		compare := comparison(name)
		if compare == nil {
			continue
		}
		if down {
			keys = append(keys, func(a, b *world.Object) int { return compare(b, a) })
		} else {
			keys = append(keys, compare)
		}
	}
	keys = append(keys, comparison("name"), comparison("id"))
	slices.SortStableFunc(list, func(a, b *world.Object) int {
		for _, compare := range keys {
			if c := compare(a, b); c != 0 {
				return c
			}
		}
		return 0
	})
}

func comparison(name string) func(a, b *world.Object) int {
	switch name {
	case "id":
		return func(a, b *world.Object) int { return cmp.Compare(a.ID, b.ID) }
	case "name":
		return func(a, b *world.Object) int { return cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) }
	case "last_updated":
		return func(a, b *world.Object) int { return a.Updated.Compare(b.Updated) }
	case "created":
		return func(a, b *world.Object) int { return a.Created.Compare(b.Created) }
	case "status", "serial", "asset_tag":
		return func(a, b *world.Object) int { return cmp.Compare(a.Text(name), b.Text(name)) }
	case "position":
		return func(a, b *world.Object) int {
			left, _ := number(a.Fields[name])
			right, _ := number(b.Fields[name])
			return cmp.Compare(left, right)
		}
	}
	return nil
}

// shown gives the members that an answer has, before fields= and omit=.
func (x *exchange) shown(k *kind) []member {
	if x.query.Get("brief") != "" && !strings.EqualFold(x.query.Get("brief"), "false") {
		return k.brief
	}
	return k.full
}

// view gathers what an answer about objects is printed from.
func (x *exchange) view(k *kind, list []*world.Object) *view {
	v := &view{
		generation: x.generation, base: x.base(), kinds: x.kinds,
		related: map[string]*world.Object{}, counts: map[string]int{}, briefs: map[string][]byte{}, omit: map[string]bool{},
	}
	x.choose(v)
	x.world.Read(func(s *world.State) {
		for _, other := range x.kinds {
			if other.name == world.KindDevice || other.name == world.KindIP || other.name == world.KindInterface {
				continue
			}
			for key, o := range s.Objects.Of(other.name) {
				v.related[key] = o
			}
		}
		for _, o := range list {
			for field, kind := range map[string]string{"oob_ip": world.KindIP, "primary_ip4": world.KindIP, "device": world.KindDevice, "peer_device": world.KindDevice} {
				if id := o.Int(field); id != 0 {
					if related := s.Object(kind, id); related != nil {
						v.related[related.Key()] = related
					}
				}
			}
		}
		v.customs = customs(s)
		v.count(s, k)
	})
	return v
}

// count counts, for the objects of a kind, how many of others refer to each.
func (v *view) count(s *world.State, k *kind) {
	for _, m := range k.full {
		what, ok := strings.CutSuffix(m.name, "_count")
		if m.form != "count" || !ok && m.name != "tagged_items" {
			continue
		}
		counted := map[string]string{"device": world.KindDevice, "rack": world.KindRack, "site": world.KindSite, "devicetype": world.KindDeviceType}[what]
		if m.name == "tagged_items" {
			counted = world.KindDevice
		}
		seen := map[int]int{}
		for _, o := range s.Objects.Of(counted) {
			if k.name == world.KindTag {
				for _, id := range o.Tags {
					seen[id]++
				}
			}
			for field, kind := range references {
				if kind == k.name {
					seen[o.Int(field)]++
				}
			}
		}
		for id, n := range seen {
			v.counts[world.ObjectKey(k.name, id)+"."+m.name] = n
		}
	}
}

// choose reads which members are wanted: fields= from 4.0 on, omit= from 4.5 on,
// exclude=config_context up to 4.6.
func (x *exchange) choose(v *view) {
	if fields := x.query.Get("fields"); fields != "" && x.generation >= 40 {
		v.only = map[string]bool{}
		for _, name := range strings.Split(fields, ",") {
			v.only[name] = true
		}
	}
	if x.generation >= 45 {
		for _, name := range strings.Split(x.query.Get("omit"), ",") {
			v.omit[name] = true
		}
	}
	if x.generation < 47 && x.query.Get("exclude") == "config_context" {
		v.omit["config_context"] = true
	}
}

// get answers one object.
func (x *exchange) get(k *kind, id int) {
	var o *world.Object
	x.world.Read(func(s *world.State) { o = object(s, k, id) })
	if o == nil {
		x.missing(k)
		return
	}
	x.show(http.StatusOK, k, o, x.shown(k))
}

// show answers with one object and its tag.
func (x *exchange) show(status int, k *kind, o *world.Object, shown []member) {
	v := x.view(k, []*world.Object{o})
	v.uncounted = x.generation < 45 && x.r.Method == http.MethodPatch
	if tag := v.etag(o); tag != "" {
		x.w.Header().Set("ETag", tag)
	}
	x.send(status, v.print(nil, k, shown, o))
}

func (x *exchange) missing(k *kind) { x.detail(http.StatusNotFound, x.noSuch(k)) }

func (f *face) noSuch(k *kind) string {
	if f.generation < 40 {
		return "Not found."
	}
	return fmt.Sprintf("No %s matches the given query.", k.model)
}
