package world

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

func living(t *testing.T, dir string, h *hand) *World {
	t.Helper()
	w, err := Open(Options{Dir: dir, Shape: Shape{Sites: 2, Racks: 2}, Clock: h.now, Lives: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// happened lists what a world has lived through, of all kinds.
func happened(t *testing.T, w *World) (ops map[string]int, rows string) {
	t.Helper()
	ops = map[string]int{}
	var all []any
	w.Read(func(s *State) {
		for _, n := range s.Nodes.All() {
			all = append(all, n)
		}
		for _, m := range s.Machines.All() {
			all = append(all, m)
		}
		for _, l := range s.lives.All() {
			all = append(all, l)
			for _, one := range l.Troubles {
				ops[one.Kind]++
			}
		}
	})
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return ops, string(text)
}

// Two worlds of one seed live the same life, however often somebody looks; every
// kind of thing happens in time; nothing of it counts as asked from outside.
func TestLifeIsTheSameAgain(t *testing.T) {
	t.Parallel()
	h1, h2 := start(), start()
	often, seldom := living(t, t.TempDir(), h1), living(t, t.TempDir(), h2)
	seen := map[string]int{}
	for range 6 * 60 {
		h1.at = h1.at.Add(10 * time.Second)
		ops, _ := happened(t, often)
		for op := range ops {
			seen[op]++
		}
	}
	h2.at = h1.at
	_, a := happened(t, often)
	_, b := happened(t, seldom)
	if a != b {
		t.Error("who looks more often sees another life")
	}
	for _, h := range happenings() {
		if h.mend != nil && seen[h.name] == 0 {
			t.Errorf("in an hour never %s", h.name)
		}
	}
	for _, e := range often.Effects(0) {
		if e.Face != FaceMachine {
			t.Errorf("nobody asked for %+v", e)
		}
	}
}

// Something visible changes often enough to be watched, and the fleet does not
// run down: hours later customers still have about as much as before.
func TestLifeGoesOn(t *testing.T) {
	t.Parallel()
	h := start()
	w := living(t, "", h)
	rented := func() (n int) {
		w.Read(func(s *State) {
			for _, m := range s.Machines.All() {
				if s.rented(m) != nil {
					n++
				}
			}
		})
		return n
	}
	first, steps := rented(), func() (n uint64) {
		w.Read(func(s *State) {
			for _, l := range s.lives.All() {
				n += l.Step
			}
		})
		return n
	}
	h.at = h.at.Add(time.Hour)
	if n := steps(); n < 200 || n > 500 {
		t.Errorf("%d things happened in an hour", n)
	}
	h.at = h.at.Add(2 * time.Hour)
	if last := rented(); last < first/3 {
		t.Errorf("customers have %d machines, it were %d", last, first)
	}
	w.Read(func(s *State) {
		for _, n := range s.Nodes.All() {
			if n.ProvisionState == DeployFailed || n.ProvisionState == Failed {
				t.Logf("%s is %s: %s", n.Name, n.ProvisionState, n.LastError)
			}
		}
	})
}

// What somebody outside acted on is left alone for a while.
func TestLifeLeavesAlone(t *testing.T) {
	t.Parallel()
	h := start()
	w := living(t, "", h)
	var all []*Machine
	w.Read(func(s *State) {
		for _, m := range s.Machines.Of("sim1") {
			all = append(all, m)
		}
	})
	for _, m := range all {
		if err := w.Do(Effect{Face: FaceControl, Site: m.Site, Op: "look", Subject: m.Name}, func(*State) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	_, before := machines(w, "sim1")
	h.at = h.at.Add(handsOff - time.Second)
	if _, after := machines(w, "sim1"); !reflect.DeepEqual(before, after) {
		t.Error("something happened to a machine that is being worked on")
	}
	h.at = h.at.Add(handsOff)
	if _, after := machines(w, "sim1"); reflect.DeepEqual(before, after) {
		t.Error("it is left alone for good")
	}
}

// machines gives the rows of a site's machines and nodes.
func machines(w *World, site string) (nodes []*Node, rows []*Machine) {
	w.Read(func(s *State) {
		for _, m := range s.Machines.Of(site) {
			rows = append(rows, m)
		}
		for _, n := range s.Nodes.Of(site) {
			nodes = append(nodes, n)
		}
	})
	return nodes, rows
}

// A world that nobody asked to live is still, also where it lived before.
func TestAStillWorld(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := living(t, dir, h)
	h.at = h.at.Add(time.Minute)
	if err := w.Advance(0); err != nil {
		t.Fatal(err)
	}
	still, err := Open(Options{Dir: dir, Shape: w.Shape(), Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	before, _ := happened(t, still)
	h.at = h.at.Add(time.Hour)
	if after, _ := happened(t, still); !reflect.DeepEqual(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}
