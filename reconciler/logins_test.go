package reconciler

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// refusing is a client of BMCs of which one has refused its credential.
type refusing struct {
	*script
	mu      sync.Mutex
	allowed []string
	blocked []string
}

func (r *refusing) AllowLogin(address string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.allowed = append(r.allowed, address)
	r.blocked = slices.DeleteFunc(r.blocked, func(b string) bool { return address == "" || b == address })
}

func (r *refusing) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	end, err := r.script.List(ctx, yield)
	r.mu.Lock()
	defer r.mu.Unlock()
	end.Refused = slices.Clone(r.blocked)
	return end, err
}

// Each replica counts refusals by itself: a person's word reaches every one that
// sweeps, once.
func TestALoginThatAPersonAllowsIsTriedByEveryReplica(t *testing.T) {
	w := newWorld(t, polled)
	w.source("file").says(machine("1", "n1", at("192.0.2.1")), machine("2", "n2", at("192.0.2.2")))
	w.sweep("file")
	w.source("bmc").says(bmc("192.0.2.1"), bmc("192.0.2.2"))
	type member struct {
		*Reconciler
		client *refusing
	}
	crew := map[string]member{}
	for _, name := range []string{"a", "b"} {
		client := &refusing{script: w.source("bmc"), blocked: []string{"192.0.2.1", "192.0.2.2"}}
		clients := registry.New(registry.Options{Clock: w.db.Now, Build: func(*fleet.SiteSpec, string) (sources.Source, error) { return client, nil }})
		t.Cleanup(clients.Close)
		crew[name] = member{w.replica(name, func(o *Options) { o.Clients = clients }), client}
	}
	sweep := func(name string, allowed int, refused ...string) {
		t.Helper()
		r := crew[name]
		r.sweep(t.Context(), w.claim(r.Reconciler, "bmc", r.Lease))
		if len(r.client.allowed) != allowed {
			t.Errorf("%s was told %q, want %d", name, r.client.allowed, allowed)
		}
		found, err := store.Findings(t.Context(), w.db, w.site.ID, "bmc", "", "", 10)
		must(t, err)
		var refs []string
		for _, f := range found {
			if f.Kind == fleet.FindingRefused {
				refs = append(refs, f.Ref)
			}
		}
		if !slices.Equal(refs, refused) {
			t.Errorf("after the round of %s %q are refused, want %q", name, refs, refused)
		}
	}
	allow := func(address string) {
		t.Helper()
		must(t, w.db.Tx(t.Context(), func(tx pgx.Tx) error {
			_, err := store.AllowLogins(t.Context(), tx, store.LoginRequest{SiteID: w.site.ID, Source: "bmc", Address: address, Actor: "ada"})
			return err
		}))
	}
	sweep("a", 0, "192.0.2.1", "192.0.2.2")
	allow("192.0.2.1")
	sweep("a", 1, "192.0.2.2")
	sweep("a", 1, "192.0.2.2")
	sweep("b", 1, "192.0.2.2")
	allow("")
	sweep("b", 2)
	sweep("a", 2)
}
