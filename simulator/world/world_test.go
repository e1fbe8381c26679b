package world

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

type hand struct{ at time.Time }

func (h *hand) now() time.Time { return h.at }

func open(t *testing.T, dir string, h *hand) *World {
	t.Helper()
	w, err := Open(Options{Dir: dir, Shape: Shape{Sites: 1, Racks: 1}, Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func tray(t *testing.T, w *World) (m *Machine) {
	t.Helper()
	w.Read(func(s *State) { m = s.Machines.Get("sim1/sim1-r01-n01") })
	if m == nil {
		t.Fatal("the first NVLink switch is not there")
	}
	return m
}

func start() *hand { return &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

// What was done is there again after a start that nothing announced, and what
// was under way goes on.
func TestTheWorldIsThereAgain(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := open(t, dir, h)
	before := tray(t, w)
	if err := w.Do(Effect{Face: "redfish", Op: "reset ForceOff", Subject: before.Name}, func(s *State) error {
		s.Switch(s.Machines.Get(before.Key()), "reset ForceOff", false)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.Advance(time.Hour - PowerDelay); err != nil {
		t.Fatal(err)
	}
	h.at = h.at.Add(PowerDelay / 2)

	again := open(t, dir, h) // the first one was never closed
	if now := again.Now(); !now.Equal(w.Now()) {
		t.Errorf("it is %s, before it was %s", now, w.Now())
	}
	m := tray(t, again)
	if m.UUID != before.UUID || m.On || m.Resets != 1 {
		t.Errorf("the tray is %+v", m)
	}
	if effects := again.Effects(0); len(effects) != 3 || effects[0].Op != "reset ForceOff" || effects[1].Face != FaceMachine {
		t.Errorf("effects are %+v", effects)
	}
}

// A change that fails leaves nothing, in memory or on the disk.
func TestWhatFailsChangesNothing(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := open(t, dir, h)
	key := tray(t, w).Key()
	refused := errors.New("refused")
	err := w.Do(Effect{Face: "redfish", Op: "reset", Subject: key}, func(s *State) error {
		s.Switch(s.Machines.Get(key), "reset", false)
		s.Machines.Delete("sim1/sim1-r01-c02")
		return refused
	})
	if !errors.Is(err, refused) {
		t.Fatal(err)
	}
	h.at = h.at.Add(time.Minute)
	w.Read(func(s *State) {
		if m := s.Machines.Get(key); !m.On || m.Resets != 0 || len(m.Moves) != 0 {
			t.Errorf("the tray is %+v", m)
		}
		if s.Machines.Get("sim1/sim1-r01-c02") == nil {
			t.Error("a deleted row is not back")
		}
	})
	if n := len(w.Effects(0)); n != 0 {
		t.Errorf("%d effects are told", n)
	}
}

// A line that a crash has cut was never answered for; a directory of another
// fleet is refused.
func TestATornJournalAndAnotherShape(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := open(t, dir, h)
	if err := w.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, journalName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, []byte(`{"effects":[{"face":"con`)...), 0o600); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir, h)
	if n := len(again.Effects(0)); n != 1 {
		t.Errorf("%d effects are there", n)
	}
	if err := again.Advance(time.Minute); err != nil {
		t.Fatal(err)
	}
	if now := open(t, dir, h).Now(); !now.Equal(h.at.Add(2 * time.Minute)) {
		t.Errorf("it is %s", now)
	}
	var shape *ShapeError
	if _, err := Open(Options{Dir: dir, Shape: Shape{Sites: 2}, Clock: h.now}); !errors.As(err, &shape) {
		t.Errorf("another shape: %v", err)
	}
}

// The same seed gives the same fleet, another one other identities.
func TestIdentitiesComeFromTheSeed(t *testing.T) {
	t.Parallel()
	h := start()
	a, b := open(t, "", h), open(t, "", h)
	c, err := Open(Options{Shape: Shape{Seed: 7, Sites: 1, Racks: 1}, Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	if tray(t, a).Serial != tray(t, b).Serial || tray(t, a).Serial == tray(t, c).Serial {
		t.Errorf("serials are %s, %s and %s", tray(t, a).Serial, tray(t, b).Serial, tray(t, c).Serial)
	}
}

// Timers run in their order, at their instants, however late somebody looks.
func TestTimersRunInOrder(t *testing.T) {
	t.Parallel()
	h := start()
	w := open(t, "", h)
	key := tray(t, w).Key()
	if err := w.Do(Effect{Face: "redfish", Op: "reset ForceRestart", Subject: key}, func(s *State) error {
		s.Switch(s.Machines.Get(key), "reset ForceRestart", false, true)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	h.at = h.at.Add(PowerDelay)
	if tray(t, w).On {
		t.Error("it is on while it restarts")
	}
	began := h.at
	h.at = h.at.Add(time.Hour)
	if m := tray(t, w); !m.On || !m.LastReset.Equal(began.Add(PowerDelay)) {
		t.Errorf("the tray is %+v", m)
	}
}

// A long journal is shortened when it is opened, and leads to the same.
func TestALongJournalIsShortened(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := open(t, dir, h)
	key := tray(t, w).Key()
	for range 50 {
		if err := w.Do(Effect{Face: "redfish", Op: "reset", Subject: key}, func(s *State) error {
			s.Switch(s.Machines.Get(key), "reset", false, true)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		h.at = h.at.Add(time.Minute)
	}
	if err := w.Do(Effect{Face: "netbox", Op: "delete", Subject: "x"}, func(s *State) error {
		s.Machines.Delete("sim1/sim1-r01-c02")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	before, effects := tray(t, w), w.Effects(0)
	info, err := os.Stat(filepath.Join(dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one reads what the first one wrote
		again, err := Open(Options{Dir: dir, Shape: w.Shape(), Clock: h.now, Long: 1})
		if err != nil {
			t.Fatal(err)
		}
		if after := tray(t, again); fmt.Sprint(before) != fmt.Sprint(after) {
			t.Errorf("before %+v, after %+v", before, after)
		}
		if !reflect.DeepEqual(effects, again.Effects(0)) {
			t.Error("the effects are others")
		}
		again.Read(func(s *State) {
			if s.Machines.Get("sim1/sim1-r01-c02") != nil {
				t.Error("what was deleted is there again")
			}
		})
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	short, err := os.Stat(filepath.Join(dir, journalName))
	if err != nil || short.Size() >= info.Size()/2 {
		t.Errorf("it was %d bytes long and is %d, %v", info.Size(), short.Size(), err)
	}
}
