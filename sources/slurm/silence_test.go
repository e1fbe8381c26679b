package slurm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// What may happen to a node that we drained, and whose drain it then is.
func TestWhoseADrainIsAfterASilence(t *testing.T) {
	t.Parallel()
	resume := func(s scene, n *fakeNode) { s.resume(n, "RESUME"); n.without("NOT_RESPONDING") }
	for name, c := range map[string]struct {
		do   func(s scene, n *fakeNode)
		ours bool
		in42 bool // in 24.11, which keeps reasons
	}{
		"silent":              {func(s scene, n *fakeNode) { s.silence(n) }, true, true},
		"silent and back":     {func(s scene, n *fakeNode) { s.silence(n); s.now += 60; s.answers(n) }, true, true},
		"silent, back, twice": {func(s scene, n *fakeNode) { s.silence(n); s.answers(n); s.now += 60; s.silence(n) }, true, true},
		"taken back by SLURM": {func(s scene, n *fakeNode) {
			s.silence(n)
			s.now += 60
			s.answers(n)
			n.states[0], n.busy = "IDLE", s.now
		}, true, false},
		"resumed and drained with no reason before it, taken back by SLURM": {func(s scene, n *fakeNode) {
			resume(s, n)
			s.drain(n)
			s.silence(n)
			s.now += 60
			s.answers(n)
			n.states[0], n.busy = "IDLE", s.now
		}, false, false},
		"resumed and drained with no reason in the silence": {func(s scene, n *fakeNode) {
			s.silence(n)
			s.now += 60
			resume(s, n)
			s.drain(n)
		}, false, false},
		"resumed and drained with no reason before it":    {func(s scene, n *fakeNode) { resume(s, n); s.drain(n); s.silence(n) }, false, false},
		"resumed before it, drained with no reason in it": {func(s scene, n *fakeNode) { resume(s, n); s.silence(n); s.drain(n) }, false, false},
		"drained for another reason before it":            {func(s scene, n *fakeNode) { n.reason = "smoke"; s.silence(n) }, false, false},
		"reason extended before it":                       {func(s scene, n *fakeNode) { n.reason += ", smoke"; s.silence(n) }, false, false},
		"reason extended in it":                           {func(s scene, n *fakeNode) { s.silence(n); n.reason += ", ask Ada" }, false, false},
		"registered with less than it has": {func(s scene, n *fakeNode) {
			n.reason, n.changed = n.reason+" : gres/gpu count reported lower than configured (1 < 2)", s.now
		}, false, false},
		"work whose end is not told from a resume": {func(s scene, n *fakeNode) { n.busy = s.now; s.silence(n) }, true, false},
		"an idle time that is not told":            {func(s scene, n *fakeNode) { n.busy = 0; s.silence(n) }, true, false},
		"a reason older than ours":                 {func(s scene, n *fakeNode) { s.silence(n); n.changed = 1 }, false, false},
		"slurmctld restarted":                      {func(s scene, n *fakeNode) { n.busy = s.now }, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s scene) {
				if got, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil || got.Outcome != DrainedByUs {
					t.Fatalf("%+v %v", got, err)
				}
				s.foreign(func(n *fakeNode) { c.do(s, n) })
				writes := len(s.writes)
				got, err := s.c.Drain(t.Context(), "n0001", mark, "x")
				want, ours := DrainedByOther, c.ours
				if s.generation == 42 {
					ours = c.in42
				}
				if ours {
					want = DrainedByUs
				} else if len(s.writes) != writes {
					t.Errorf("written: %q", s.writes[writes:])
				}
				if err != nil || got.Outcome != want || (got.Facts.DrainMark == mark) != ours {
					t.Fatalf("drain: %+v %v; node %+v", got, err, s.node)
				}
				if got, err := s.c.Resume(t.Context(), "n0001", mark); ours && err != nil || !ours && sources.KindOf(err) != sources.KindConflict || s.node.has("DRAIN") == ours {
					t.Errorf("resume: %+v %v; node %+v", got, err, s.node)
				}
			})
		})
	}
}

