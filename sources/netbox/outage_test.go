package netbox

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/sources"
)

// behind gives a fake with a fault proxy before it, and a client that reads it
// in small pages and waits for nothing.
func behind(t *testing.T, retries int) (*fake, *faultproxy.Rules, *Client) {
	t.Helper()
	f, rules := newFake(t, 47), &faultproxy.Rules{}
	server := httptest.NewServer(rules.Wrap("netbox", "", f))
	t.Cleanup(server.Close)
	return f, rules, endpoint{url: server.URL, token: "good", site: "site-a"}.connect(t, func(c *Config) {
		c.PageSize = 10
		c.HTTP = sources.Options{Retries: retries, BreakerFailures: -1, HeaderTimeout: 200 * time.Millisecond, Wait: func(context.Context, time.Duration) error { return nil }}
	})
}

// faults are all that the proxy knows, in sizes that a test waits for.
func faults() (all []faultproxy.Rule) {
	for _, kind := range faultproxy.Kinds() {
		all = append(all, faultproxy.Rule{Kind: kind, For: 400 * time.Millisecond})
	}
	for _, code := range []int{429, 500, 502, 404} {
		all = append(all, faultproxy.Rule{Kind: faultproxy.Status, Code: code, For: time.Second})
	}
	return all
}

// faultyWay is an item of the suite: between any NetBox and us.
func faultyWay(t *testing.T, e endpoint) {
	target, err := url.Parse(e.url)
	if err != nil {
		t.Fatal(err)
	}
	rules := &faultproxy.Rules{}
	server := httptest.NewServer(rules.Wrap("netbox", "", &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
		p.Out.Host = p.In.Host // NetBox makes its addresses of it
	}}))
	t.Cleanup(server.Close)
	c := e.connect(t, func(c *Config) { c.URL, c.PageSize = server.URL+target.Path, 15 })
	for _, fault := range faults() {
		fault.Path = "/devices/"
		if _, err := rules.Add(fault); err != nil {
			t.Fatal(err)
		}
		l := listAll(t, c)
		rules.Clear()
		if empty := fault.Kind == faultproxy.Empty; !empty && l.err == nil && len(l.records) != e.devices || l.err != nil && l.end.Complete {
			t.Errorf("%s %d: %d records are taken for all, %v", fault.Kind, fault.Code, len(l.records), l.err)
		}
	}
	if l := listAll(t, c); l.err != nil || len(l.records) != e.devices {
		t.Errorf("afterwards: %d records, %v", len(l.records), l.err)
	}
}

func TestAFaultyWayNeverShortensAListing(t *testing.T) {
	t.Parallel()
	for _, fault := range faults() {
		for _, path := range []string{"/racks/", "/devices/", ""} {
			t.Run(fmt.Sprintf("%s %d at %q", fault.Kind, fault.Code, path), func(t *testing.T) {
				t.Parallel()
				_, rules, c := behind(t, -1)
				whole := listAll(t, c)
				if whole.err != nil || len(whole.records) != 24 {
					t.Fatalf("%d records, %v", len(whole.records), whole.err)
				}
				fault.Path = path
				if _, err := rules.Add(fault); err != nil {
					t.Fatal(err)
				}
				l := listAll(t, c)
				if fault.Kind == faultproxy.Empty && path != "/racks/" {
					// An empty NetBox looks alike: what a listing's end concludes of
					// it is the reconciler's to doubt.
					if l.err != nil || len(l.records) != 0 {
						t.Errorf("%d records, %v", len(l.records), l.err)
					}
					return
				}
				switch {
				case l.err != nil && l.end.Complete:
					t.Errorf("failed and complete: %+v", l.end)
				case l.err == nil && (len(l.records) != 24 || l.end.Records != 24):
					t.Errorf("%d records are taken for all: %+v", len(l.records), l.end)
				}
				for ref, r := range l.records {
					was := whole.records[ref]
					if !r.Netbox.Rack.Known { // it keeps the one that is stored
						r.Netbox.Rack = was.Netbox.Rack
					}
					if !reflect.DeepEqual(r.Netbox, was.Netbox) {
						t.Errorf("device %s is read as %+v, was %+v", ref, r.Netbox, was.Netbox)
					}
				}
				rules.Clear()
				if l := listAll(t, c); l.err != nil || len(l.records) != 24 {
					t.Errorf("afterwards: %d records, %v", len(l.records), l.err)
				}
			})
		}
	}
}

func TestAPassingFaultIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, fault := range []faultproxy.Rule{{Kind: faultproxy.Reset}, {Kind: faultproxy.Status, Code: 503}, {Kind: faultproxy.Status, Code: 429}, {Kind: faultproxy.Stall, For: 400 * time.Millisecond}} {
		t.Run(fmt.Sprint(fault.Kind, fault.Code), func(t *testing.T) {
			t.Parallel()
			_, rules, c := behind(t, 2)
			fault.Times = 2
			if _, err := rules.Add(fault); err != nil {
				t.Fatal(err)
			}
			if l := listAll(t, c); l.err != nil || len(l.records) != 24 {
				t.Errorf("%d records, %v", len(l.records), l.err)
			}
		})
	}
}

func TestAFaultyWayNeverMakesAWriteDone(t *testing.T) {
	t.Parallel()
	for _, fault := range faults() {
		for _, method := range []string{"PATCH", "GET"} {
			t.Run(fmt.Sprintf("%s %d of %s", fault.Kind, fault.Code, method), func(t *testing.T) {
				t.Parallel()
				f, rules, c := behind(t, -1)
				if _, err := c.Read(t.Context(), "9"); err != nil {
					t.Fatal(err)
				}
				fault.Method = method
				if _, err := rules.Add(fault); err != nil {
					t.Fatal(err)
				}
				got, err := c.Update(t.Context(), "9", Change{Status: "staged"})
				f.mu.Lock()
				stored := f.devices[9].status
				f.mu.Unlock()
				if err == nil && (stored != "staged" || got.Netbox.Status.Value != "staged") {
					t.Errorf("done, and the device is %s", stored)
				}
				rules.Clear()
				if got, err := c.Update(t.Context(), "9", Change{Status: "staged"}); err != nil || got.Netbox.Status.Value != "staged" {
					t.Errorf("afterwards: %+v %v", got, err)
				}
			})
		}
	}
}
