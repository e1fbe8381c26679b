package reconciler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

const (
	swapShown     = 24 * time.Hour
	failuresInRow = 3 // of asking for missing things: then the others are not asked for
)

// kindsOfEnd are the findings that each listing's end rewrites.
var kindsOfEnd = []string{
	fleet.FindingMissing, fleet.FindingUnjoined, fleet.FindingAmbiguous, fleet.FindingUndecodable,
	fleet.FindingDropped, fleet.FindingLost, fleet.FindingFailure, fleet.FindingClass,
	fleet.FindingMoving, fleet.FindingUnmappedSite, fleet.FindingRefused,
}

// conclude draws what only the whole listing can tell, in this order: absence,
// joins, births, and what writers speak of and the source does not have. Then
// the watermark moves. A listing that is not believed concludes nothing; for one
// that has exactly what was known before, most of it need not be asked.
func (l *listing) conclude(ctx context.Context, end sources.End) error {
	l.tellEnd(end)
	if err := l.tellStrangers(ctx, end); err != nil {
		return err
	}
	if l.quiet(end) {
		alert, err := l.applyClasses(ctx, l.known.Unretired(), end)
		if err != nil {
			return err
		}
		return l.finish(ctx, end, alert, false)
	}
	return l.concludeAll(ctx, end)
}

// quiet tells whether a listing has every thing that the source listed before
// and no other: then nothing is missing, joins or is born, and nobody's writer
// speaks of a device that the source does not have.
func (l *listing) quiet(end sources.End) bool {
	if len(l.unknown) > 0 || end.Dropped > 0 || l.lease.Source == "placement" { // Ironic's nodes may have changed meanwhile
		return false
	}
	// A round of BMCs tells nothing of those that did not answer.
	return l.lease.Source == "bmc" || l.known.Settles(l.listed, l.isInventory())
}

func (l *listing) concludeAll(ctx context.Context, end sources.End) error {
	tenants := l.isInventory() && l.lease.Source != "ironic"
	known, err := store.Joinables(ctx, l.DB, l.site.ID, l.lease.Source, tenants)
	if err != nil {
		return err
	}
	confirmed, err := store.Confirmed(ctx, l.DB, l.site.ID, l.lease.Source)
	if err != nil {
		return err
	}
	moves, err := l.arrivals(ctx)
	if err != nil {
		return err
	}
	in := l.joinInput(known)
	absence := l.absence(in, fleet.Join(in), end, confirmed)
	withhold, alert := absence.Conclusion == fleet.Withhold, absence.Alert
	if !withhold {
		if in.Gone, err = l.concludeAbsence(ctx, &absence, end); err != nil {
			return err
		}
		if err := l.apply(ctx, moves, nil); err != nil {
			return err
		}
		joins := fleet.Join(in)
		if err := l.applyJoins(ctx, &in, &joins); err != nil {
			return err
		}
		if err := l.applyUnlisted(ctx, &joins, end); err != nil {
			return err
		}
		if alert, err = l.applyClasses(ctx, unretired(known), end); err != nil {
			return err
		}
	}
	for i := range absence.Missing {
		l.tellMissing(&absence.Missing[i], absence.Reason)
	}
	return l.finish(ctx, end, alert, withhold)
}

func unretired(known []fleet.Joinable) (n int) {
	for i := range known {
		if !known[i].Retired {
			n++
		}
	}
	return n
}

func (l *listing) finish(ctx context.Context, end sources.End, alert string, withhold bool) error {
	if err := l.Devices.FinishSweep(ctx, devices.Finish{
		SiteID: l.site.ID, Source: l.lease.Source, Owner: l.lease.Owner, Epoch: l.lease.Epoch,
		At: end.At, Alert: alert, Withhold: withhold, Kinds: kindsOfEnd, Findings: l.findings,
	}); err != nil {
		return err
	}
	if alert != "" {
		l.Log.Warn("a listing waits for a person", "site", l.name(), "source", l.lease.Source, "alert", alert)
	}
	if err := store.SpendConfirmations(ctx, l.DB, l.site.ID, l.lease.Source, end.At); err != nil {
		return err
	}
	return store.ExpireFindings(ctx, l.DB, l.site.ID, l.lease.Source, fleet.FindingSwap, swapShown)
}

