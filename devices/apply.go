package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// maxBatch is how many readings one transaction takes.
const maxBatch = 500

// Apply takes what one source said. In one transaction it merges the readings
// that are new into the facts of their devices, in the order of instants, and
// judges those devices: conditions, scope, status, history. What says the same
// as what is stored costs one look without a lock. A reading that cannot be
// stored is refused and keeps no other back. ErrLeaseLost: nothing was written,
// another replica has the sweep.
func (s *Service) Apply(ctx context.Context, b fleet.Batch) (Applied, error) {
	if err := check(&b); err != nil {
		return Applied{}, err
	}
	start := time.Now()
	applied, err := s.applyOnce(ctx, b)
	if store.DataError(err) {
		applied, err = s.applyEach(ctx, b)
	}
	if errors.Is(err, ErrLeaseLost) {
		s.metrics.leaseLosses.Inc()
	}
	if err != nil {
		return Applied{}, fmt.Errorf("apply %d readings of %s: %w", len(b.Readings), b.Source, err)
	}
	s.metrics.applied(b.Source, &applied, time.Since(start))
	return applied, nil
}

// applyEach applies readings one by one: one of them is refused by the database.
func (s *Service) applyEach(ctx context.Context, b fleet.Batch) (Applied, error) {
	var all Applied
	for i := range b.Readings {
		one := b
		one.Readings = b.Readings[i : i+1]
		applied, err := s.applyOnce(ctx, one)
		switch {
		case store.DataError(err):
			all.Refused = append(all.Refused, RefusedReading{Index: i, Code: CodeDataRefused, Reason: err.Error()})
			continue
		case err != nil:
			return all, err
		}
		if len(applied.Unknown) > 0 {
			all.Unknown = append(all.Unknown, i)
		}
		for _, refused := range applied.Refused {
			refused.Index = i
			all.Refused = append(all.Refused, refused)
		}
		all.Changed += applied.Changed
		all.Unchanged += applied.Unchanged
		all.Ignored += applied.Ignored
		all.Born = append(all.Born, applied.Born...)
		all.Swapped = append(all.Swapped, applied.Swapped...)
		all.Moved = append(all.Moved, applied.Moved...)
		for _, held := range applied.Held {
			held.Index = i
			all.Held = append(all.Held, held)
		}
		all.Rows.add(applied.Rows)
	}
	return all, nil
}

func (s *Service) applyOnce(ctx context.Context, b fleet.Batch) (applied Applied, err error) {
	cause := fleet.Cause{Type: "snapshot", Source: b.Source}
	var events map[string]int
	err = s.judging(ctx, b.SiteID, cause, func(tx pgx.Tx, r *round) error {
		a := &application{round: r, batch: &b, locks: s.locks, moves: map[int]bool{}}
		if err := a.run(ctx, tx); err != nil {
			return err
		}
		applied, events = a.applied, r.events
		return nil
	})
	if err == nil {
		s.metrics.wrote(applied.Rows, events)
	}
	return applied, err
}

// application is one batch in one transaction.
type application struct {
	*round
	batch   *fleet.Batch
	applied Applied
	touched []int // readings to merge, by index
	device  map[int]int64
	births  []int
	moves   map[int]bool // readings that may bring a device from another site
	others  neighbours
	locks   Locks
	hashes  [][16]byte // of the readings that have facts, by index
}

func (a *application) run(ctx context.Context, tx pgx.Tx) error {
	if err := a.leased(ctx, tx, store.HoldsSweep); err != nil {
		return err
	}
	if err := a.sift(ctx, tx); err != nil {
		return err
	}
	if len(a.touched) == 0 && len(a.births) == 0 {
		return nil
	}
	// Whoever has the lease next reads the source after this is written: no
	// listing of it can end unchanged in between and be overtaken.
	if err := a.leased(ctx, tx, func(ctx context.Context, _ store.Querier, site int64, source, owner string, epoch int64) (bool, error) {
		return store.KeepSweep(ctx, tx, site, source, owner, epoch)
	}); err != nil {
		return err
	}
	if err := a.claim(ctx, tx); err != nil {
		return err
	}
	all, err := a.gather(ctx, tx)
	if err != nil {
		return err
	}
	a.applied.Rows, err = a.settle(ctx, tx, all)
	for _, s := range all.list {
		if s.swapped {
			a.applied.Swapped = append(a.applied.Swapped, Swap{s.device.ID, s.device.Name, s.swappedFrom, s.stored[a.batch.Source].Serial})
		}
	}
	return err
}

