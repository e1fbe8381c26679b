package httpapi

import (
	"github.com/musterhq/muster/engine"
)

// traceView tells how a ladder came to its outcome.
type traceView struct {
	Ladder  string     `json:"ladder"`
	Outcome string     `json:"outcome"`
	Rung    string     `json:"rung"`
	Pos     string     `json:"pos"` // file:line
	Reason  *string    `json:"reason"`
	Message *string    `json:"message"`
	Steps   []stepView `json:"steps"`
}

type stepView struct {
	Rung    string     `json:"rung"`
	Pos     string     `json:"pos"`
	Then    string     `json:"then"`
	Matched bool       `json:"matched"`
	Skipped bool       `json:"skipped"`
	Failed  *testView  `json:"failed"`
	Tests   []testView `json:"tests"`
}

type testView struct {
	Path    string `json:"path"`
	Want    string `json:"want"`
	Actual  string `json:"actual"`
	Pos     string `json:"pos"`
	Matched bool   `json:"matched"`
	In      string `json:"in"`
}

// statusView is the trace of the operational ladder, with what staleness made
// of it.
type statusView struct {
	traceView
	Fresh    bool     `json:"fresh"`
	Hold     string   `json:"hold"` // followed, held, past hold limit, withheld
	HeldWhy  *string  `json:"held_why"`
	Decisive []string `json:"decisive"`
	Stale    []string `json:"stale"`
	NoRow    []string `json:"no_row"`
	PastHold []string `json:"past_hold"`
}

func viewTrace(t *engine.Trace) traceView {
	v := traceView{Ladder: t.Ladder, Outcome: t.Outcome, Rung: t.Rung, Pos: t.Pos, Reason: orNil(t.Reason), Message: orNil(t.Message), Steps: []stepView{}}
	for i := range t.Steps {
		step := &t.Steps[i]
		s := stepView{Rung: step.Rung, Pos: step.Pos, Then: step.Then, Matched: step.Matched, Skipped: step.Skipped, Tests: []testView{}}
		for _, test := range step.Tests {
			s.Tests = append(s.Tests, testView(test))
		}
		if step.Failed != nil {
			failed := testView(*step.Failed)
			s.Failed = &failed
		}
		v.Steps = append(v.Steps, s)
	}
	return v
}

func viewTraceOf(t *engine.Trace) *traceView {
	if t == nil {
		return nil
	}
	v := viewTrace(t)
	return &v
}

func viewStatus(t *engine.StatusTrace) *statusView {
	return &statusView{
		traceView: viewTrace(&t.Trace), Fresh: t.Fresh, Hold: t.Verdict.Hold.String(), HeldWhy: orNil(t.HeldWhy),
		Decisive: listed(t.Decisive), Stale: listed(t.Stale), NoRow: listed(t.NoRow), PastHold: listed(t.PastHold),
	}
}
