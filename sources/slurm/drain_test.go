package slurm

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

const mark = "muster:42"

// scene is a fake cluster, a client of it, and its first node.
type scene struct {
	*fake
	c    *Client
	node *fakeNode
}

func newScene(t *testing.T, generation int) scene {
	t.Helper()
	f := newFake(generation, 3)
	f.now = 1757682160
	return scene{fake: f, c: dial(t, f, nil), node: f.nodes["n0001"]}
}

// stamped is our mark with the stamp of a node's reason.
func stamped(mark string, at int64, n *fakeNode) string {
	return stamp{reasonAt: at, rested: n.busy, reason: checksum(n.reason)}.word(mark)
}

// foreign does what an administrator does with scontrol.
func (s scene) foreign(do func(n *fakeNode)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += 10
	do(s.node)
}

func each(t *testing.T, test func(t *testing.T, s scene)) {
	t.Helper()
	for _, generation := range []int{42, 45} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) { t.Parallel(); test(t, newScene(t, generation)) })
	}
}

func TestDrainAndResumeLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.node.comment, s.node.extra = "rack 7", ""
		got, err := s.c.Drain(t.Context(), "n0001", mark, "replace\n the PSU")
		if err != nil || got.Outcome != DrainedByUs || s.node.reason != "muster:42 replace the PSU" || s.node.extra != stamped(mark, 1757682160, s.node) {
			t.Fatalf("%+v %v; node %+v", got, err, s.node)
		}
		writes := len(s.writes)
		s.now += 100
		if again, err := s.c.Drain(t.Context(), "n0001", mark, "another text"); err != nil || again.Outcome != DrainedByUs || len(s.writes) != writes {
			t.Errorf("again: %+v %v, %d writes more", again, err, len(s.writes)-writes)
		}
		back, err := s.c.Resume(t.Context(), "n0001", mark)
		if err != nil || back.Outcome != Resumed || s.node.has("DRAIN") || s.node.extra != "" || s.node.comment != "rack 7" {
			t.Errorf("resume: %+v %v; node %+v", back, err, s.node)
		}
		writes = len(s.writes)
		if back, err := s.c.Resume(t.Context(), "n0001", mark); err != nil || back.Outcome != NotDrained || len(s.writes) != writes {
			t.Errorf("resume again: %+v %v", back, err)
		}
	})
}

func TestAForeignDrainIsNeverTouched(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(s scene, n *fakeNode){
		"with a reason":    func(s scene, n *fakeNode) { s.drain(n); n.reason, n.changed, n.setBy = "bad HBM", s.now, "alice" },
		"without a reason": func(s scene, n *fakeNode) { s.drain(n) },
		"that copied our mark into its reason": func(s scene, n *fakeNode) {
			s.drain(n)
			n.reason, n.changed = "muster:42 replace", s.now
		},
		"of another of our jobs": func(s scene, n *fakeNode) {
			s.drain(n)
			n.reason, n.changed = "muster:7 x", s.now
			n.extra = stamped("muster:7", s.now, n)
		},
		"of a job whose id begins like ours": func(s scene, n *fakeNode) {
			s.drain(n)
			n.reason, n.changed = "muster:421 x", s.now
			n.extra = stamped("muster:421", s.now, n)
		},
		"over a leftover of our mark": func(s scene, n *fakeNode) {
			s.drain(n)
			n.reason, n.changed = "bad HBM", s.now
			n.extra = stamped(mark, 1757682160, n)
		},
		"that repeats our reason later": func(s scene, n *fakeNode) {
			s.drain(n)
			n.reason, n.changed = "muster:42 replace", s.now
			n.extra = stamped(mark, 1757682160, n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s scene) {
				s.foreign(func(n *fakeNode) { do(s, n) })
				before := *s.node
				got, err := s.c.Drain(t.Context(), "n0001", mark, "replace")
				if err != nil || got.Outcome != DrainedByOther || !got.Facts.States.Has(facts.SlurmDrain) {
					t.Errorf("drain: %+v %v", got, err)
				}
				back, err := s.c.Resume(t.Context(), "n0001", mark)
				if sources.KindOf(err) != sources.KindConflict || back == nil || back.Outcome != DrainedByOther {
					t.Errorf("resume: %+v %v", back, err)
				}
				if len(s.writes) > 0 || s.node.reason != before.reason || s.node.extra != before.extra || !s.node.has("DRAIN") {
					t.Errorf("writes %q; node %+v", s.writes, s.node)
				}
			})
		})
	}
}

// Between our drain and our resume somebody may end our drain and begin another.
func TestADrainThatReplacedOursIsNotOurs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		if _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil {
			t.Fatal(err)
		}
		s.foreign(func(n *fakeNode) { n.reason, n.changed = "smoke", s.now })
		if _, err := s.c.Resume(t.Context(), "n0001", mark); sources.KindOf(err) != sources.KindConflict || !s.node.has("DRAIN") {
			t.Errorf("%v; node %+v", err, s.node)
		}
	})
}

func TestADrainThatComesBetweenOurWritesIsNotOurs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.before = func(f *fake, write bool) {
			if n := f.nodes["n0001"]; write && n.has("DRAIN") {
				n.reason, n.changed = "smoke", f.now+1
			}
		}
		got, err := s.c.Drain(t.Context(), "n0001", mark, "x")
		if err != nil || got.Outcome != DrainedByOther || s.node.reason != "smoke" {
			t.Errorf("%+v %v; node %+v", got, err, s.node)
		}
	})
}

func TestNotesOfOthersAreKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.node.extra, s.node.comment = `{"topology":"a"}`, "call  Bob"
		if got, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil || got.Outcome != DrainedByUs {
			t.Fatalf("%+v %v", got, err)
		}
		if s.node.extra != `{"topology":"a"}` || !strings.HasPrefix(s.node.comment, "call  Bob muster:42@") {
			t.Errorf("node %+v", s.node)
		}
		if _, err := s.c.Resume(t.Context(), "n0001", mark); err != nil || s.node.comment != "call  Bob" {
			t.Errorf("%v; node %+v", err, s.node)
		}
		s.node.comment = strings.Repeat("x", maxNotes)
		if _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); sources.KindOf(err) != sources.KindConflict || s.node.has("DRAIN") {
			t.Errorf("no room: %v; node %+v", err, s.node)
		}
	})
}

func TestAnInterruptedDrainIsFinished(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.foreign(func(n *fakeNode) { s.drain(n); n.reason, n.changed, n.extra = "muster:42 x", s.now, "muster:42" })
		got, err := s.c.Drain(t.Context(), "n0001", mark, "x")
		if err != nil || got.Outcome != DrainedByUs || s.node.extra != stamped(mark, s.node.changed, s.node) {
			t.Errorf("%+v %v; node %+v", got, err, s.node)
		}
	})
}

func TestALeftoverMarkIsClearedWithoutADrain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.node.extra = "muster:42@1/0/00000000"
		if got, err := s.c.Resume(t.Context(), "n0001", mark); err != nil || got.Outcome != NotDrained || s.node.extra != "" || strings.Contains(s.writes[0], "RESUME") {
			t.Errorf("%+v %v; %q", got, err, s.writes)
		}
	})
}

// What stands after a write is what is read, whatever the answer said.
func TestWritesAreJudgedByWhatIsReadAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		apply, fail bool // takes effect; tells a failure
		outcome     Outcome
		text        string
	}{
		"refused, but applied":      {true, true, DrainedByUs, ""},
		"accepted, but not applied": {false, false, "", "accepted the drain but shows the node as IDLE"},
		"refused and half applied":  {false, true, "", "Invalid node state specified"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 42)
			s.instead = func(w http.ResponseWriter, write bool) bool {
				n := s.nodes["n0001"]
				if !write || n.has("DRAIN") {
					return false
				}
				n.reason, n.changed, n.extra = "muster:42 x", s.now, "muster:42"
				if c.apply {
					s.drain(n)
				}
				if c.fail {
					s.fail(w, 500, 2028, "Invalid node state specified", nil)
				} else {
					s.answer(w, 200, nil)
				}
				return true
			}
			got, err := s.c.Drain(t.Context(), "n0001", mark, "x")
			if c.text == "" && (err != nil || got.Outcome != c.outcome) || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
}

func TestALostAnswerIsReadBack(t *testing.T) {
	t.Parallel()
	s := newScene(t, 42)
	lose := true
	s.instead = func(w http.ResponseWriter, write bool) bool {
		if n := s.nodes["n0001"]; write && lose {
			lose = false
			s.drain(n)
			n.reason, n.changed, n.extra = "muster:42 x", s.now, "muster:42"
			if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
				_ = conn.Close()
			}
			return true
		}
		return false
	}
	if got, err := s.c.Drain(t.Context(), "n0001", mark, "x"); err != nil || got.Outcome != DrainedByUs {
		t.Errorf("%+v %v", got, err)
	}
}

func TestAnOldAPIRefusesWritesBeforeSendingAny(t *testing.T) {
	t.Parallel()
	s := newScene(t, 38)
	asked := 0
	if _, err := s.c.Capabilities(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.before = func(*fake, bool) { asked++ }
	for name, do := range map[string]func() error{
		"drain":  func() error { _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); return err },
		"resume": func() error { _, err := s.c.Resume(t.Context(), "n0001", mark); return err },
	} {
		err := do()
		var lack *NotCapable
		if !errors.As(err, &lack) || lack.Code() != "site_not_capable" || sources.KindOf(err) != sources.KindRefused || asked != 0 {
			t.Errorf("%s: %v after %d requests", name, err, asked)
		}
	}
}

func TestWritesNeedAMarkAndAReadableNode(t *testing.T) {
	t.Parallel()
	s := newScene(t, 42)
	for _, bad := range []string{"", "42", "muster:", "muster:a b", "muster:a@1", "Muster:1"} {
		if _, err := s.c.Drain(t.Context(), "n0001", bad, "x"); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("mark %q: %v", bad, err)
		}
	}
	if _, err := s.c.Drain(t.Context(), "nope", mark, "x"); sources.KindOf(err) != sources.KindMissing {
		t.Errorf("unknown node: %v", err)
	}
	s.node.states = nil
	if _, err := s.c.Drain(t.Context(), "n0001", mark, "x"); sources.KindOf(err) != sources.KindTransient || len(s.writes) > 0 {
		t.Errorf("a node without a state: %v, %q", err, s.writes)
	}
}