// leased refuses a batch whose sweep is another replica's by now.
func (a *application) leased(ctx context.Context, tx pgx.Tx, holds func(ctx context.Context, q store.Querier, site int64, source, owner string, epoch int64) (bool, error)) error {
	if a.batch.Epoch == 0 {
		return nil
	}
	mine, err := holds(ctx, tx, a.batch.SiteID, a.batch.Source, a.batch.Owner, a.batch.Epoch)
	if err == nil && !mine {
		return ErrLeaseLost
	}
	return err
}

// isInventory tells whether the batch's source gives birth to the site's devices.
func (a *application) isInventory() bool { return a.site.Spec.InventorySource() == a.batch.Source }

// sift looks, without a lock, which readings may be new.
func (a *application) sift(ctx context.Context, tx pgx.Tx) error {
	a.device = map[int]int64{}
	var refs []string
	for i := range a.batch.Readings {
		if rd := &a.batch.Readings[i]; rd.Device == 0 && !rd.Birth {
			refs = append(refs, rd.Ref)
		}
	}
	if err := a.hashAll(); err != nil {
		return err
	}
	known, err := store.KnownRefs(ctx, tx, a.site.ID, a.batch.Source, a.isInventory(), refs)
	if err != nil {
		return err
	}
	watermark := a.marks[a.batch.Source].At
	for i := range a.batch.Readings {
		rd := &a.batch.Readings[i]
		k, isKnown := known[rd.Ref]
		switch {
		case rd.At.Before(watermark):
			a.applied.Ignored++
		case rd.Birth:
			a.births = append(a.births, i)
		case rd.Device != 0:
			a.touch(i, rd.Device)
			a.moves[i] = rd.Move
		case !isKnown:
			a.applied.Unknown = append(a.applied.Unknown, i)
		case rd.At.Before(k.SeenAt):
			a.applied.Ignored++
		case a.unchanged(i, &k):
			a.applied.Unchanged++
		default:
			a.touch(i, k.DeviceID)
		}
	}
	return nil
}

