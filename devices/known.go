package devices

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Known is what was stored of all devices of a site by one source when a sweep
// began. What a listing repeats of it needs no transaction. One goroutine uses
// it.
type Known struct {
	source    string
	refs      map[string]known // by live ref
	unretired int
	whole     bool // of each unretired device the source has said something, be it that it is gone
	unlisted  bool // a device in scope has no live ref, and that is not told yet
	horizon   store.Horizon
	hasher    hasher
	metrics   *metrics
	skipped   int
}

// known is what is stored under one live ref.
type known struct {
	hash     [16]byte
	serial   string
	repeated time.Time // the instant of the reading that was not applied; zero: none
	settled  bool      // a reading that repeats it changes nothing
}

// Look reads what is stored of a site by a source. types are those of the
// writers that go by the source first of all.
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
	standing, err := store.LookAtDevices(ctx, s.db, siteID, source, observationVersion(b, &site), types)
	if err != nil {
		return nil, err
	}
	others := make(map[int64]bool, len(standing.Others))
	for _, id := range slices.Concat(standing.Others, standing.Retired) {
		others[id] = true
	}
	told := make(map[int64]bool, standing.Unretired)
	if err := store.LookAtRefs(ctx, s.db, siteID, source, func(l *store.Looked) { k.add(l, others, told) }); err != nil {
		return nil, err
	}
	for _, id := range standing.Retired {
		delete(told, id)
	}
	k.unretired, k.whole = standing.Unretired, len(told) >= standing.Unretired
	for _, id := range standing.InScope {
		k.unlisted = k.unlisted || !told[id]
	}
	return k, nil
}

func (k *Known) add(l *store.Looked, others, told map[int64]bool) {
	live := !l.Gone && l.Ref != ""
	if live || l.Gone && !l.Troubled {
		told[l.Device] = true
	}
	if live {
		k.refs[l.Ref] = known{hash: l.Hash, serial: l.Serial, settled: !l.Troubled && !others[l.Device]}
	}
}

// Unchanged tells whether a reading of the sweep says what is stored: then
// Apply would write nothing, whoever else wrote nothing meanwhile. What others
// wrote is told by Overtaken.
func (k *Known) Unchanged(rd *fleet.Reading) bool {
	known, ok := k.refs[rd.Ref]
	if !ok || !known.settled || rd.Device != 0 || rd.Birth || !says(rd) || rd.Undecodable != "" || rd.Unanswered != "" {
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

// Settles tells whether a listing of exactly these refs leaves nothing to be
// concluded: it has every live ref, of an inventory every device has one or is
// known to be gone, and so has every device in scope.
func (k *Known) Settles(listed map[string]bool, inventory bool) bool {
	if k.unlisted || inventory && !k.whole {
		return false
	}
	for ref := range k.refs {
		if !listed[ref] {
			return false
		}
	}
	return true
}

// Unretired is how many devices of the site are not retired.
func (k *Known) Unretired() int { return k.unretired }
