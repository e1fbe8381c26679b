package devices

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// subject is one device under judgement, with all that is stored of it.
type subject struct {
	device  fleet.Device
	before  fleet.Device
	born    bool
	swapped bool

	swappedFrom string // the serial of the machine that was there

	movedFrom string // the site that had it until now; "" for this one

	confirmedGone bool // a person says that the inventory's record is gone
	reclassify    bool // a class that was held back may be taken

	stored     map[string]*fleet.Stored // by source
	newFacts   map[string]bool          // sources whose row is to be written
	writers    map[string]fleet.DeviceWriter
	conditions map[string]fleet.Condition
	facts      facts.Facts
	codes      facts.Codes

	// What the judgement found.
	due           time.Time
	inventoryRung string
	newConditions map[string]bool
	newWriters    map[string]bool
	events        []fleet.Event
}

func newSubject(d fleet.Device) *subject {
	return &subject{
		device: d, before: d,
		stored: map[string]*fleet.Stored{}, newFacts: map[string]bool{},
		writers: map[string]fleet.DeviceWriter{}, conditions: map[string]fleet.Condition{},
		newConditions: map[string]bool{}, newWriters: map[string]bool{},
	}
}

// subjects are the devices of one transaction in the order of ids.
type subjects struct {
	list []*subject
	byID map[int64]*subject
}

func (all *subjects) add(s *subject) {
	all.list = append(all.list, s)
	all.byID[s.device.ID] = s
}

// lock takes devices for the transaction and reads all that is stored of them.
// Ids that are no device's are left out.
func lock(ctx context.Context, tx pgx.Tx, ids []int64) (*subjects, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	all := &subjects{byID: map[int64]*subject{}}
	if len(ids) == 0 {
		return all, nil
	}
	devices, err := store.LockDevices(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		all.add(newSubject(d))
	}
	return all, all.read(ctx, tx)
}

// read loads facts, writers and conditions of all subjects.
func (all *subjects) read(ctx context.Context, q store.Querier) error {
	ids := make([]int64, len(all.list))
	for i, s := range all.list {
		ids[i] = s.device.ID
	}
	stored, err := store.FactsOf(ctx, q, ids)
	if err != nil {
		return err
	}
	for i := range stored {
		all.byID[stored[i].DeviceID].stored[stored[i].Source] = &stored[i]
	}
	writers, err := store.WritersOf(ctx, q, ids)
	if err != nil {
		return err
	}
	for _, w := range writers {
		all.byID[w.DeviceID].writers[w.Writer] = w
	}
	conditions, err := store.ConditionsOf(ctx, q, ids)
	if err != nil {
		return err
	}
	for _, c := range conditions {
		all.byID[c.DeviceID].conditions[c.Type] = c
	}
	return nil
}

// settle judges every subject and writes what changed, a handful of statements
// however many there are.
func (r *round) settle(ctx context.Context, tx pgx.Tx, all *subjects) (Rows, error) {
	for _, s := range all.list {
		s.assemble()
	}
	if err := r.nameRacks(ctx, tx, all); err != nil {
		return Rows{}, err
	}
	for _, s := range all.list {
		if err := r.judge(s); err != nil {
			return Rows{}, fmt.Errorf("judge device %d (%s): %w", s.device.ID, s.device.Name, err)
		}
	}
	return r.write(ctx, tx, all)
}

// assemble decodes what the sources said.
func (s *subject) assemble() {
	s.facts = facts.Facts{}
	for source, stored := range s.stored {
		decode(&s.facts, source, stored.Body)
	}
}

