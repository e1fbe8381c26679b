package reconciler

import (
	"context"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// applyUnlisted says of the devices that a writer speaks of, and that this
// complete listing does not have, that the source does not list them. Of a
// device that an ambiguous record may be nobody can say so: it is unread.
func (l *listing) applyUnlisted(ctx context.Context, joins *fleet.Joins, end sources.End) error {
	if end.Dropped > 0 || l.lease.Source == "bmc" {
		return nil
	}
	unlisted, err := l.unlisted(ctx)
	if err != nil {
		return err
	}
	doubtful := map[int64]bool{}
	for _, u := range joins.Ambiguous {
		for _, d := range u.Devices {
			doubtful[d] = true
		}
	}
	var readings []fleet.Reading
	for _, u := range unlisted {
		switch {
		case doubtful[u.Device]:
			readings = append(readings, fleet.Reading{Device: u.Device, Doubtful: true, At: end.At})
		case !u.Told:
			readings = append(readings, fleet.Reading{Device: u.Device, Gone: true, At: end.At})
		}
	}
	return l.apply(ctx, readings, nil)
}

// unlisted gives the devices that a writer speaks of and the source has no live
// record of. Nobody goes by Placement first of all: it is asked about the nodes
// that Ironic has.
func (l *listing) unlisted(ctx context.Context) ([]store.Unlisted, error) {
	if l.lease.Source == "placement" {
		return store.NodesUnlisted(ctx, l.DB, l.site.ID, l.lease.Source)
	}
	types := l.typesOf(l.lease.Source)
	if types == 0 {
		return nil, nil
	}
	return store.UnlistedInScope(ctx, l.DB, l.site.ID, l.lease.Source, types)
}

// typesOf gives the types of the writers that go by the source first of all:
// what it does not list they say so of.
func (l *listing) typesOf(source string) (types uint64) {
	for _, w := range l.bundle.Writers() {
		if len(w.Sources) > 0 && w.Sources[0] == source {
			types |= w.Types
		}
	}
	return types
}

// applyClasses lets the classes be taken that would take devices out of a scope,
// unless that are too many at once for one sweep: then a person must confirm
// them, and alert says so. all is how many devices the site had before.
func (l *listing) applyClasses(ctx context.Context, all int, end sources.End) (alert string, err error) {
	if !l.isInventory() {
		return "", nil
	}
	held, err := store.HeldClasses(ctx, l.DB, l.site.ID, l.lease.Source, devices.ReasonClassUnconfirmed)
	if err != nil || len(held) == 0 {
		return "", err
	}
	confirmed, err := store.Confirmed(ctx, l.DB, l.site.ID, l.lease.Source)
	if err != nil {
		return "", err
	}
	hash, alert := fleet.JudgeClasses(held, all, l.bundle.Limits().ShrinkShare, confirmed)
	readings := make([]fleet.Reading, 0, len(held))
	for i := range held {
		d := &held[i]
		readings = append(readings, fleet.Reading{Ref: d.Ref, Device: d.Device, At: end.At, Reclassify: true})
		if alert != "" {
			l.find(fleet.FindingClass, d.MissingKey(), d.Device, map[string]any{"name": d.Name, "role": d.Role, "confirm": hash})
		}
	}
	if alert != "" {
		return alert, nil
	}
	return "", l.apply(ctx, readings, nil)
}
