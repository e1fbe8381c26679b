package engine

import "github.com/musterhq/muster/facts"

// hold judges a standing in which something that the ladder reads may be stale:
// a stale value may demote, never promote.
//
// The rung that matches on last values is followed, but for three cases.
//
//   - It tests a type past its hold limit: the status is unknown.
//   - It would change the status to a promotion, and something that it tests or
//     tolerates is stale.
//   - It would change the status, and a type in scope without a row, which has
//     no last value, could make the outcome another one.
//
// In the last two the status before is held if some values of the stale types
// would give it, by a rung that tests nothing past its hold limit; else
// `otherwise` stands in.
func (d *derivation) hold(s *Standing, isTrue, unknown, unsure uint64) Verdict {
	rung := d.first(isTrue, unknown)
	r := &d.rungs[rung]
	v := Verdict{Status: r.gives, Rung: rung, Decisive: r.decisive}
	if !r.plain {
		v.Decisive = d.ladder.decisive(int(rung), &input{yes: isTrue, unknown: unknown})
	}
	if unsure == 0 {
		return v
	}
	past := s.PastHold & unsure
	if r.tests&past != 0 {
		v.Status, v.Hold = facts.OperationalStatusUnknown, PastHold
		return v
	}
	if v.Status == s.Status || !d.doubtful(r, isTrue, unknown, unsure, unsure&^s.Present) {
		return v
	}
	if d.statuses(isTrue, unknown, unsure, past)>>s.Status&1 == 1 {
		v.Status, v.Hold = s.Status, Held
		return v
	}
	last := len(d.rungs) - 1
	return Verdict{Status: d.rungs[last].gives, Hold: Withheld, Rung: int16(last)}
}

// doubtful reports whether a change to a rung's outcome would rest on values
// that nobody vouches for: unsure are all of those, missing the ones among them
// without a last value.
func (d *derivation) doubtful(r *derivedRung, isTrue, unknown, unsure, missing uint64) bool {
	if r.promotes && r.rests&unsure != 0 {
		return true
	}
	return missing != 0 && d.statuses(isTrue, unknown, missing, 0) != 1<<r.gives
}

// statuses gives, as bits by status code, what the ladder can say while the
// types in free have any value; rungs that test a type in past do not count.
func (d *derivation) statuses(isTrue, unknown, free, past uint64) uint16 {
	var found uint16
	rungs := d.diagram.reach(isTrue, unknown, free)
	for i := range d.rungs {
		if rungs.has(int16(i)) && d.rungs[i].tests&past == 0 {
			found |= 1 << d.rungs[i].gives
		}
	}
	return found
}
