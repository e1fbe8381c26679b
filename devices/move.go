package devices

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Locks tells which devices work is under way on: those stay where they are.
type Locks interface {
	// Held gives those of the devices, which the caller has locked, that
	// somebody's work holds.
	Held(ctx context.Context, tx pgx.Tx, devices []int64) (map[int64]bool, error)
}

// noLocks is for a fleet on which nobody works.
type noLocks struct{}

func (noLocks) Held(context.Context, pgx.Tx, []int64) (map[int64]bool, error) { return nil, nil }

// Respect makes the service leave devices where they are while somebody's work
// holds them; call it before the first use.
func (s *Service) Respect(l Locks) { s.locks = l }

// neighbours are the other sites that one NetBox gives devices to, by id.
type neighbours map[int64]string

func (n neighbours) ids() []int64 {
	ids := make([]int64, 0, len(n))
	for id := range n {
		ids = append(ids, id)
	}
	return ids
}

// instance names the NetBox whose ids the refs of the batch are; "" for a source
// whose refs are a site's own.
func (a *application) instance() string {
	if spec := &a.site.Spec; a.isInventory() && a.batch.Source == "netbox" && spec.NetBox != nil {
		return spec.NetBox.Instance
	}
	return ""
}

// lockInstance keeps the other sites of the batch's NetBox from taking what this
// batch takes, and finds them.
func (a *application) lockInstance(ctx context.Context, tx pgx.Tx) error {
	instance := a.instance()
	if instance == "" {
		return nil
	}
	if err := store.LockInstance(ctx, tx, instance); err != nil {
		return err
	}
	sites, err := store.InstanceSites(ctx, tx, instance)
	if err != nil {
		return err
	}
	a.others = neighbours{}
	for i := range sites {
		if sites[i].ID != a.site.ID {
			a.others[sites[i].ID] = sites[i].Spec.Name
		}
	}
	return nil
}

// claimAcross settles what other sites of the same NetBox have: a record that
// would give birth brings the device that has it, and one that would join
// another device is refused.
func (a *application) claimAcross(ctx context.Context, tx pgx.Tx, refs []string) error {
	elsewhere, err := store.RefsAt(ctx, tx, a.others.ids(), a.batch.Source, refs)
	if err != nil {
		return err
	}
	var births, touched []int
	for _, i := range a.births {
		if e, has := elsewhere[a.batch.Readings[i].Ref]; has && !e.Gone {
			a.device[i], a.moves[i] = e.Device, true
			touched = append(touched, i)
			continue
		}
		births = append(births, i)
	}
	for _, i := range a.touched {
		rd := &a.batch.Readings[i]
		if e, has := elsewhere[rd.Ref]; says(rd) && has && !e.Gone && e.Device != a.device[i] {
			a.refuse(i, fmt.Sprintf("a device of site %s has the ref %s: it moves here with the next listing", a.others[e.SiteID], rd.Ref))
			continue
		}
		touched = append(touched, i)
	}
	a.births, a.touched = births, touched
	return nil
}

// move brings a locked device here from another site of the same NetBox, unless
// what is known of it there is newer than the reading, or somebody's work holds
// it. What that site's other sources said of it is dropped, as is its proof.
func (a *application) move(ctx context.Context, tx pgx.Tx, i int, s *subject) (here bool, err error) {
	rd := &a.batch.Readings[i]
	stored := s.stored[a.batch.Source]
	from, near := a.others[s.device.SiteID]
	if !near || stored == nil || stored.Ref != rd.Ref { // another moved it meanwhile
		a.applied.Unknown = append(a.applied.Unknown, i)
		return false, nil
	}
	marks, err := store.Watermarks(ctx, tx, s.device.SiteID)
	if err != nil {
		return false, err
	}
	listed := !stored.RefGone && stored.Trouble.Reason == "" // as far as that site knows
	if !rd.At.After(stored.SeenAt) || listed && rd.At.Before(marks[a.batch.Source].At) {
		a.applied.Ignored++
		return false, nil
	}
	held, err := a.locks.Held(ctx, tx, []int64{s.device.ID})
	if err != nil {
		return false, err
	}
	if held[s.device.ID] {
		a.applied.Held = append(a.applied.Held, HeldMove{Index: i, Device: s.device.ID, SiteID: s.device.SiteID, Site: from})
		return false, nil
	}
	if err := a.bring(s, from); err != nil {
		return false, err
	}
	a.applied.Moved = append(a.applied.Moved, s.device.ID)
	return true, nil
}

// bring makes a device this site's.
func (a *application) bring(s *subject, from string) error {
	for source, stored := range s.stored {
		if source != a.batch.Source && !stored.RefGone {
			if err := s.lose(stored, stored.SeenAt); err != nil {
				return err
			}
		}
		here := *s.stored[source]
		here.SiteID = a.site.ID
		s.keep(&here)
	}
	d := &s.device
	d.SiteID, d.RackID, d.Position = a.site.ID, 0, ""
	d.Proof = fleet.Proof{Source: proofNone}
	s.movedFrom = from
	return nil
}
