package render

import (
	"time"

	"github.com/musterhq/muster/engine"
)

// TraceOf gives an engine's trace in the form that is printed.
func TraceOf(t *engine.Trace) *Trace {
	v := &Trace{Ladder: t.Ladder, Outcome: t.Outcome, Rung: t.Rung, Pos: t.Pos, Reason: orNil(t.Reason), Message: orNil(t.Message), Steps: []Step{}}
	for i := range t.Steps {
		step := &t.Steps[i]
		s := Step{Rung: step.Rung, Pos: step.Pos, Then: step.Then, Matched: step.Matched, Skipped: step.Skipped, Tests: []Test{}}
		for _, test := range step.Tests {
			s.Tests = append(s.Tests, Test(test))
		}
		if step.Failed != nil {
			failed := Test(*step.Failed)
			s.Failed = &failed
		}
		v.Steps = append(v.Steps, s)
	}
	return v
}

// StatusTraceOf gives the trace of the operational ladder.
func StatusTraceOf(t *engine.StatusTrace) *StatusTrace {
	return &StatusTrace{
		Trace: *TraceOf(&t.Trace), Fresh: t.Fresh, Hold: t.Verdict.Hold.String(), HeldWhy: orNil(t.HeldWhy),
		Decisive: t.Decisive, Stale: t.Stale, NoRow: t.NoRow, PastHold: t.PastHold,
	}
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Observed tells what one emission gave just now.
func Observed(name string, decisive bool, t *engine.Trace, at time.Time) ConditionTrace {
	c := ConditionTrace{Type: name, Status: t.Outcome, InScope: true, Decisive: decisive, HasRow: true, Emission: TraceOf(t), Observed: &at}
	c.Reason, c.Message = c.Emission.Reason, c.Emission.Message
	return c
}
