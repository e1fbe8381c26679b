package devices

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// Standing is what age makes of a device at the present instant, computed when
// it is read: nothing of it is stored.
type Standing struct {
	InScope     uint64 // types whose writer has the device in its scope
	Stale       uint64 // of these, the ones that are not fresh: too old, unread or without a row
	PastHold    uint64 // of these, the ones past their hold limit
	StatusFresh bool   // nothing stale has a say in the operational status
	Held        bool   // the status stands although the rung that matches says otherwise
	Frozen      bool   // an overlay keeps the status

	// Reasons says what to show over the value of a stale type, by type: Stale,
	// SchedulerUnreachable, DecodeFailed and so on; "" for one that has no row
	// and was simply never given.
	Reasons map[string]string
	// ObservedAt is the instant of each type of which something is known.
	ObservedAt map[string]time.Time
}

// Standings computes the standing of devices as they were read. Devices of
// other sites may be mixed.
func (s *Service) Standings(ctx context.Context, devices []fleet.Device) (map[int64]Standing, error) {
	bundle := s.policies.Current()
	if bundle == nil {
		return nil, ErrPolicyNotLoaded
	}
	sites := map[int64][]fleet.Device{}
	for _, d := range devices {
		sites[d.SiteID] = append(sites[d.SiteID], d)
	}
	standings := make(map[int64]Standing, len(devices))
	for site, of := range sites {
		r, err := s.round(ctx, s.db, bundle, site, fleet.Cause{})
		if err != nil {
			return nil, fmt.Errorf("judge the age of devices: %w", err)
		}
		ages, err := r.ages(ctx, s.db, of)
		if err != nil {
			return nil, err
		}
		if err := r.addSeen(ctx, s.db, of, ages); err != nil {
			return nil, err
		}
		for i := range of {
			standings[of[i].ID] = r.standing(&of[i], ages[of[i].ID])
		}
	}
	return standings, nil
}

// addSeen reads when each source saw the devices, for the instants of their
// conditions.
func (r *round) addSeen(ctx context.Context, q store.Querier, devices []fleet.Device, ages map[int64]*fleet.DeviceAge) error {
	ids := make([]int64, len(devices))
	for i := range devices {
		ids[i] = devices[i].ID
	}
	seen, err := store.SeenOf(ctx, q, ids, r.site.Spec.SourceNames())
	if err != nil {
		return err
	}
	for id, at := range seen {
		if ages[id] == noAge {
			ages[id] = &fleet.DeviceAge{}
		}
		ages[id].Seen = at
	}
	return nil
}

func (r *round) standing(d *fleet.Device, a *fleet.DeviceAge) Standing {
	derived := *d
	f := facts.Facts{Site: r.siteFacts}
	var codes facts.Codes
	c := r.conclude(&derived, &f, &codes, a, false)
	st := Standing{
		InScope: d.InScope, Stale: c.standing.Stale | d.InScope&^d.Conditions.Present&^r.durable, PastHold: c.standing.PastHold, StatusFresh: true,
		Reasons: map[string]string{}, ObservedAt: map[string]time.Time{},
	}
	if c.derived {
		st.StatusFresh = r.bundle.StatusFresh(&c.standing, c.verdict)
		st.Held, st.Frozen = c.verdict.Hold == engine.Held, c.frozen
	}
	for left := (d.Conditions.Present | d.InScope) & r.known; left != 0; left &= left - 1 {
		t := r.bundle.TypeOf(uint8(bits.TrailingZeros64(left)))
		if at := r.fresh.ObservedAt(t.Name, a); !at.IsZero() {
			st.ObservedAt[t.Name] = at
		}
		if st.Stale>>t.Bit&1 == 1 {
			st.Reasons[t.Name] = r.fresh.Reason(t.Name, a)
		}
	}
	return st
}