// What was read of a drain is kept up while it is looked at: then neither a
// restart of slurmctld nor work that ends makes the next silence doubtful.
func TestADrainThatIsLookedAtStaysOurs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.node.states[0] = "ALLOCATED"
		look := func(extra bool) {
			t.Helper()
			writes := len(s.writes)
			got, err := s.c.Drain(t.Context(), "n0001", mark, "x")
			if err != nil || got.Outcome != DrainedByUs || (len(s.writes) > writes) != extra {
				t.Fatalf("%+v %v, %d writes; node %+v", got, err, len(s.writes)-writes, s.node)
			}
		}
		look(true)
		look(false)
		s.foreign(func(n *fakeNode) { n.states[0], n.busy = "IDLE", s.now })
		look(true)
		s.foreign(func(n *fakeNode) { n.busy = s.now }) // slurmctld restarted
		look(true)
		s.foreign(func(n *fakeNode) { s.silence(n) })
		look(true)
		look(false)
		s.foreign(func(n *fakeNode) { s.answers(n); n.states[0], n.busy = "IDLE", s.now+3600 }) // ReturnToService=2
		look(true)
		s.foreign(func(n *fakeNode) { s.silence(n); n.changed += 7200 })
		look(true)
	})
}

// How a node that was given up is resumed: into service if its slurmd answers.
func TestResumeOfANodeThatWasGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do     func(s scene, n *fakeNode)
		sent   string
		want   Outcome
		states string
	}{
		"it answers":              {func(s scene, n *fakeNode) { s.silence(n); s.answers(n) }, "RESUME", Resumed, "IDLE"},
		"it is silent":            {func(s scene, n *fakeNode) { s.silence(n) }, "UNDRAIN", Undrained, "DOWN+NOT_RESPONDING"},
		"it fails":                {func(s scene, n *fakeNode) { n.states = append(n.states, "FAIL") }, "UNDRAIN", Undrained, "IDLE+NOT_RESPONDING+FAIL"},
		"silent, not given up":    {func(s scene, n *fakeNode) { n.silent = true; n.states = append(n.states, "NOT_RESPONDING") }, "RESUME", Undrained, "IDLE+NOT_RESPONDING"},
		"its slurmd dies at once": {func(s scene, n *fakeNode) { n.silent = true }, "RESUME", Undrained, "IDLE+NOT_RESPONDING"},
		"down, of an old release": {func(s scene, n *fakeNode) { n.states[0] = "DOWN" }, "RESUME", Resumed, "IDLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s scene) {
				waits := 0
				s.c.wait = func(_ context.Context, d time.Duration) error { waits++; return nil }
				if _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil {
					t.Fatal(err)
				}
				s.foreign(func(n *fakeNode) { c.do(s, n) })
				got, err := s.c.Resume(t.Context(), "n0001", mark)
				if err != nil || got.Outcome != c.want || strings.Join(got.Facts.States.Tokens(), "+") != c.states || s.node.extra != "" {
					t.Errorf("%+v %v, %s; node %+v", got, err, got.Facts.States.Tokens(), s.node)
				}
				if last := s.writes[len(s.writes)-1]; !strings.Contains(last, `"`+c.sent+`"`) || waits > askedMost {
					t.Errorf("sent %s, waited %d times", last, waits)
				}
				if got, err := s.c.Resume(t.Context(), "n0001", mark); err != nil || got.Outcome != NotDrained {
					t.Errorf("again: %+v %v", got, err)
				}
			})
		})
	}
}

// What is waited for is the slurmd only: a drain that comes meanwhile is told.
func TestADrainAfterOurResumeIsToldAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		if _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil {
			t.Fatal(err)
		}
		s.node.silent = true
		s.c.wait = func(context.Context, time.Duration) error {
			s.foreign(func(n *fakeNode) { s.drain(n); n.reason, n.changed = "smoke", s.now })
			return nil
		}
		if _, err := s.c.Resume(t.Context(), "n0001", mark); sources.KindOf(err) != sources.KindTransient || !strings.Contains(err.Error(), "smoke") {
			t.Errorf("%v; node %+v", err, s.node)
		}
		if f := until(t, s.c, "n0001", "drained", func(f *facts.Slurm) bool { return f.States.Has(facts.SlurmDrain) }); f.Reason.Value != "smoke" {
			t.Errorf("%+v", f)
		}
	})
}

// A long reason leaves room for what SLURM adds: cut off it would not be known.
func TestALongReasonOutlivesASilence(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		if _, err := s.c.Drain(t.Context(), "n0001", mark, strings.Repeat("x", 2*maxText)); err != nil {
			t.Fatal(err)
		}
		s.foreign(func(n *fakeNode) { s.silence(n) })
		if got, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil || got.Outcome != DrainedByUs {
			t.Errorf("%+v %v", got, err)
		}
	})
}
