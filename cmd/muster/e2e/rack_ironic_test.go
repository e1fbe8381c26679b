package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// ofIronic are the trays that Ironic has; the last of them is in maintenance by
// muster.
var ofIronic = []string{"x1-c01", "x1-c02", "x1-c03"}

// Trays that Ironic manages are switched by it, and those that it leaves alone
// past it: it does not undo what was done.
func TestTraysOfIronicAreSwitchedByIt(t *testing.T) {
	t.Parallel()
	needPeers(t)
	findBMCs(t) // those of this rack are its own
	binary := buildWorking(t)
	c := &chain{world: &world{ironic: startIronic(t, "IRONIC_POWER_SYNC=4"), nodes: map[string]string{}}}
	r := newRackSite(t, binary, c.ironic.url)
	c.connect(t, r.bmcs)
	for i, name := range ofIronic {
		c.enrol(t, r.bmcs, name, r.bmcs.addresses[i], i+1)
	}
	held := ofIronic[len(ofIronic)-1]
	if err := c.ironic.Hold(t.Context(), c.nodes[held], "muster: a test"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "the nodes to be known", func() error {
		var n int
		err := r.rows.QueryRow(t.Context(), "select count(*) from devices where name = any($1) and infrastructure_ref <> ''", ofIronic).Scan(&n)
		if err == nil && n != len(ofIronic) {
			err = fmt.Errorf("%d are", n)
		}
		return err
	})
	r.bind(t)

	mark := r.journal.mark(t)
	is := r.over(t, r.operate(t, "power_on", "x1", "--components", "compute", "--reason", "test"), "succeeded")
	is.left(t, func(string) (string, string, []string) { return "succeeded", "", []string{"On"} })
	did := r.journal.deeds(t, mark)
	wereSent(t, did, "On", ofIronic...)
	inFlight(t, did)
	whoSent(t, did, held)

	mark = r.journal.mark(t)
	is = r.over(t, r.operate(t, "power_off", "x1", "--components", "compute", "--reason", "test"), "succeeded")
	is.left(t, func(string) (string, string, []string) { return "succeeded", "", []string{"Off"} })
	did = r.journal.deeds(t, mark)
	wereSent(t, did, "GracefulShutdown", of("compute")...)
	inFlight(t, did)
	whoSent(t, did, held)

	// Ironic looks at its nodes again and again, and finds them as they should be.
	quiet := r.journal.mark(t)
	r.until(t, "Ironic to have looked twice", func() error {
		looks := 0
		for _, a := range r.journal.all(t)[quiet:] {
			if a.machine() == ofIronic[0] && a.told() != "" {
				looks++
			}
		}
		if looks < 2 {
			return fmt.Errorf("it has looked %d times", looks)
		}
		return nil
	})
	for _, d := range r.journal.deeds(t, quiet) {
		t.Errorf("%s was sent %s afterwards by %s", d.machine, d.reset, d.agent)
	}
}

// whoSent checks that Ironic told those trays that it has, but for the one that is
// held, and muster the others.
func whoSent(t *testing.T, did []deed, held string) {
	t.Helper()
	for i := range did {
		ofIts := did[i].machine < held
		if byIronic := strings.Contains(did[i].agent, "python"); byIronic != ofIts {
			t.Errorf("%s was told by %s: by Ironic %v, want %v", did[i].machine, did[i].agent, byIronic, ofIts)
		}
	}
}
