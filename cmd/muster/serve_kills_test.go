package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/world"
)

// quickDown and quickUp are the graceful rules with waits as short as what a
// simulated machine takes.
const (
	quickDown = `{"steps": [
		{"component_type": "compute", "stage": 1, "max_parallel": 6, "timeout": "10s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOff + `]},
		{"component_type": "nvswitch", "stage": 2, "max_parallel": 3, "timeout": "10s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOff + `]},
		{"component_type": "powershelf", "stage": 3, "max_parallel": 2, "timeout": "10s", "retry": ` + quickRetry + `, "pre_operation": [{"name": "Sleep", "parameters": {"duration": "3s"}}],
			"main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOff + `]}]}`
	quickUp = `{"steps": [
		{"component_type": "powershelf", "stage": 1, "max_parallel": 2, "timeout": "10s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOn + `,
			{"name": "VerifyReachability", "timeout": "5s", "poll_interval": "1s", "parameters": {"component_types": ["compute", "nvswitch"]}}]},
		{"component_type": "nvswitch", "stage": 2, "max_parallel": 3, "timeout": "10s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOn + `]},
		{"component_type": "compute", "stage": 3, "max_parallel": 6, "timeout": "10s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOn + `]}]}`
	quickRestart = `{"steps": [{"component_type": "nvswitch", "stage": 1, "timeout": "20s", "retry": ` + quickRetry + `, "main_operation": {"name": "PowerControl"}, "post_operation": [` + quickOn + `]}]}`
	quickRetry   = `{"max_attempts": 2, "initial_interval": "1s", "backoff_coefficient": 1}`
	quickOff     = `{"name": "VerifyPowerStatus", "timeout": "8s", "poll_interval": "1s", "parameters": {"expected_status": "off"}}`
	quickOn      = `{"name": "VerifyPowerStatus", "timeout": "8s", "poll_interval": "1s", "parameters": {"expected_status": "on"}}`
)

// quickRack is a plant whose first rack is operated by quick rules.
func quickRack(t *testing.T) (*plant, *replica) {
	t.Helper()
	p, worker := rackPlant(t)
	for operation, rule := range map[string]string{"power_off": quickDown, "power_on": quickUp, "restart": quickRestart, "warm_reset": quickRestart} {
		p.defaultRule(t, "power_control", operation, rule)
	}
	return p, worker
}

// switched counts how often each machine of the rack was switched, since an
// effect; the next question is asked since next.
func (p *plant) switched(t *testing.T, since int) (did map[string]int, next int) {
	t.Helper()
	all, err := p.control.Effects(t.Context(), since, "")
	if err != nil {
		t.Fatal(err)
	}
	did = map[string]int{}
	for _, e := range all.Effects {
		if e.Face == world.FaceMachine && strings.HasPrefix(e.Subject, "sim1-r01-") {
			did[strings.TrimPrefix(e.Subject, "sim1-r01-")]++
		}
	}
	return did, all.Next
}

// happens waits for something to be done to a machine of the rack.
func (p *plant) happens(t *testing.T, since int, name string, times int) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if did, _ := p.switched(t, since); did[name] >= times {
			return
		}
	}
	t.Fatalf("waited in vain for %s to be switched %d times", name, times)
}

// TestARackOutlivesItsWorkers kills the worker in every phase of an operation, and
// counts what was done to the machines.
func TestARackOutlivesItsWorkers(t *testing.T) {
	t.Parallel()
	p, worker := quickRack(t)
	replace := func() {
		worker.kill(t)
		worker = p.serve(t, "worker")
	}
	const override = "--override=the customers know"
	at := func(kind, action string) string {
		return fmt.Sprintf("component_type = '%s' and action = '%s'", kind, action)
	}
	for _, c := range []struct {
		operation string
		moments   []struct{ what, entries string }
	}{
		{"power_off", []struct{ what, entries string }{
			{"trays between commands", "count(*) filter (where " + at("compute", "PowerControl") + " and status = 'succeeded') >= 3"},
			{"the look at the trays", "bool_and(status = 'succeeded') filter (where " + at("compute", "PowerControl") + ")"},
			{"the sleep", "bool_and(status = 'running') filter (where action = 'Sleep')"},
			{"shelves between commands", "count(*) filter (where " + at("powershelf", "PowerControl") + " and status = 'succeeded') >= 2"},
		}},
		{"power_on", []struct{ what, entries string }{
			{"the wait for who is fed", "bool_and(status <> '') filter (where action = 'VerifyReachability')"},
			{"trays between commands", "count(*) filter (where " + at("compute", "PowerControl") + " and status = 'succeeded') >= 7"},
		}},
	} {
		_, since := p.switched(t, 0)
		task := p.operate(t, c.operation, "sim1-r01", override)
		for _, m := range c.moments {
			p.until(t, m.what, "select (select job_ended(status) from tasks where id = $1) or coalesce("+m.entries+", false) from task_entries where task_id = $1", task)
			replace()
		}
		p.taskEnds(t, task, "succeeded")
		did, _ := p.switched(t, since)
		for name, n := range did {
			if n != 1 {
				t.Errorf("%s: %s was switched %d times", c.operation, name, n)
			}
		}
		if len(did) < 30 { // a few were so before
			t.Errorf("%s: %d machines were switched: %v", c.operation, len(did), did)
		}
	}

	// A restart is an off and an on, each once, wherever the worker dies.
	for times := 1; times <= 2; times++ {
		_, since := p.switched(t, 0)
		task := p.operate(t, "restart", "sim1-r01", override, "--components", "sim1-r01-n01")
		p.happens(t, since, "n01", times)
		replace()
		p.taskEnds(t, task, "succeeded")
		if did, _ := p.switched(t, since); did["n01"] != 2 || len(did) != 1 {
			t.Errorf("killed at its switch %d: a restart did %v", times, did)
		}
	}

	// A warm reset is sent once: that it happened is told by its marker.
	_, since := p.switched(t, 0)
	task := p.operate(t, "warm_reset", "sim1-r01", override, "--components", "sim1-r01-n02")
	p.happens(t, since, "n02", 1)
	replace()
	p.taskEnds(t, task, "succeeded")
	if did, _ := p.switched(t, since); did["n02"] != 1 || len(did) != 1 {
		t.Errorf("a warm reset did %v", did)
	}
}

