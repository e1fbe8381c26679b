package reconciler

import (
	"context"
	"errors"
	"slices"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// borders are the sites that one NetBox gives devices to. Nil: the source is
// nobody's but the site's own.
type borders struct {
	here    []string              // NetBox's sites that are this one
	others  map[string]fleet.Site // the other sites by NetBox's names for them
	outside map[string]string     // refs of this listing that stand elsewhere → NetBox's site
	strange map[string]int        // NetBox's sites that are nobody's → devices
}

// bordersOf reads who else has devices of the sweep's source.
func (s *sweep) bordersOf(ctx context.Context) (*borders, error) {
	mine := s.site.Spec.NetBox
	if s.lease.Source != "netbox" || s.site.Spec.InventorySource() != "netbox" || mine == nil {
		return nil, nil
	}
	sites, err := store.InstanceSites(ctx, s.DB, mine.Instance)
	if err != nil {
		return nil, err
	}
	b := &borders{here: mine.Sites, others: map[string]fleet.Site{}, outside: map[string]string{}, strange: map[string]int{}}
	for i := range sites {
		if sites[i].ID == s.site.ID {
			continue
		}
		for _, slug := range sites[i].Spec.NetBox.Sites {
			b.others[slug] = sites[i]
		}
	}
	return b, nil
}

// beyond notes a record of a site that is not this one. A record that does not
// say its site is taken for one that was asked for.
func (b *borders) beyond(record *sources.Record) bool {
	if b == nil || record.Netbox == nil {
		return false
	}
	slug := record.Netbox.Site.Value
	if slug == "" || slices.Contains(b.here, slug) {
		return false
	}
	if _, again := b.outside[record.Ref]; again {
		return true
	}
	b.outside[record.Ref] = slug
	if _, ours := b.others[slug]; !ours {
		b.strange[slug]++
	}
	return true
}

// stands gives where a missing thing stands by now, "" where nobody says so.
func (b *borders) stands(ref string, err error) string {
	if b == nil {
		return ""
	}
	var elsewhere *sources.ElsewhereError
	if errors.As(err, &elsewhere) {
		return elsewhere.Site
	}
	return b.outside[ref]
}

// left judges a missing device whose record stands at another site. One of ours
// fetches it with its next listing: until then it is unread here. At any other it
// is gone from here.
func (l *listing) left(ctx context.Context, d *fleet.Joinable, slug string, end sources.End) (fleet.Reading, error) {
	rd := fleet.Reading{Ref: d.Ref, Device: d.Device, At: end.At}
	other, ours := l.borders.others[slug]
	if !ours {
		rd.Gone = true
		return rd, nil
	}
	rd.Moving = true
	return rd, store.RequestSweep(ctx, l.DB, other.ID, l.lease.Source)
}

// arrivals takes those of the new records out that are of devices of the other
// sites of the same NetBox: its ids are its own across all of them.
func (l *listing) arrivals(ctx context.Context) ([]fleet.Reading, error) {
	if l.borders == nil || len(l.borders.others) == 0 || len(l.unknown) == 0 {
		return nil, nil
	}
	var sites []int64
	for _, site := range l.borders.others {
		if !slices.Contains(sites, site.ID) {
			sites = append(sites, site.ID)
		}
	}
	refs := make([]string, len(l.unknown))
	for i := range l.unknown {
		refs[i] = l.unknown[i].Ref
	}
	elsewhere, err := store.RefsAt(ctx, l.DB, sites, l.lease.Source, refs)
	if err != nil {
		return nil, err
	}
	var moves []fleet.Reading
	l.unknown = slices.DeleteFunc(l.unknown, func(record sources.Record) bool {
		e, has := elsewhere[record.Ref]
		if has {
			rd := reading(&record)
			rd.Device, rd.Move = e.Device, true
			moves = append(moves, rd)
		}
		return has
	})
	return moves, nil
}

// noteMoves counts who came, and has those marked that would have come and that
// work holds where they are: they stay, unread.
func (l *listing) noteMoves(ctx context.Context, batch []fleet.Reading, applied *devices.Applied) error {
	l.metrics.concluded.WithLabelValues(l.lease.Source, "moved").Add(float64(len(applied.Moved)))
	if len(applied.Moved) > 0 {
		l.Log.Info("devices moved here from other sites", "site", l.name(), "source", l.lease.Source, "count", len(applied.Moved))
	}
	l.fresh += len(applied.Moved)
	stay := map[int64][]fleet.Reading{}
	for _, h := range applied.Held {
		rd := &batch[h.Index]
		stay[h.SiteID] = append(stay[h.SiteID], fleet.Reading{Ref: rd.Ref, Device: h.Device, At: l.DB.Now(), Moving: true})
		l.find(fleet.FindingMoving, rd.Ref, h.Device, map[string]any{"name": rd.Name, "site": h.Site, "why": devices.ReasonSiteMove})
	}
	for site, readings := range stay {
		if _, err := l.Devices.Apply(ctx, fleet.Batch{SiteID: site, Source: l.lease.Source, Readings: readings}); err != nil {
			return err
		}
	}
	return nil
}

// tellStrangers makes findings of devices that the NetBox has at sites which are
// nobody's: they are counted, and nobody is born. A source that gives its own
// sites alone tells only how many there are.
func (l *listing) tellStrangers(ctx context.Context, end sources.End) error {
	if l.borders == nil {
		return nil
	}
	for slug, n := range l.borders.strange {
		l.find(fleet.FindingUnmappedSite, slug, 0, map[string]any{"devices": n})
	}
	if end.Elsewhere == 0 || len(l.borders.strange) > 0 {
		return nil
	}
	var sites []int64
	for _, site := range l.borders.others {
		sites = append(sites, site.ID)
	}
	ours, err := store.CountRefs(ctx, l.DB, sites, l.lease.Source)
	if err != nil {
		return err
	}
	if n := end.Elsewhere - ours; n > 0 {
		l.find(fleet.FindingUnmappedSite, "", 0, map[string]any{"devices": n})
	}
	return nil
}
