package slurm

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func givenUp(f *facts.Slurm) bool {
	return f.States.Has(facts.SlurmDown) && f.States.Has(facts.SlurmNotResponding)
}

func responds(f *facts.Slurm) bool { return !f.States.Has(facts.SlurmNotResponding) }

func inService(f *facts.Slurm) bool {
	return f.States&(broken|facts.SlurmDrain|facts.SlurmNotResponding) == 0
}

// A drained node that was given up stays down when its slurmd is back, and from
// 24.11 on its reason is another, newer one.
func silentDrain(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.live()[0]
	p.admin(t, node, "drain", "bad HBM")
	before := until(t, c, node, "drained", func(f *facts.Slurm) bool { return f.States.Has(facts.SlurmDrain) })
	p.slurmd(t, node, false)
	f := until(t, c, node, "given up", givenUp)
	want, newer := "bad HBM : Not responding", true
	if versionNumber(p.version()) < firstWrites {
		want, newer = "bad HBM", false
	}
	if f.Reason.Value != want || f.ReasonChangedAt.After(before.ReasonChangedAt) != newer || f.DrainMark != "" {
		t.Errorf("given up: %+v, was %+v", f, before)
	}
	p.slurmd(t, node, true)
	f = until(t, c, node, "answering", responds)
	if !f.States.Has(facts.SlurmDown|facts.SlurmDrain) || f.Reason.Value != want {
		t.Errorf("back: %+v", f)
	}
	p.admin(t, node, "resume", "")
	until(t, c, node, "in service", inService)
}

// Of three nodes that we drained, whose slurmds then are silent for too long, one
// comes back, one is resumed in its silence, and one was resumed and drained
// without a reason by a person before.
func outlivesSilence(t *testing.T, p peer) {
	c, nodes := connect(t, p, nil), p.live()
	ours, silent, foreign := nodes[0], nodes[1], nodes[2]
	for _, node := range nodes {
		until(t, c, node, "in service", inService)
		if got, err := c.Drain(t.Context(), node, mark, "replace the PSU"); err != nil || got.Outcome != DrainedByUs {
			t.Fatalf("%s: %+v %v", node, got, err)
		}
	}
	p.admin(t, foreign, "resume", "")
	until(t, c, foreign, "in service", inService)
	if err := c.write(t.Context(), "drain without a reason", foreign, update{State: []string{"DRAIN"}}); err != nil {
		t.Fatal(err)
	}
	for _, node := range nodes {
		p.slurmd(t, node, false)
	}
	for _, node := range nodes {
		until(t, c, node, "given up", givenUp)
	}
	stillOurs(t, c, ours)
	if got, err := c.Resume(t.Context(), silent, mark); err != nil || got.Outcome != Undrained || !givenUp(&got.Facts) || got.Facts.States.Has(facts.SlurmDrain) || strings.Contains(got.Facts.Extra, "muster") {
		t.Errorf("resumed in its silence: %+v %v", got, err)
	}
	if got, err := c.Drain(t.Context(), foreign, mark, "x"); err != nil || got.Outcome != DrainedByOther {
		t.Errorf("drained by a person: %+v %v", got, err)
	}
	if got, err := c.Resume(t.Context(), foreign, mark); sources.KindOf(err) != sources.KindConflict || !got.Facts.States.Has(facts.SlurmDrain) {
		t.Errorf("drained by a person, resumed: %+v %v", got, err)
	}
	for _, node := range nodes {
		p.slurmd(t, node, true)
		until(t, c, node, "answering", responds)
	}
	stillOurs(t, c, ours) // whether or not SLURM took it back (ReturnToService=2)
	got, err := c.Resume(t.Context(), ours, mark)
	if err != nil || got.Outcome != Resumed || !inService(&got.Facts) || strings.Contains(got.Facts.Extra, "muster") {
		t.Errorf("resumed: %+v %v", got, err)
	}
	for _, node := range []string{silent, foreign} {
		if f := until(t, c, node, "readable", func(*facts.Slurm) bool { return true }); !inService(f) {
			p.admin(t, node, "resume", "")
			until(t, c, node, "in service", inService)
		}
	}
}

// stillOurs shows that a drain is ours in the listing, to ourselves and to nobody
// else. Another look at it records the newer reason.
func stillOurs(t *testing.T, c *Client, node string) {
	t.Helper()
	f := listAll(t, c).records[node].Slurm
	if f.DrainMark != mark || !strings.HasSuffix(f.Reason.Value, silence) {
		t.Errorf("listed: %+v", f)
	}
	if got, err := c.Resume(t.Context(), node, "muster:43"); sources.KindOf(err) != sources.KindConflict {
		t.Errorf("resumed by another job: %+v %v", got, err)
	}
	if got, err := c.Drain(t.Context(), node, mark, "x"); err != nil || got.Outcome != DrainedByUs {
		t.Errorf("drained again: %+v %v", got, err)
	}
}
