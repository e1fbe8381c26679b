package slurm

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/sources"
)

// A deletion and a creation whose answers are lost are found by reading.
func TestALostAnswerToAMembershipIsFoundByReading(t *testing.T) {
	t.Parallel()
	s := newScene(t, 45)
	s.dynamic("dyn1")
	s.after = func(http.ResponseWriter) { panic(http.ErrAbortHandler) }
	if got, err := s.c.Remove(t.Context(), "dyn1", mark); err != nil || got.Outcome != Removed {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := s.c.Register(t.Context(), "dyn1", mark); err != nil || got.Outcome != Created {
		t.Errorf("%+v %v", got, err)
	}
	deleted := slices.DeleteFunc(slices.Clone(s.writes), func(w string) bool {
		return !strings.HasPrefix(w, "DELETE") && !strings.HasPrefix(w, "NEW")
	})
	if !slices.Equal(deleted, []string{"DELETE dyn1", `NEW {"node_conf":"NodeName=dyn1 State=CLOUD"}`}) {
		t.Errorf("written: %q", s.writes)
	}
}

// A dynamic node under somebody else's drain, or with work on it, is not deleted.
func TestADynamicNodeIsDeletedOnlyWhenItIsOursAndIdle(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		for name, test := range map[string]struct {
			do   func(n *fakeNode)
			want Outcome
		}{
			"dyn-foreign": {func(n *fakeNode) { s.drain(n); n.reason, n.changed = "bad HBM", s.now }, DrainedByOther},
			"dyn-busy":    {func(n *fakeNode) { n.states[0] = "ALLOCATED" }, Draining},
		} {
			s.dynamic(name)
			test.do(s.nodes[name])
			got, err := s.c.Remove(t.Context(), name, mark)
			if err != nil || got.Outcome != test.want || s.nodes[name] == nil {
				t.Errorf("%s: %+v %v", name, got, err)
			}
		}
		for _, write := range s.writes {
			if strings.HasPrefix(write, "DELETE") {
				t.Errorf("written: %s", write)
			}
		}
	})
}

// A deletion that SLURM refuses is told.
func TestARefusedDeletionIsTold(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		s.dynamic("dyn1")
		s.before = func(f *fake, write bool) {
			f.instead = nil
			if n := f.nodes["dyn1"]; write && n.has("DRAIN") && n.extra != "" && strings.Contains(n.extra, "@") {
				f.instead = func(w http.ResponseWriter, _ bool) bool {
					f.fail(w, f.refuse(), 2010, "Invalid user id", nil)
					return true
				}
			}
		}
		if got, err := s.c.Remove(t.Context(), "dyn1", mark); sources.KindOf(err) != sources.KindForbidden {
			t.Errorf("%+v %v", got, err)
		}
	})
}

// A drain that somebody else ended leaves our mark, which registering clears.
func TestRegisteringClearsAMarkThatIsLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s scene) {
		if _, err := s.c.Remove(t.Context(), "n0001", mark); err != nil {
			t.Fatal(err)
		}
		s.foreign(func(n *fakeNode) { s.resume(n, "RESUME"); n.without("NOT_RESPONDING") })
		got, err := s.c.Register(t.Context(), "n0001", "muster:99")
		if err != nil || got.Outcome != NotDrained || s.node.extra != "" {
			t.Errorf("%+v %v; extra %q", got, err, s.node.extra)
		}
	})
}

func TestMembershipNeedsAnAPIThatWrites(t *testing.T) {
	t.Parallel()
	s := newScene(t, 38)
	for name, do := range map[string]func() error{
		"remove":   func() error { _, err := s.c.Remove(t.Context(), "n0001", mark); return err },
		"register": func() error { _, err := s.c.Register(t.Context(), "n0001", mark); return err },
	} {
		if err := do(); !errors.Is(err, ErrNotCapable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "n[1-2]", "all"} {
		if _, err := newScene(t, 45).c.Register(t.Context(), name, mark); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("%q: %v", name, err)
		}
	}
}
