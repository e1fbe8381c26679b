package devices

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// BMCs lists the BMCs of a site that are to be asked: those of the devices of
// which a writer speaks that goes by them.
func (s *Service) BMCs(ctx context.Context, siteID int64) ([]store.BMC, error) {
	b := s.policies.Current()
	if b == nil {
		return nil, ErrPolicyNotLoaded
	}
	var types uint64
	writers := b.Writers()
	for i := range writers {
		if reads(&writers[i], "bmc") {
			types |= writers[i].Types
		}
	}
	return store.BMCs(ctx, s.db, siteID, types)
}

// unanswered takes that a BMC was tried and said nothing: of what is stored
// only the number of tries in a row changes, up to the three at which it counts
// as dead. A try counts once, however often it is told.
func (s *subject) unanswered(source string, rd *fleet.Reading) (merged, error) {
	if source != "bmc" {
		return mergedNothing, fmt.Errorf("%s has no answer of %s: the things of this source are not asked one by one", source, rd.Ref)
	}
	stored := s.stored[source]
	fresh := fleet.Stored{DeviceID: s.device.ID, SiteID: s.device.SiteID, Source: source, Ref: rd.Ref, Serial: rd.Serial, SeenAt: micros(rd.At)}
	var f facts.Facts
	if stored != nil && !stored.RefGone && stored.Ref == rd.Ref { // what another BMC said counts for nothing
		if !fresh.SeenAt.After(stored.SeenAt) {
			return mergedOlder, nil
		}
		decode(&f, source, stored.Body)
		fresh.Serial = stored.Serial
	}
	f.BMC.Failures = onceMore(f.BMC.Failures)
	var h hasher
	var err error
	if fresh.Hash, err = h.hash(&f, source); err != nil {
		return mergedNothing, err
	}
	if stored != nil && !stored.RefGone && stored.Hash == fresh.Hash && stored.Ref == fresh.Ref && stored.Trouble.Reason == "" {
		return mergedNothing, nil
	}
	if fresh.Body, err = bodyOf(&f, source); err != nil {
		return mergedNothing, err
	}
	s.keep(&fresh)
	return mergedNew, nil
}

// onceMore counts one more try without an answer: three means three or more.
func onceMore(n facts.BMCFailures) facts.BMCFailures {
	switch n {
	case facts.BMCFailures1:
		return facts.BMCFailures2
	case facts.BMCFailures2, facts.BMCFailures3:
		return facts.BMCFailures3
	}
	return facts.BMCFailures1
}

// tellsChassis tells whether the newest try of a BMC told the health of the
// chassis, be it that there is none. One that refused, did not answer or could not
// be understood said nothing of it.
func tellsChassis(b *facts.BMC) bool {
	return b.Refusal.Null() && (b.Failures.Null() || b.Failures == facts.BMCFailures0) && b.Unreadable["chassis_health"] == ""
}
