package slurm

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func removeStatic(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	for _, job := range []string{mark, mark, "muster:43"} { // again, and for a later job
		got, err := c.Remove(t.Context(), node, job)
		if err != nil || got.Outcome != Removed || got.Facts.DrainMark != mark || !got.Facts.States.Has(facts.SlurmDrain) {
			t.Fatalf("%s: %+v %v", job, got, err)
		}
	}
	got, err := c.Register(t.Context(), node, "muster:44")
	if err != nil || got.Outcome != Resumed || got.Facts.States.Has(facts.SlurmDrain) {
		t.Fatalf("%+v %v", got, err)
	}
	if got, err := c.Register(t.Context(), node, "muster:44"); err != nil || got.Outcome != NotDrained {
		t.Errorf("again: %+v %v", got, err)
	}
	f := until(t, c, node, "in service", func(f *facts.Slurm) bool { return f.States&(facts.SlurmNotResponding|facts.SlurmDrain) == 0 })
	if f.Extra != "" || f.Comment != "" {
		t.Errorf("our mark is left: %+v", f)
	}
}

func removeForeign(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	p.admin(t, node, "drain", "bad HBM")
	got, err := c.Remove(t.Context(), node, mark)
	if err != nil || got.Outcome != DrainedByOther || got.Facts.Reason.Value != "bad HBM" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := c.Register(t.Context(), node, mark); sources.KindOf(err) != sources.KindConflict {
		t.Errorf("register: %v", err)
	}
	f := until(t, c, node, "readable", func(*facts.Slurm) bool { return true })
	if !f.States.Has(facts.SlurmDrain) || f.Reason.Value != "bad HBM" || f.Extra+f.Comment != "" {
		t.Errorf("the foreign drain was touched: %+v", f)
	}
	p.admin(t, node, "resume", "")
}

func removeDynamic(t *testing.T, p peer) {
	c := connect(t, p, nil)
	name := fmt.Sprintf("dyn%d", time.Now().UnixNano()%1e9)
	p.dynamic(t, name)
	for range 2 { // the second time it is gone
		if got, err := c.Remove(t.Context(), name, mark); err != nil || got.Outcome != Removed || got.Facts.Listed != facts.False {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if _, err := c.Get(t.Context(), name); !errors.Is(err, sources.ErrGone) {
		t.Errorf("it is still there: %v", err)
	}
}

func registerDynamic(t *testing.T, p peer) {
	c := connect(t, p, nil)
	name := fmt.Sprintf("dyn%d", time.Now().UnixNano()%1e9)
	for i, want := range []Outcome{Created, NotDrained} {
		got, err := c.Register(t.Context(), name, mark)
		if err != nil || got.Outcome != want || got.Facts.States&dynamic == 0 {
			t.Fatalf("%d: %+v %v", i, got, err)
		}
	}
	if got, err := c.Remove(t.Context(), name, mark); err != nil || got.Outcome != Removed {
		t.Errorf("%+v %v", got, err)
	}
}

func registerUnknown(t *testing.T, p peer) {
	if p.has(creates) {
		t.Skip("this API makes nodes")
	}
	_, err := connect(t, p, nil).Register(t.Context(), "nosuchnode", mark)
	if !errors.Is(err, ErrNotCapable) || sources.KindOf(err) != sources.KindRefused {
		t.Errorf("%v", err)
	}
}

func removeBusy(t *testing.T, p peer) {
	c := connect(t, p, nil)
	node, end := p.work(t)
	until(t, c, node, "busy", func(f *facts.Slurm) bool { return f.States&working != 0 })
	for range 2 {
		if got, err := c.Remove(t.Context(), node, mark); err != nil || got.Outcome != Draining {
			t.Errorf("%+v %v", got, err)
		}
	}
	end()
	until(t, c, node, "without work", func(f *facts.Slurm) bool { return f.States&working == 0 })
	if got, err := c.Remove(t.Context(), node, mark); err != nil || got.Outcome != Removed {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := c.Register(t.Context(), node, mark); err != nil || got.Outcome != Resumed {
		t.Errorf("%+v %v", got, err)
	}
}