// isInventory tells whether the source gives birth to the site's devices.
func (l *listing) isInventory() bool { return l.site.Spec.InventorySource() == l.lease.Source }

func (l *listing) joinInput(known []fleet.Joinable) fleet.JoinInput {
	in := fleet.JoinInput{
		Inventory: l.isInventory(), Names: store.RefsAreNames(l.lease.Source), Devices: known, Listed: l.listed, Records: make([]fleet.Listed, len(l.unknown)),
	}
	for i := range l.unknown {
		rd := reading(&l.unknown[i])
		in.Records[i] = fleet.Listed{Ref: rd.Ref, Name: rd.Name, Serial: rd.Serial, Tenant: rd.Facts.Netbox.Tenant.Value}
		switch l.lease.Source {
		case "bmc":
			in.Records[i].Address = rd.Ref
		case "placement":
			in.Records[i].Node = rd.Ref
		}
	}
	return in
}

// absence judges what the listing lacks. For bmc a listing is a round of
// tries, and from one that did not answer nothing follows.
func (l *listing) absence(in fleet.JoinInput, joins fleet.Joins, end sources.End, confirmed map[string]bool) fleet.Absence {
	if l.lease.Source == "bmc" {
		return fleet.Absence{}
	}
	joined := make(map[int64]bool, len(joins.Joined))
	for _, j := range joins.Joined {
		joined[j.Device] = true
	}
	limits := l.bundle.Limits()
	return fleet.JudgeAbsence(fleet.AbsenceInput{
		Source: l.lease.Source, Inventory: in.Inventory, Devices: in.Devices, Joined: joined, Listed: l.listed, Dropped: end.Dropped,
		AtOnce: limits.MissingAtOnce, Share: limits.ShrinkShare, Confirmed: confirmed,
	})
}

// concludeAbsence applies what is gone and what stays unread. It leaves in the
// missing only what is not settled, and gives the devices whose ref is gone.
func (l *listing) concludeAbsence(ctx context.Context, a *fleet.Absence, end sources.End) (gone map[int64]bool, err error) {
	gone = map[int64]bool{}
	readings := make([]fleet.Reading, 0, len(a.Missing))
	var left []fleet.Joinable
	failures := 0
	for _, d := range a.Missing {
		rd := fleet.Reading{Ref: d.Ref, Device: d.Device, At: end.At, Missing: true}
		switch {
		case a.Conclusion == fleet.ConcludeGone:
			rd.Missing, rd.Gone, rd.Confirmed = false, true, true
		case a.Reason == fleet.DecodeFailed:
			rd.Missing, rd.Undecodable = false, a.Reason
		case l.borders.stands(d.Ref, nil) != "":
			if rd, err = l.left(ctx, &d, l.borders.stands(d.Ref, nil), end); err != nil {
				return nil, err
			}
		case a.Conclusion == fleet.AskEach && d.Ref != "" && failures < failuresInRow:
			if rd, err = l.settle(ctx, d, end); err != nil {
				return nil, err
			}
			failures++
			if !rd.Missing {
				failures = 0
			}
		}
		readings = append(readings, rd)
		if rd.Missing || rd.Moving || a.Reason == fleet.DecodeFailed {
			left = append(left, d)
		}
		if rd.Gone {
			gone[d.Device] = true
		}
	}
	a.Missing = left
	l.metrics.concluded.WithLabelValues(l.lease.Source, "gone").Add(float64(len(gone)))
	l.metrics.concluded.WithLabelValues(l.lease.Source, "missing").Add(float64(len(left)))
	return gone, l.apply(ctx, readings, nil)
}

