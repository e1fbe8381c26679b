package engine

import (
	"fmt"

	"github.com/musterhq/muster/facts"
)

// Standing is what a device's operational status is derived from. A type that
// is True and Unknown at once counts as Unknown.
type Standing struct {
	Masks
	InScope  uint64                  // types whose writer has the device in its scope
	Stale    uint64                  // types not fresh, unread ones among them; types without a row need not be named
	PastHold uint64                  // types stale for longer than the catalogue's hold limit
	Status   facts.OperationalStatus // the status before; null counts as one that no rung gives
}

// Hold says whether a verdict follows the rung that matches.
type Hold uint8

// The ways in which a verdict comes about. Only while Held does the status
// before stand, whatever it was.
const (
	Followed Hold = iota // the rung that matches gave the status
	Held                 // it rests on values that nobody vouches for: the status before stands
	PastHold             // it tests a type past its hold limit: the status is unknown
	Withheld             // as Held, but what is fresh excludes the status before: `otherwise` stands in
)

// String gives "followed", "held", "past hold limit" or "withheld".
func (h Hold) String() string {
	return [...]string{"followed", "held", "past hold limit", "withheld"}[h]
}

// Verdict is what the operational ladder says of a standing.
type Verdict struct {
	Status facts.OperationalStatus
	Hold   Hold
	// Rung is the index of the rung that gave the status; the number of rungs
	// stands for `otherwise`. While Held it is the rung that was not followed.
	Rung int16
	// Decisive are the conditions of that rung. While Held the caller keeps the
	// mask of the rung that last gave the status instead.
	Decisive uint64
}

// RungInfo describes one rung of the operational ladder.
type RungInfo struct {
	Name      string
	Pos       string // file:line
	Tests     uint64 // conditions that its #when mentions
	Tolerates uint64 // conditions that it declares tolerated as Unknown
	Outcome   facts.OperationalStatus
}

// Derive gives the operational status of a device. Values come from rows, or
// from the catalogue where there is no row; types out of scope and durable
// types are never stale. While something that the ladder reads is stale, holds
// decide (holds.go). Freezes and inventory-only devices are the caller's: it
// does not ask for those.
func (b *Bundle) Derive(s *Standing) Verdict {
	d := b.derivation
	isTrue, unknown := d.values(&s.Masks)
	unsure := d.unsure(s)
	if f := d.fast; f != nil && unsure == 0 {
		rung := f.rungs[f.gather.index(isTrue, unknown)]
		v := &f.verdicts[rung]
		return Verdict{Status: v.status, Rung: int16(rung), Decisive: v.decisive}
	}
	return d.hold(s, isTrue, unknown, unsure)
}

// StatusFresh reports whether a verdict rests on fresh conditions alone: none
// that its rung tests or tolerates is stale. `otherwise` tests nothing itself
// and rests on what keeps the rungs from matching: it is fresh when no value of
// the stale types would give another status.
func (b *Bundle) StatusFresh(s *Standing, v Verdict) bool {
	d := b.derivation
	unsure := d.unsure(s)
	if unsure == 0 {
		return true
	}
	if v.Hold != Followed || d.rungs[v.Rung].rests&unsure != 0 {
		return false
	}
	if int(v.Rung) < len(d.rungs)-1 {
		return true
	}
	isTrue, unknown := d.values(&s.Masks)
	return d.statuses(isTrue, unknown, unsure, 0) == 1<<v.Status
}

// RungName gives the name of a verdict's rung.
func (b *Bundle) RungName(v Verdict) string { return b.operational.RungName(int(v.Rung)) }

// OperationalRung describes a rung of the operational ladder; the index past
// the last is `otherwise`, and an index outside the ladder gives the zero value.
func (b *Bundle) OperationalRung(i int16) RungInfo {
	l := b.operational
	if i < 0 || int(i) > len(l.Rungs) {
		return RungInfo{}
	}
	info := RungInfo{Name: l.RungName(int(i)), Pos: l.RungPos(int(i)).Short(), Outcome: b.operationalGives[i]}
	if int(i) < len(l.Rungs) {
		info.Tests, info.Tolerates = l.Rungs[i].Tests, l.Rungs[i].Tolerates
	}
	return info
}

// derivation is the operational ladder as Derive uses it. Immutable.
type derivation struct {
	ladder        *Ladder
	rungs         []derivedRung // the last is `otherwise`
	reads         uint64        // types that a rung tests or tolerates and that can be stale
	absentUnknown uint64
	diagram       diagram
	fast          *fastVerdicts // nil where the ladder does not allow it
}