// saysPower has a BMC say of its power what need not be so.
func (p *plant) saysPower(t *testing.T, device, state string) {
	t.Helper()
	f := control.Fault{Device: device, State: state}
	f.Kind = faultproxy.Kind("bmc-says")
	if _, err := p.control.Fault(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// TestARackThatFailsHalfWaySaysHowItWasLeft operates a rack with a machine that
// does not do what it is told, and with shelves that lie.
func TestARackThatFailsHalfWaySaysHowItWasLeft(t *testing.T) {
	t.Parallel()
	p, _ := quickRack(t)
	const override = "--override=the customers know"
	up := p.operate(t, "power_on", "sim1-r01", "--reason", "test") // whatever was off
	p.taskEnds(t, up, "succeeded")
	every := func(letter string, n int, text string, into map[string]string) {
		for i := range n {
			into[fmt.Sprintf("%s%02d", letter, i+1)] = text
		}
	}

	// One switch is deaf: those beside it come to their end, the shelves keep the rack
	// fed, and of each component it is told how it was left.
	p.fault(t, "bmc-deaf", "sim1-r01-n03")
	_, since := p.switched(t, 0)
	task := p.operate(t, "power_off", "sim1-r01", override)
	p.taskEnds(t, task, "partially_failed POWER_STATE_NOT_REACHED")
	want := map[string]string{}
	every("c", 18, "succeeded Off", want)
	every("n", 9, "succeeded Off", want)
	every("p", 8, "On", want)
	want["n03"] = "failed POWER_STATE_NOT_REACHED On"
	same(t, "one is deaf", p.left(t, task), want)
	did, since := p.switched(t, since)
	if len(did) != 18+8 || did["n03"]+did["p01"] != 0 {
		t.Errorf("switched: %v", did)
	}
	report := p.run(t, "operation", "show", fmt.Sprint(task))
	for _, want := range []string{
		"failure     POWER_STATE_NOT_REACHED stage 2, nvswitch: after 8s 1 component is not off: sim1-r01-n03 On", "powershelf main PowerControl        ░░░░░░░░░░░░░░░░░░░░           ",
		"sim1-r01-n03 failed, last seen On: POWER_STATE_NOT_REACHED",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("its report lacks %q:\n%s", want, report)
		}
	}
	p.fault(t, "bmc-well", "sim1-r01-n03")
	p.taskEnds(t, p.operate(t, "power_off", "sim1-r01", override), "succeeded") // what is off is left alone
	if did, since = p.switched(t, since); len(did) != 1+8 || did["n03"] != 1 {
		t.Errorf("switched again: %v", did)
	}

	// Every shelf says that it is on, and nobody is fed: nothing goes on above.
	for n := range 8 {
		p.saysPower(t, fmt.Sprintf("sim1-r01-p%02d", n+1), "On")
	}
	task = p.operate(t, "power_on", "sim1-r01", "--reason", "test")
	p.taskEnds(t, task, "failed COMPONENT_NOT_REACHED")
	left := p.left(t, task)
	if text := left["c01"]; !strings.HasPrefix(text, "unknown (") {
		t.Errorf("a tray that nobody feeds was left %q", text)
	}
	if left["p01"] != "cancelled On" {
		t.Errorf("a shelf that lies was left %q", left["p01"])
	}
	if did, _ := p.switched(t, since); len(did) != 0 {
		t.Errorf("switched: %v", did)
	}

	// A shelf that does not tell its power counts as not there yet.
	for n := range 8 {
		p.fault(t, "bmc-well", fmt.Sprintf("sim1-r01-p%02d", n+1))
	}
	p.saysPower(t, "sim1-r01-p05", "null")
	task = p.operate(t, "power_on", "sim1-r01", "--reason", "test")
	p.until(t, "its end", "select job_ended(status) from tasks where id = $1", task)
	left = p.left(t, task)
	if text := left["p05"]; !strings.HasPrefix(text, "failed ") || !strings.HasSuffix(text, " unknown") {
		t.Errorf("a shelf that does not tell was left %q", text)
	}
	if did, _ := p.switched(t, since); did["p01"] != 1 || did["n01"]+did["c01"] != 0 {
		t.Errorf("switched: %v", did)
	}
}