// nameRacks reads the names of the racks that devices stand in, and makes those
// that the inventory names for the first time.
func (r *round) nameRacks(ctx context.Context, tx pgx.Tx, all *subjects) error {
	var ids []int64
	for _, s := range all.list {
		if s.device.RackID != 0 {
			ids = append(ids, s.device.RackID)
		}
	}
	if len(ids) > 0 {
		names, err := store.RackNames(ctx, tx, ids)
		if err != nil {
			return err
		}
		r.rackNames = names
	}
	var wanted []string
	for _, s := range all.list {
		name := s.facts.Netbox.Rack.Value
		if r.inventoryReads("netbox") && name != "" && name != r.rackNames[s.device.RackID] {
			wanted = append(wanted, name)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	slices.Sort(wanted)
	made, err := store.EnsureRacks(ctx, tx, r.site.ID, slices.Compact(wanted))
	if err != nil {
		return err
	}
	for name, id := range made {
		r.rackIDs[name] = id
		r.rackNames[id] = name
	}
	return nil
}

// rows are what a transaction writes beside devices.
type rows struct {
	facts      []*fleet.Stored
	conditions []fleet.Condition
	writers    []fleet.DeviceWriter
}

func (w *rows) take(s *subject) {
	for source := range s.newFacts {
		w.facts = append(w.facts, s.stored[source])
	}
	for name := range s.newConditions {
		w.conditions = append(w.conditions, s.conditions[name])
	}
	for name := range s.newWriters {
		w.writers = append(w.writers, s.writers[name])
	}
}

// write stores what the judgements changed, a few statements whatever the
// number of devices. Of the newborn, nothing can be there yet.
func (r *round) write(ctx context.Context, tx pgx.Tx, all *subjects) (Rows, error) {
	var born, changed []*fleet.Device
	var first, later rows
	var events []fleet.Event
	var moved []int64
	for _, s := range all.list {
		if s.movedFrom != "" {
			moved = append(moved, s.device.ID)
		}
		into := &later
		switch {
		case s.born:
			s.device.UpdatedAt = r.now
			born, into = append(born, &s.device), &first
		case !same(&s.before, &s.device):
			s.device.UpdatedAt = r.now
			changed = append(changed, &s.device)
		}
		into.take(s)
		events = append(events, s.events...)
	}
	steps := []func() error{
		func() error { return store.InsertDevices(ctx, tx, r.site.ID, born) },
		func() error { return store.PutFacts(ctx, tx, later.facts) }, // a ref that is let go may be a newborn's
		func() error { return store.CopyFacts(ctx, tx, first.facts) },
		func() error { return store.CopyConditions(ctx, tx, first.conditions) },
		func() error { return store.CopyWriters(ctx, tx, first.writers) },
		func() error { return store.UpdateDevices(ctx, tx, changed) },
		func() error { return store.MoveDevices(ctx, tx, moved, r.site.ID) },
		func() error { return store.PutConditions(ctx, tx, later.conditions) },
		func() error { return store.PutWriters(ctx, tx, later.writers) },
		func() error { return store.AppendEvents(ctx, tx, events) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return Rows{}, err
		}
	}
	return Rows{
		Devices: len(born) + len(changed), Facts: len(first.facts) + len(later.facts), Conditions: len(first.conditions) + len(later.conditions),
		Writers: len(first.writers) + len(later.writers), Events: len(events),
	}, nil
}

// same compares what a judgement may write.
func same(a, b *fleet.Device) bool {
	return a.SiteID == b.SiteID && a.RackID == b.RackID && a.Position == b.Position && a.Name == b.Name && a.Serial == b.Serial && a.BMCAddress == b.BMCAddress &&
		a.Class == b.Class && a.ResourceClass == b.ResourceClass && a.Inventory == b.Inventory && a.Operational == b.Operational &&
		a.Health == b.Health && a.CustomerReady == b.CustomerReady && a.InfrastructureRef == b.InfrastructureRef &&
		a.Proof.ValidatedRef == b.Proof.ValidatedRef && a.Proof.Source == b.Proof.Source && a.Proof.ValidatedAt.Equal(b.Proof.ValidatedAt) &&
		a.EnteredServiceAt.Equal(b.EnteredServiceAt) && a.FailureReason == b.FailureReason && a.FailedAt.Equal(b.FailedAt) &&
		a.IronicProvisionState == b.IronicProvisionState && a.SlurmStates == b.SlurmStates && a.ChassisHealth == b.ChassisHealth &&
		a.Conditions == b.Conditions && a.InScope == b.InScope && a.Unread == b.Unread && a.Posted == b.Posted && a.Decisive == b.Decisive &&
		a.Rung == b.Rung && a.ObservationVersion == b.ObservationVersion && a.DueAt.Equal(b.DueAt) &&
		a.AbsentSince.Equal(b.AbsentSince) && a.RetiredAt.Equal(b.RetiredAt)
}
