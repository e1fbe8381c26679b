package slurm

import (
	"errors"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func controllerDown(t *testing.T, p peer) {
	c := connect(t, p, nil)
	if l := listAll(t, c); l.err != nil {
		t.Fatal(l.err)
	}
	p.controller(t, false)
	l := listAll(t, c)
	if sources.KindOf(l.err) != sources.KindTransient || l.end.Complete || len(l.records) > 0 {
		t.Errorf("listing without a controller: %+v", l)
	}
	for _, name := range []string{p.free(), "nosuchnode"} {
		if _, err := c.Get(t.Context(), name); err == nil || errors.Is(err, sources.ErrGone) {
			t.Errorf("reading %s without a controller: %v", name, err)
		}
	}
	fresh := connect(t, p, nil)
	if got, err := fresh.Capabilities(t.Context()); err != nil || got.Version != p.version() {
		t.Errorf("negotiating without a controller: %+v %v", got, err)
	}
	p.controller(t, true)
	recovered(t, c, p)
}

func controllerHung(t *testing.T, p peer) {
	c := connect(t, p, nil)
	if l := listAll(t, c); l.err != nil {
		t.Fatal(l.err)
	}
	p.hang(t, true)
	start := time.Now()
	l := listAll(t, c)
	took := time.Since(start)
	p.hang(t, false)
	if sources.KindOf(l.err) != sources.KindTransient || l.end.Complete || took > 30*time.Second {
		t.Errorf("%+v after %s", l, took)
	}
	recovered(t, c, p)
}

// recovered waits until the controller gives its nodes again, and a base state
// that it knows.
func recovered(t *testing.T, c *Client, p peer) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		l, unknown := listAll(t, c), 0
		for _, r := range l.records {
			if r.Slurm.States&(facts.SlurmUnknown|facts.SlurmInvalid) != 0 {
				unknown++
			}
		}
		if l.err == nil && len(l.records) == p.nodes() && unknown == 0 {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the cluster did not come back: %d nodes, %d of them unknown, %v", len(l.records), unknown, l.err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
