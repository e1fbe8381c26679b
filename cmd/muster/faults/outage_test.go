package faults

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/world"
)

// slurmctld knows no state of any node for seconds after its start.
func TestARestartOfSLURMsControllerMovesNobody(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 1)
	stored, unread := r.rows(t), r.unread(t)
	r.edit(t, func(s *world.State) { s.SlurmController(siteName, true, false) })
	r.read(t, "slurm")
	r.unchanged(t, stored)
	if m := r.mark(t, "slurm"); m.FailingSince.IsZero() || m.Reason != "SchedulerUnreachable" {
		t.Errorf("the controller is down: %+v", m)
	}
	r.edit(t, func(s *world.State) { s.SlurmController(siteName, false, false) })
	r.read(t, "slurm")
	for _, line := range unmirrored(stored).differ(unmirrored(r.rows(t))) {
		t.Errorf("the nodes are UNKNOWN, and %s", line)
	}
	if text := fmt.Sprint(r.unread(t)); !strings.Contains(text, "StateUnknown") {
		t.Errorf("the nodes are UNKNOWN, and unread is %s", text)
	}
	eventually(t, "the nodes are known again", func() error {
		r.read(t, "slurm")
		if lines := unread.differ(r.unread(t)); len(lines) > 0 {
			return fmt.Errorf("unread: %q", lines)
		}
		return nil
	})
	r.unchanged(t, stored)
}

// mirrored is what is shown of a device as SLURM said it last.
var mirrored = regexp.MustCompile(`"slurm_states": \[[^]]*\], `)

func unmirrored(all rows) rows {
	plain := rows{}
	for key, value := range all {
		plain[key] = mirrored.ReplaceAllString(value, "")
	}
	return plain
}

// silence takes the BMCs of so many of the polled machines off the network, or
// brings them back.
func (r *replica) silence(t *testing.T, machines []string, dead bool) {
	t.Helper()
	r.edit(t, func(s *world.State) {
		for _, name := range machines {
			s.EditMachine(s.Machines.Get(world.Key(siteName, siteName+"-r01-"+name)), func(m *world.Machine) { m.BMC.Dead = dead })
		}
	})
}

// Where most BMCs are silent the fault is rather the network's: nothing is
// written of anybody. Where few are, they are.
func TestACutNetworkOfBMCsSaysNothingOfTheMachines(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", len(polled))
	stored, unread := r.rows(t), r.unread(t)
	r.silence(t, polled[:4], true)
	for range 4 { // more rounds than it takes to call a BMC unreachable
		r.read(t, "bmc")
	}
	r.unchanged(t, stored)
	if lines := unread.differ(r.unread(t)); len(lines) > 0 {
		t.Errorf("of BMCs that may be well is written %q", lines)
	}
	if m := r.mark(t, "bmc"); m.FailingSince.IsZero() {
		t.Errorf("%+v", m)
	}

	r.silence(t, polled[:3], false)
	r.read(t, "bmc")
	r.unchanged(t, stored)
	if n := len(unread.differ(r.unread(t))); n == 0 || n > 3 {
		t.Errorf("one BMC is silent, and %d rows are unread", n)
	}
	r.read(t, "bmc")
	r.read(t, "bmc")
	if n := r.scalar(t, "select count(*) from conditions where type = 'BmcReachable' and status = 'False'"); n != 1 {
		t.Errorf("%d BMCs are called unreachable after three rounds of silence", n)
	}

	r.silence(t, polled[:4], false)
	r.read(t, "bmc")
	now := r.rows(t)
	for key := range now {
		if strings.Contains(key, "BmcReachable") {
			stored[key], now[key] = "", "" // its transition is of now
		}
	}
	for _, line := range stored.differ(now) {
		t.Errorf("all BMCs answer again, and %s", line)
	}
}

// A login that BMCs refuse is not tried for ever, says nothing of the machines,
// and is tried again once its secret is another.
func TestALoginThatBMCsRefuseSaysNothingOfTheMachines(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "", 2)
	stored, unread := r.rows(t), r.unread(t)
	r.fault(t, faultproxy.Rule{Kind: faultproxy.Status, Code: 401, Face: "redfish"})
	for range 4 {
		r.read(t, "bmc")
	}
	r.unchanged(t, stored)
	if text := fmt.Sprint(r.unread(t)); !strings.Contains(text, "BmcCredentialRefused") {
		t.Errorf("unread: %s", text)
	}
	r.rules.Clear()
	r.read(t, "bmc")
	r.unchanged(t, stored)
	for _, password := range []string{"another", "simulator-0"} {
		must(t, os.WriteFile(r.secret("bmc"), []byte("admin:"+password), 0o600))
		r.read(t, "bmc")
		r.unchanged(t, stored)
	}
	for _, line := range unread.differ(r.unread(t)) {
		t.Errorf("the login is accepted again, and %s", line)
	}
}
