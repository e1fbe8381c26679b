package netbox

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func listsAll(t *testing.T, e endpoint) {
	before := time.Now()
	l := listAll(t, e.connect(t, func(c *Config) { c.PageSize = 7 }))
	if l.err != nil || !l.end.Complete || l.end.Dropped != 0 || len(l.records) != e.devices || l.end.Records != e.devices || l.pages != (e.devices+6)/7 {
		t.Fatalf("%d records in %d pages, %+v, %v", len(l.records), l.pages, l.end, l.err)
	}
	for ref, r := range l.records {
		f := r.Netbox
		if f == nil || len(f.Unreadable) > 0 || f.Listed != facts.True || f.Status.Value == "" || f.Role.Value == "" || f.Site.Value != e.site || !f.Serial.Known ||
			!f.Tenant.Known || !f.Rack.Known || !f.OobIP.Known || f.Tags == nil || f.CustomFields == nil || r.Undecodable != "" || r.Name != f.Name.Value ||
			r.At.Before(before) || r.At.After(time.Now()) || r.At.Before(l.end.At) {
			t.Errorf("%s: %+v %+v", ref, r, f)
		}
	}
}

func filtersSites(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.other} }))
	if l.err != nil || len(l.records) != e.others || l.end.Elsewhere != e.devices {
		t.Errorf("%d records, %+v, %v; want %d and %d elsewhere", len(l.records), l.end, l.err, e.others, e.devices)
	}
}

func severalSites(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites, c.PageSize = []string{e.other, e.site}, 10 }))
	if l.err != nil || len(l.records) != e.devices+e.others || l.end.Elsewhere != 0 {
		t.Errorf("%d records, %+v, %v", len(l.records), l.end, l.err)
	}
}

func unknownSite(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.site, "nosuchsite"} }))
	if sources.KindOf(l.err) != sources.KindRefused || !strings.Contains(l.err.Error(), "nosuchsite") || l.end.Complete {
		t.Errorf("%+v %v", l.end, l.err)
	}
}

func readsOne(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	l := listAll(t, c)
	for _, ref := range []string{l.order[0], l.order[len(l.order)/2], l.order[len(l.order)-1]} {
		// Asked of a client that has listed nothing, too.
		for _, c := range []*Client{c, e.connect(t, nil)} {
			r, err := c.Get(t.Context(), ref)
			if err != nil || r.Ref != ref || r.Serial != l.records[ref].Serial || !reflect.DeepEqual(r.Netbox, l.records[ref].Netbox) {
				t.Errorf("%+v %v, listed as %+v", r, err, l.records[ref])
			}
		}
	}
}

func unknownID(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if r, err := c.Get(t.Context(), "999999999"); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("%+v %v", r, err)
	}
	for _, id := range []string{"", "0", "-1", "007", "1/../2", "?limit=0", "n01"} {
		if _, err := c.Get(t.Context(), id); sources.KindOf(err) != sources.KindRefused || errors.Is(err, sources.ErrGone) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func (e endpoint) foreign(t *testing.T) string {
	t.Helper()
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.other} }))
	if l.err != nil || len(l.order) == 0 {
		t.Fatalf("site %s: %v", e.other, l.err)
	}
	return l.order[len(l.order)-1]
}

func elsewhere(t *testing.T, e endpoint) {
	_, err := e.connect(t, nil).Get(t.Context(), e.foreign(t))
	if !errors.Is(err, sources.ErrGone) || !strings.Contains(err.Error(), e.other) {
		t.Errorf("%v", err)
	}
}

func refusedToken(t *testing.T, e endpoint) {
	for _, token := range []string{strings.Repeat("0", 40), "nbt_aaaaaaaaaaaa." + strings.Repeat("0", 40)} {
		c := e.as(t, token)
		l := listAll(t, c)
		if sources.KindOf(l.err) != sources.KindForbidden || !errors.Is(l.err, ErrToken) || l.end.Complete || len(l.records) > 0 || strings.Contains(l.err.Error(), token) {
			t.Errorf("list: %+v", l)
		}
		if _, err := c.Get(t.Context(), "1"); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, sources.ErrGone) {
			t.Errorf("get: %v", err)
		}
	}
}

func noPermission(t *testing.T, e endpoint) {
	c := e.as(t, e.none)
	l := listAll(t, c)
	_, err := c.Get(t.Context(), "1")
	for _, err := range []error{l.err, err} {
		if sources.KindOf(err) != sources.KindForbidden || errors.Is(err, ErrToken) || errors.Is(err, sources.ErrGone) {
			t.Errorf("%v", err)
		}
	}
}

func secondToken(t *testing.T, e endpoint) {
	if l := listAll(t, e.as(t, e.v2)); l.err != nil || len(l.records) != e.devices {
		t.Errorf("%d records, %v", len(l.records), l.err)
	}
}

func renewedToken(t *testing.T, e endpoint) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("0", len(e.token)))
	c := e.connect(t, func(c *Config) { c.Token, c.TokenFile = "", file })
	if l := listAll(t, c); !errors.Is(l.err, ErrToken) {
		t.Fatalf("a wrong token: %v", l.err)
	}
	write(e.token)
	if l := listAll(t, c); l.err != nil {
		t.Errorf("after the renewal: %v", l.err)
	}
}

func notNetBox(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.URL = e.url + "/api/nosuch" })
	if l := listAll(t, c); l.err == nil || l.end.Complete {
		t.Errorf("list: %+v", l)
	}
	if _, err := c.Get(t.Context(), "1"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("get: %v", err)
	}
}

func oddValues(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, nil))
	var nameless, placeholder, noAddress int
	racks := map[string]map[string]bool{} // those of one name
	for _, r := range l.records {
		f := r.Netbox
		if f.Name.Value == "" && f.Name.Known && r.Name == "" {
			nameless++
		}
		if r.Serial == "" && f.Serial.Value == "Not Specified" {
			placeholder++
		}
		if f.OobIP.Value == "" {
			noAddress++
		} else if strings.Contains(f.OobIP.Value, "/") {
			t.Errorf("%s: the address %q has a prefix", r.Ref, f.OobIP.Value)
		}
		if name, which, shared := strings.Cut(f.Rack.Value, " ("); shared {
			if racks[name] == nil {
				racks[name] = map[string]bool{}
			}
			racks[name][which] = true
		}
	}
	if nameless == 0 || placeholder == 0 || noAddress == 0 {
		t.Errorf("%d nameless, %d without a serial, %d without an address of a BMC", nameless, placeholder, noAddress)
	}
	if len(racks) != 1 {
		t.Errorf("racks of one name: %v", racks)
	}
	for _, same := range racks {
		if len(same) != 2 {
			t.Errorf("they are not told apart: %v", racks)
		}
	}
}