// settle asks for one missing thing by its own identity. Only where the source
// itself says that it has no such thing it is gone; absence takes the listing's
// instant, so that another record of the listing may join the device.
func (l *listing) settle(ctx context.Context, d fleet.Joinable, end sources.End) (fleet.Reading, error) {
	record, err := l.ask(ctx, d.Ref)
	if err == nil && l.borders.beyond(record) || err != nil && ctx.Err() == nil && l.borders.stands(d.Ref, err) != "" {
		return l.left(ctx, &d, l.borders.stands(d.Ref, err), end)
	}
	switch {
	case err == nil:
		l.listed[d.Ref] = true
		return reading(record), nil
	case ctx.Err() != nil:
		return fleet.Reading{}, context.Cause(ctx)
	case errors.Is(err, sources.ErrGone):
		return fleet.Reading{Ref: d.Ref, Device: d.Device, At: end.At, Gone: true}, nil
	}
	l.Log.Debug("missing and not confirmed", "site", l.name(), "source", l.lease.Source, "ref", d.Ref, "error", err)
	return fleet.Reading{Ref: d.Ref, Device: d.Device, At: end.At, Missing: true}, nil
}

// applyJoins applies the records that were found to be a device's, then those
// that give birth to one.
func (l *listing) applyJoins(ctx context.Context, in *fleet.JoinInput, joins *fleet.Joins) error {
	readings := make([]fleet.Reading, 0, len(joins.Joined)+len(joins.Births))
	for _, j := range joins.Joined {
		rd := reading(&l.unknown[j.Record])
		rd.Device = j.Device
		readings = append(readings, rd)
	}
	for _, i := range joins.Births {
		rd := reading(&l.unknown[i])
		rd.Birth = true
		readings = append(readings, rd)
	}
	l.joined += len(joins.Joined)
	for kind, list := range map[string][]fleet.Unjoined{fleet.FindingAmbiguous: joins.Ambiguous, fleet.FindingUnjoined: joins.Unmatched} {
		if l.lease.Source == "placement" && kind == fleet.FindingUnjoined {
			continue // Nova's hypervisors have providers too
		}
		for _, u := range list {
			r := &in.Records[u.Record]
			detail := map[string]any{"name": r.Name, "serial": r.Serial, "why": u.Why}
			var device int64
			if len(u.Devices) > 0 {
				detail["devices"], device = u.Devices, u.Devices[0]
			}
			l.find(kind, r.Ref, device, detail)
		}
		l.metrics.concluded.WithLabelValues(l.lease.Source, kind).Add(float64(len(list)))
	}
	l.metrics.concluded.WithLabelValues(l.lease.Source, "joined").Add(float64(len(joins.Joined)))
	l.metrics.concluded.WithLabelValues(l.lease.Source, "born").Add(float64(len(joins.Births)))
	return l.apply(ctx, readings, nil)
}

// tellEnd makes findings of what the listing itself could not give.
func (l *listing) tellEnd(end sources.End) {
	if end.Dropped > 0 {
		l.metrics.dropped.WithLabelValues(l.lease.Source).Add(float64(end.Dropped))
		l.find(fleet.FindingDropped, "", 0, map[string]any{"records": end.Dropped})
	}
	for _, feature := range end.Lost {
		l.find(fleet.FindingLost, feature, 0, nil)
	}
	for _, ref := range end.Refused {
		l.find(fleet.FindingRefused, ref, 0, map[string]any{"allow": fmt.Sprintf("muster bmc allow-login %s %s", l.site.Spec.Name, ref)})
	}
}

func (l *listing) tellMissing(d *fleet.Joinable, reason string) {
	detail := map[string]any{"name": d.Name}
	if reason != "" {
		detail["why"] = reason
	}
	l.find(fleet.FindingMissing, d.MissingKey(), d.Device, detail)
}

// noteSwaps keeps for a day what an inventory says only once: that another
// machine stands under a known identity.
func (l *listing) noteSwaps(ctx context.Context, swapped []devices.Swap) error {
	findings := make([]fleet.Finding, 0, len(swapped))
	for _, s := range swapped {
		d := fleet.Joinable{Device: s.Device}
		findings = append(findings, fleet.Finding{
			Kind: fleet.FindingSwap, Ref: d.MissingKey(), DeviceID: s.Device, Detail: map[string]any{"name": s.Name, "was": s.Was, "is": s.Is},
		})
	}
	return store.AddFindings(ctx, l.DB, l.site.ID, l.lease.Source, findings)
}
