package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// round is what all devices of one site are judged by in one transaction. One
// goroutine uses it.
type round struct {
	*model
	site      fleet.Site
	siteFacts facts.Site
	fresh     *fleet.Freshness
	marks     map[string]fleet.Watermark
	cause     fleet.Cause
	now       time.Time
	version   string // observation version
	rackNames map[int64]string
	rackIDs   map[string]int64
	seen      []observation // by writer; reused from device to device
	events    map[string]int
	ordered   bool // the transaction writes the status itself: the ladder follows at the next look
}

func newRound(m *model, site fleet.Site, marks map[string]fleet.Watermark, cause fleet.Cause, now time.Time) *round {
	ttl := ttls(Paces(m.bundle, &site.Spec))
	return &round{
		model: m, site: site, siteFacts: site.Spec.Facts(), marks: marks, cause: cause, now: now,
		fresh:     fleet.NewFreshness(&site.Spec, marks, ttl, m.policies, now),
		version:   observationVersion(m.bundle, &site),
		rackNames: map[int64]string{}, rackIDs: map[string]int64{},
		seen: make([]observation, len(m.writers)), events: map[string]int{},
	}
}

// observationVersion names the rules under which conditions are emitted, the
// schema of this build among them: a device that has another one is observed
// again.
func observationVersion(b *engine.Bundle, site *fleet.Site) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d %d", b.Schema(), b.Version(), engine.Semantics, site.ID, site.Revision))
	return hex.EncodeToString(sum[:12])
}

// inventoryReads tells whether the site's inventory source fills the family.
func (r *round) inventoryReads(family string) bool {
	source := r.site.Spec.InventorySource()
	return source == family || source == "file" && family == "netbox"
}

// context is what derived facts are computed against.
func (r *round) context(d *fleet.Device) facts.Context {
	return r.site.Spec.Context(d.Proof, r.now, r.limits.OverdueAfter)
}

// complete fills in what is known of a device beside its sources, and gives the
// instant at which a fact of time next changes.
func (r *round) complete(s *subject) time.Time {
	s.facts.Device = s.device.Facts(r.rackNames[s.device.RackID])
	s.facts.Site = r.siteFacts
	c := r.context(&s.device)
	next := facts.Complete(&s.facts, &c)
	s.facts.Intern(&s.codes)
	return next
}

// age gathers what the age of a device's conditions is judged by.
func (s *subject) age(m *model) *fleet.DeviceAge {
	a := &fleet.DeviceAge{Seen: map[string]time.Time{}}
	for source, stored := range s.stored {
		a.Seen[source] = stored.SeenAt
	}
	for name, w := range s.writers {
		if name == inventoryWriter || len(w.Unread) == 0 {
			continue
		}
		if a.Unread == nil {
			a.Unread = map[string]fleet.Unread{}
		}
		for t, u := range w.Unread {
			a.Unread[t] = u
		}
	}
	for _, p := range m.policies {
		if s.device.Posted>>p.Bit&1 == 0 {
			continue
		}
		if a.Posted == nil {
			a.Posted = map[string]time.Time{}
		}
		a.Posted[p.Name] = s.conditions[p.Name].ObservedAt
	}
	return a
}

// reads tells whether a writer reads a source.
func reads(w *engine.Writer, source string) bool { return slices.Contains(w.Sources, source) }