type derivedRung struct {
	gives    facts.OperationalStatus
	promotes bool
	plain    bool   // decisive is whole: no alternative of an `any` adds to it
	decisive uint64 // conditions that its #when tests beside any and not
	tests    uint64 // conditions that its #when mentions
	rests    uint64 // those and what it tolerates
}

// fastVerdicts answers a standing in which nothing is stale. It has room for
// every value of a byte, so that no index needs a check.
type fastVerdicts struct {
	gather   *gather
	rungs    []uint8 // of the ladder's table
	verdicts [1 << 8]struct {
		decisive uint64
		status   facts.OperationalStatus
	}
}

// promotions are the statuses that offer a device to somebody. They are a
// mechanism, not policy: what may never follow from a stale value is no
// operator's choice.
const promotions = 1<<facts.OperationalStatusAvailable | 1<<facts.OperationalStatusValidation | 1<<facts.OperationalStatusDelegated

// newDerivation prepares a compiled ladder. gives are the outcomes by rung,
// that of `otherwise` last; absentUnknown are the types that count as Unknown
// without a row; durable types are never stale.
func newDerivation(l *Ladder, gives []facts.OperationalStatus, absentUnknown, durable uint64) (*derivation, error) {
	if len(gives) != len(l.Rungs)+1 {
		return nil, fmt.Errorf("%d rungs and %d outcomes", len(l.Rungs), len(gives))
	}
	if last := gives[len(l.Rungs)]; promotions>>last&1 == 1 {
		return nil, fmt.Errorf("otherwise gives %s: only a rung that tests what it relies on may", last)
	}
	d := &derivation{ladder: l, absentUnknown: absentUnknown}
	var terms []term
	for i, status := range gives {
		r := derivedRung{gives: status, promotes: promotions>>status&1 == 1, plain: true}
		if i < len(l.Rungs) {
			rung := &l.Rungs[i]
			r.plain, r.decisive = rung.plain, rung.top
			r.tests, r.rests = rung.Tests, rung.Tests|rung.Tolerates
			for _, c := range rung.pattern.cubes {
				if len(c.finite)+len(c.checks) > 0 {
					return nil, fmt.Errorf("rung %s reads more than conditions: nobody could tell what of it is stale", rung.Name)
				}
				terms = append(terms, term{int16(i), c.notTrue, c.notUnknown, c.notFalse})
			}
		}
		d.reads |= r.rests
		d.rungs = append(d.rungs, r)
	}
	d.reads &^= durable
	var err error
	d.diagram, err = newDiagram(terms, int16(len(l.Rungs)))
	d.fast = newFastVerdicts(l, d.rungs)
	return d, err
}

// derivation prepares the operational ladder of a bundle that has no errors.
func (c *compiler) derivation(b *Bundle) {
	var durable uint64
	for i := range b.types {
		if b.types[i].Durable {
			durable |= 1 << b.types[i].Bit
		}
	}
	var err error
	if b.derivation, err = newDerivation(b.operational, b.operationalGives, b.absentUnknown, durable); err != nil {
		c.fail(b.operational.Pos, "operational: %v", err)
	}
}

// newFastVerdicts gives nil for a ladder without a table over conditions, and
// for one with a rung whose decisive conditions depend on `any`.
func newFastVerdicts(l *Ladder, rungs []derivedRung) *fastVerdicts {
	if l.table == nil || l.table.conditions == nil {
		return nil
	}
	f := &fastVerdicts{rungs: l.table.rungs}
	for i, r := range rungs {
		if !r.plain {
			return nil
		}
		f.verdicts[i].status, f.verdicts[i].decisive = r.gives, r.decisive
	}
	var ok bool
	if f.gather, ok = newGather(l.table.conditions); !ok {
		return nil
	}
	return f
}

// values gives the masks that the ladder judges.
func (d *derivation) values(m *Masks) (isTrue, unknown uint64) {
	unknown = m.Unknown&m.Present | d.absentUnknown&^m.Present
	return m.True & m.Present &^ unknown, unknown
}

// unsure gives the types whose value nobody vouches for now.
func (d *derivation) unsure(s *Standing) uint64 {
	return (s.Stale | s.PastHold | ^s.Present) & s.InScope & d.reads
}

// first gives the rung that matches: by the ladder's table, or by the diagram
// where the ladder reads too many conditions for a table.
func (d *derivation) first(isTrue, unknown uint64) int16 {
	if t := d.ladder.table; t != nil && t.conditions != nil {
		return int16(t.rungs[t.conditions.index(isTrue, unknown)])
	}
	return d.diagram.match(isTrue, unknown)
}