// hashAll names what the readings of the batch say.
func (a *application) hashAll() (err error) {
	a.hashes = make([][16]byte, len(a.batch.Readings))
	var h hasher
	for i := range a.batch.Readings {
		if rd := &a.batch.Readings[i]; says(rd) && rd.Undecodable == "" && rd.Unanswered == "" {
			if a.hashes[i], err = h.hash(&rd.Facts, a.batch.Source); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *application) touch(i int, device int64) {
	a.touched = append(a.touched, i)
	a.device[i] = device
}

// unchanged tells whether a reading of a sweep says what is stored, and the
// device was judged by the present rules.
func (a *application) unchanged(i int, k *store.Known) bool {
	return a.batch.Epoch != 0 && k.ObservationVersion == a.version && says(&a.batch.Readings[i]) && settled(k.RefGone, k.Troubled, k.Retired, a.isInventory()) &&
		repeats(&a.batch.Readings[i], a.hashes[i], k.Hash, k.Serial)
}

// settled tells a stored word that stands as it is from one that any reading
// changes: of a thing that was gone, or gave nothing, or comes back.
func settled(gone, troubled, retired, inventory bool) bool {
	return !gone && !troubled && !(retired && inventory)
}

// repeats tells whether a reading says what is stored.
func repeats(rd *fleet.Reading, hash, stored [16]byte, serial string) bool {
	return rd.Undecodable == "" && rd.Unanswered == "" && hash == stored && (rd.Serial == "" || rd.Serial == serial)
}

// claim decides births and joins, one batch of a site at a time.
func (a *application) claim(ctx context.Context, tx pgx.Tx) error {
	var refs, names, serials []string
	for _, i := range slices.Concat(a.births, a.touched) {
		rd := &a.batch.Readings[i]
		if rd.Birth || rd.Device != 0 && says(rd) {
			refs = append(refs, rd.Ref)
			names = append(names, fleet.NameKey(nameOf(rd)))
			serials = append(serials, fleet.SerialKey(rd.Serial))
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if err := a.lockInstance(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(store.JoinLock)+a.site.ID); err != nil {
		return fmt.Errorf("lock the births of a site: %w", err)
	}
	if err := a.claimAcross(ctx, tx, refs); err != nil {
		return err
	}
	held, err := store.KnownRefs(ctx, tx, a.site.ID, a.batch.Source, a.isInventory(), refs)
	if err != nil {
		return err
	}
	// Absence comes before joins: a ref that this batch concludes gone is free.
	for _, i := range a.touched {
		if rd := &a.batch.Readings[i]; rd.Gone && held[rd.Ref].DeviceID == a.device[i] {
			delete(held, rd.Ref)
		}
	}
	a.touched = slices.DeleteFunc(a.touched, func(i int) bool {
		rd := &a.batch.Readings[i]
		h, taken := held[rd.Ref]
		if !says(rd) || !taken || h.RefGone || h.DeviceID == a.device[i] {
			return false
		}
		a.refuse(i, "another device has the ref "+rd.Ref)
		return true
	})
	if len(a.births) == 0 {
		return nil
	}
	takenNames, takenSerials, err := store.Taken(ctx, tx, a.site.ID, a.batch.Source, names, serials)
	if err != nil {
		return err
	}
	a.births = slices.DeleteFunc(a.births, func(i int) bool {
		why := a.whyNoBirth(&a.batch.Readings[i], held, takenNames, takenSerials)
		if why != "" {
			a.refuse(i, why)
		}
		return why != ""
	})
	return nil
}

// whyNoBirth says what speaks against a birth, "" for nothing: then the name and
// the serial are taken from here on.
func (a *application) whyNoBirth(rd *fleet.Reading, held map[string]store.Known, names map[store.TenantName]bool, serials map[string]bool) string {
	name := store.TenantName{Name: fleet.NameKey(nameOf(rd)), Tenant: rd.Facts.Netbox.Tenant.Value}
	serial := fleet.SerialKey(rd.Serial)
	h, taken := held[rd.Ref]
	switch {
	case !a.isInventory():
		return fmt.Sprintf("only the inventory of the site (%s) gives birth", a.site.Spec.InventorySource())
	case taken && !h.RefGone:
		return "another device has the ref " + rd.Ref
	case names[name], names[store.TenantName{Name: name.Name, Tenant: store.AnyTenant}]:
		return "another device of the site has the name " + nameOf(rd)
	case serial != "" && serials[serial]:
		return "another device of the site has the serial " + rd.Serial
	}
	names[name], serials[serial] = true, serial != ""
	return ""
}

// says tells a reading that brings facts, or why they cannot be read, from one
// that speaks of a device itself.
func says(rd *fleet.Reading) bool {
	return !rd.Gone && !rd.Missing && !rd.Doubtful && !rd.Moving && !rd.Reclassify
}

func (a *application) refuse(i int, why string) {
	a.applied.Refused = append(a.applied.Refused, RefusedReading{Index: i, Code: CodeJoinAmbiguous, Reason: why})
}

func nameOf(rd *fleet.Reading) string {
	if rd.Name == "" {
		return rd.Ref
	}
	return rd.Name
}

// gather locks the touched devices, makes the newborn ones, and merges.
func (a *application) gather(ctx context.Context, tx pgx.Tx) (*subjects, error) {
	ids := make([]int64, 0, len(a.touched))
	for _, i := range a.touched {
		ids = append(ids, a.device[i])
	}
	all, err := lock(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	for _, i := range a.touched {
		s := all.byID[a.device[i]]
		if s == nil || s.device.SiteID != a.site.ID && !a.moves[i] {
			a.applied.Unknown = append(a.applied.Unknown, i)
			continue
		}
		if s.device.SiteID != a.site.ID {
			if here, err := a.move(ctx, tx, i, s); err != nil {
				return nil, err
			} else if !here {
				continue
			}
		}
		if err := a.count(i, s); err != nil {
			return nil, err
		}
	}
	if len(a.births) == 0 {
		return all, nil
	}
	born, err := store.NewDeviceIDs(ctx, tx, len(a.births))
	if err != nil {
		return nil, err
	}
	for n, i := range a.births {
		s := a.newborn(born[n], &a.batch.Readings[i])
		if err := a.count(i, s); err != nil {
			return nil, err
		}
		all.add(s)
	}
	a.applied.Born = born
	return all, nil
}

func (a *application) count(i int, s *subject) error {
	what, err := a.merge(s, a.batch, &a.batch.Readings[i], a.hashes[i])
	switch what {
	case mergedNew:
		a.applied.Changed++
	case mergedNothing:
		a.applied.Unchanged++
	case mergedOlder:
		a.applied.Ignored++
	case mergedUnknown:
		a.applied.Unknown = append(a.applied.Unknown, i)
	}
	return err
}
