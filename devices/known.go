package devices

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Known is what was stored of all devices of a site by one source when a sweep
// began. What a listing repeats of it needs no transaction. One goroutine uses
// it.
type Known struct {
	source  string
	refs    map[string]known // by live ref
	rows    int              // of unretired devices
	scoped  int              // of them, in scope and listed, or told to be not
	horizon store.Horizon
	hasher  hasher
	metrics *metrics
	skipped int
}

// known is what is stored under one live ref.
type known struct {
	hash     [16]byte
	serial   string
	repeated time.Time // the instant of the reading that was not applied; zero: none
	settled  bool      // a reading that repeats it changes nothing
	retired  bool
}

// Look reads what is stored of a site by a source, in one statement. types are
// those of the writers that go by the source first of all.
func (s *Service) Look(ctx context.Context, siteID int64, source string, types uint64) (*Known, error) {
	b := s.policies.Current()
	if b == nil {
		var err error
		if b, err = s.policies.Refresh(ctx); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrPolicyNotLoaded, err)
		}
	}
	site, err := store.SiteByID(ctx, s.db, siteID)
	if err != nil {
		return nil, err
	}
	k := &Known{source: source, refs: map[string]known{}, metrics: s.metrics}
	if k.horizon, err = store.Now(ctx, s.db); err != nil { // before the look: what comes in between counts as later
		return nil, err
	}
	inventory := site.Spec.InventorySource() == source
	err = store.LookAtRefs(ctx, s.db, siteID, source, observationVersion(b, &site), types, func(l *store.Looked) { k.add(l, inventory) })
	if err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Known) add(l *store.Looked, inventory bool) {
	has := func(what store.Look) bool { return l.What&what != 0 }
	retired, troubled, live := has(store.LookRetired), has(store.LookTroubled), !has(store.LookGone) && l.Ref != ""
	if !retired {
		k.rows++
		if has(store.LookInScope) && (live || !troubled) {
			k.scoped++
		}
	}
	if !live {
		return
	}
	k.refs[l.Ref] = known{
		hash: l.Hash, serial: l.Serial, retired: retired,
		settled: has(store.LookCurrent) && !has(store.LookElsewhere) && settled(false, troubled, retired, inventory),
	}
}

// Unchanged tells whether a reading of the sweep says what is stored: then
// Apply would write nothing, whoever else wrote nothing meanwhile. What others
// wrote is told by Overtaken.
func (k *Known) Unchanged(rd *fleet.Reading) bool {
	known, ok := k.refs[rd.Ref]
	if !ok || !known.settled || rd.Device != 0 || rd.Birth || !says(rd) || rd.Undecodable != "" {
		return false
	}
	hash, err := k.hasher.hash(&rd.Facts, k.source)
	if err != nil || !repeats(rd, hash, known.hash, known.serial) {
		return false // Apply says what is wrong
	}
	known.repeated = micros(rd.At)
	k.refs[rd.Ref] = known
	k.skipped++
	return true
}

// Overtaken gives the refs of which somebody else has written another word since
// the look, while the listing brought a later one that was taken to be
// unchanged. The newest word of each is to be read again.
func (k *Known) Overtaken(ctx context.Context, q store.Querier, siteID int64) ([]string, error) {
	k.metrics.readings.WithLabelValues(k.source, "unchanged").Add(float64(k.skipped))
	k.skipped = 0
	written, err := store.RewrittenSince(ctx, q, siteID, k.source, k.horizon)
	if err != nil {
		return nil, err
	}
	var refs []string
	for i := range written {
		w := &written[i]
		known := k.refs[w.Ref]
		if known.repeated.After(w.SeenAt) && (w.Troubled || w.Hash != known.hash) {
			refs = append(refs, w.Ref)
		}
	}
	return refs, nil
}

// Lists tells whether a listing has every live ref of an unretired device.
func (k *Known) Lists(listed map[string]bool) bool {
	for ref, known := range k.refs {
		if !known.retired && !listed[ref] {
			return false
		}
	}
	return true
}

// Rows is how many unretired devices the source has said something of.
func (k *Known) Rows() int { return k.rows }

// InScope is how many unretired devices in scope the source lists, or is known
// not to list.
func (k *Known) InScope() int { return k.scoped }
