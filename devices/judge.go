package devices

import (
	"math/bits"
	"strings"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

var zero time.Time

// judge brings everything that follows from the facts of a device up to date:
// its axes, conditions, scope, status and history. What it changes is noted in
// the subject; a second judgement at the same instant changes nothing.
func (r *round) judge(s *subject) error {
	s.due = zero
	if err := r.inventoryAxes(s); err != nil {
		return err
	}
	r.mirrors(s)
	s.due = fleet.Earlier(s.due, r.complete(s))
	scope := r.observe(s)
	r.apply(s, scope)
	s.device.ObservationVersion = r.version
	r.derive(s)
	s.device.DueAt = s.due.UTC().Truncate(time.Microsecond)
	if s.due.IsZero() {
		s.device.DueAt = zero
	}
	r.history(s)
	return nil
}

// observation is what one writer's ladders make of a device.
type observation struct {
	engine.Observed
	value uint64 // types that the stored facts give a value
}

// observe runs every writer's emissions over the stored facts and finds in
// whose scope the device then is. A writer none of whose sources has said
// anything of the device gives nothing.
func (r *round) observe(s *subject) (scope uint64) {
	for i := range r.writers {
		w := &r.writers[i]
		o := &r.seen[i]
		o.value = 0
		if w.Emits&r.fresh.Emitted() == 0 {
			continue
		}
		r.bundle.Observe(i, &s.facts, &s.codes, &o.Observed)
		r.unreadable(s, w, &o.Observed)
		o.value = r.spoken(s, w) & w.Emits &^ o.NotRead
	}
	return r.scope(s)
}

// unreadable takes back an Unknown that a ladder gives because of a fact which
// the record had and which could not be read: that is no observation.
func (r *round) unreadable(s *subject, w *engine.Writer, o *engine.Observed) {
	for _, family := range w.Sources {
		if len(unreadableOf(&s.facts, family)) == 0 {
			continue
		}
		for left := o.Unknown & w.Emits &^ o.NotRead; left != 0; left &= left - 1 {
			bit := uint8(bits.TrailingZeros64(left))
			if r.restsOnBroken(s, r.bundle.RungTests(bit, o.Rung[bit])) {
				o.Unknown &^= 1 << bit
				o.NotRead |= 1 << bit
			}
		}
	}
}

// restsOnBroken tells whether one of the facts is one that the record had and
// that could not be decoded.
func (r *round) restsOnBroken(s *subject, paths []string) bool {
	for _, path := range paths {
		family, fact, _ := strings.Cut(path, ".")
		if _, broken := unreadableOf(&s.facts, family)[recordFact(fact)]; broken {
			return true
		}
	}
	return false
}

// spoken is the mask of a writer's emitted types of which some source has said
// something.
func (r *round) spoken(s *subject, w *engine.Writer) uint64 {
	var mask uint64
	for i := range r.policies {
		p := &r.policies[i]
		bit := uint64(1) << p.Bit
		if w.Emits&r.fresh.Emitted()&bit == 0 {
			continue
		}
		if len(p.Sources) == 0 {
			mask |= bit
		}
		for _, source := range p.Sources {
			if s.stored[source] != nil && r.site.Spec.Has(source) {
				mask |= bit
			}
		}
	}
	return mask
}

// scope is the mask of the writers, by index, whose scope has the device. A
// scope may ask for other writers' conditions, which depend on their scopes:
// it starts from all and settles in a few steps, the same from any order.
func (r *round) scope(s *subject) uint64 {
	all := uint64(1)<<len(r.writers) - 1
	if !s.device.RetiredAt.IsZero() {
		return 0
	}
	scope := all
	for range r.writers {
		masks := r.masksIn(s, scope)
		var next uint64
		for i := range r.writers {
			if r.bundle.InScope(i, &s.facts, &s.codes, masks) || r.postedBy(s, i) {
				next |= 1 << i
			}
		}
		if next == scope {
			break
		}
		scope = next
	}
	return scope
}

// postedBy tells whether somebody speaks of the device for a writer that the
// site's sources do not.
func (r *round) postedBy(s *subject, writer int) bool {
	return !s.device.InventoryOnly && s.device.Posted&r.writers[writer].Types&^r.fresh.Emitted() != 0
}

// masksIn gives the conditions as they would be if the writers of scope alone
// had the device in theirs.
func (r *round) masksIn(s *subject, scope uint64) engine.Masks {
	m := r.rowMasks(s)
	for i := range r.writers {
		o := &r.seen[i]
		if scope>>i&1 == 1 {
			m.Present |= o.value
			m.True = m.True&^o.value | o.True&o.value
			m.Unknown = m.Unknown&^o.value | o.Unknown&o.value
			continue
		}
		left := r.writers[i].Types &^ r.durable & m.Present
		m.True &^= left
		m.Unknown |= left
	}
	return m
}

// rowMasks packs the condition rows. Bits of types that this bundle does not
// have stay as they are.
func (r *round) rowMasks(s *subject) engine.Masks {
	old := s.device.Conditions
	m := engine.Masks{True: old.True &^ r.known, Unknown: old.Unknown &^ r.known, Present: old.Present &^ r.known}
	for name, c := range s.conditions {
		t, ok := r.bundle.Type(name)
		if !ok {
			continue
		}
		bit := uint64(1) << t.Bit
		m.Present |= bit
		switch c.Status {
		case fleet.True:
			m.True |= bit
		case fleet.Unknown:
			m.Unknown |= bit
		}
	}
	return m
}

// apply writes what the writers observed, and what leaving a scope ends.
func (r *round) apply(s *subject, scope uint64) {
	d := &s.device
	d.InScope, d.Unread = 0, 0
	for i := range r.writers {
		w := &r.writers[i]
		old, had := s.writers[w.Name]
		row := fleet.DeviceWriter{DeviceID: d.ID, Writer: w.Name, InScope: scope>>i&1 == 1}
		if row.InScope {
			row.Unread = r.take(s, i, old.Unread)
		} else {
			r.leave(s, w, old.InScope)
		}
		if (had || row.InScope) && (!had || old.InScope != row.InScope || !sameUnread(old.Unread, row.Unread)) {
			s.writers[w.Name] = row
			s.newWriters[w.Name] = true
		}
	}
	m := r.rowMasks(s)
	d.Conditions = fleet.Masks(m)
}

// take writes the conditions of one writer that has the device in its scope,
// and gives what was not read of them.
func (r *round) take(s *subject, writer int, old map[string]fleet.Unread) map[string]fleet.Unread {
	w, o, d := &r.writers[writer], &r.seen[writer], &s.device
	spoken := r.spoken(s, w)
	d.InScope |= w.Emits&r.fresh.Emitted() | d.Posted&w.Types
	reasons, known := map[string]string{}, map[string]fleet.Unread{}
	for left := w.Types &^ r.durable; left != 0; left &= left - 1 {
		bit := uint8(bits.TrailingZeros64(left))
		t := r.bundle.TypeOf(bit)
		mask := uint64(1) << bit
		if r.fresh.Emitted()&mask == 0 {
			if was, ok := old[t.Name]; ok && d.Posted&mask != 0 { // its poster said so
				reasons[t.Name] = was.Reason
			}
			continue
		}
		if o.value&mask != 0 {
			d.Posted &^= mask
			r.setCondition(s, t, statusIn(&o.Observed, mask), o.Rung[bit])
		}
		if trouble := r.trouble(s, t); trouble.Reason != "" {
			reasons[t.Name], known[t.Name] = trouble.Reason, trouble
		} else if spoken&o.NotRead&mask != 0 {
			reasons[t.Name] = r.whyNotRead(s, t, o.Rung[bit])
		}
	}
	unread := r.since(old, reasons, known)
	for name := range unread {
		t, _ := r.bundle.Type(name)
		d.Unread |= 1 << t.Bit
	}
	return unread
}

// trouble says why the newest reading of a type's sources gave nothing; zero
// when it did.
func (r *round) trouble(s *subject, t *engine.ConditionType) fleet.Unread {
	for _, source := range t.Sources {
		if stored := s.stored[source]; stored != nil && stored.Trouble.Reason != "" && r.site.Spec.Has(source) {
			return stored.Trouble
		}
	}
	return fleet.Unread{}
}

// whyNotRead gives the reason of a rung that reads nothing. A fact that the
// record had and that could not be decoded says so.
func (r *round) whyNotRead(s *subject, t *engine.ConditionType, rung int16) string {
	if r.restsOnBroken(s, r.bundle.RungTests(t.Bit, rung)) {
		return ReasonDecodeFailed
	}
	reason, _ := r.bundle.Texts(t.Bit, rung, &s.facts)
	return reason
}

// recordFact names the fact of a record that a derived fact comes from.
func recordFact(fact string) string {
	switch fact {
	case "lessee_role":
		return "lessee"
	case "customer_trait":
		return "traits"
	case "instance_bound":
		return "instance_uuid"
	case "our_mark":
		return "extra"
	}
	return fact
}

func statusIn(o *engine.Observed, mask uint64) fleet.Tri {
	switch {
	case o.True&mask != 0:
		return fleet.True
	case o.Unknown&mask != 0:
		return fleet.Unknown
	}
	return fleet.False
}

func (r *round) setCondition(s *subject, t *engine.ConditionType, status fleet.Tri, rung int16) {
	reason, message := r.bundle.Texts(t.Bit, rung, &s.facts)
	s.put(fleet.Condition{Type: t.Name, Status: status, Reason: reason, Message: message, Writer: t.Writers[0]}, r.now)
}

// put writes a condition unless its row says the same already. It reports
// whether status, reason or message changed.
func (s *subject) put(c fleet.Condition, now time.Time) bool {
	c.DeviceID = s.device.ID
	old, had := s.conditions[c.Type]
	semantic := !had || old.Status != c.Status || old.Reason != c.Reason || old.Message != c.Message
	if !semantic && old.Writer == c.Writer && old.ObservedAt.Equal(c.ObservedAt) {
		return false
	}
	c.LastTransitionAt = old.LastTransitionAt
	if !had || old.Status != c.Status {
		c.LastTransitionAt = now
	}
	s.conditions[c.Type] = c
	s.newConditions[c.Type] = true
	return semantic
}

// leave ends what a writer says of a device that is not in its scope: once, if
// it was in it before.
func (r *round) leave(s *subject, w *engine.Writer, was bool) {
	d := &s.device
	if w.Scope != nil && reads(w, "slurm") {
		d.SlurmStates = 0
	}
	if w.Scope != nil && reads(w, "bmc") {
		d.ChassisHealth = facts.RedfishHealth(0)
	}
	posted := d.Posted & w.Types
	d.Posted &^= w.Types
	if !was && posted == 0 {
		return
	}
	for left := w.Types &^ r.durable; left != 0; left &= left - 1 {
		t := r.bundle.TypeOf(uint8(bits.TrailingZeros64(left)))
		if _, there := s.conditions[t.Name]; there {
			s.put(fleet.Condition{Type: t.Name, Status: fleet.Unknown, Reason: ReasonNoLonger, Writer: w.Name}, r.now)
		}
	}
}
