package rack

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/workflows/act"
)

// errDead is what is left of an activity whose worker was killed.
var errDead = temporal.NewHeartbeatTimeoutError()

const verifyOn = `steps: [{component_type: compute, stage: 1, main_operation: {name: VerifyPowerStatus, timeout: 30s, poll_interval: 10s, parameters: {expected_status: "on"}}}]`

// A look counts the components that were asked for: one that is not told, or told
// unknown, is not there yet.
func TestAVerifyIsNeverVacuous(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, second []string // what looks give of two trays
		dark          bool     // the second gives no answer at all
		want          string
	}{
		"both on":               {[]string{"On"}, []string{"On"}, false, "succeeded"},
		"one unknown for good":  {[]string{"On"}, []string{"", "", "", "", "", ""}, false, "partially_failed POWER_STATE_NOT_REACHED"},
		"one passing":           {[]string{"On"}, []string{"PoweringOn", "On"}, false, "succeeded"},
		"one another for good":  {[]string{"On"}, []string{"Paused", "Off", "Off", "Off", "Off", "Off"}, false, "partially_failed POWER_STATE_NOT_REACHED"},
		"one without an answer": {[]string{"On"}, nil, true, "partially_failed POWER_STATE_NOT_REACHED"},
		"on at the last look":   {[]string{"On"}, []string{"Off", "Off", "Off", "On"}, false, "succeeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(ruleOf(t, "power_control", "power_on", verifyOn), 2, 0, 0, component.On)
			h.tray("c01").looks, h.tray("c02").looks = c.first, c.second
			if c.dark {
				h.tray("c02").unread = act.Retry(codes.BMCUnreachable, "it is silent")
			}
			h.run(t)
			h.ends(t, c.want)
			if c.want == "succeeded" {
				return
			}
			if got := h.statuses(); got != "1 compute succeeded, 1 compute failed" {
				t.Error(got)
			}
			if message := h.endings[0].Message; !strings.Contains(message, "c02") || strings.Contains(message, "c01") {
				t.Errorf("it does not name the one that is late: %s", message)
			}
		})
	}
}

// A look fails only by an answer to a question that was asked at or after its
// deadline.
// A look has the time that its components take one behind the other: seven silent
// BMCs, one at a time, are more than one try of five minutes.
func TestALookLastsAsLongAsItsComponents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n, most int }{{35, 0}, {8, 1}, {18, 2}, {500, 4}} {
		in := lookIn{Parts: make([]report.Part, c.n), Most: c.most}
		rounds := (c.n + in.most() - 1) / in.most()
		if got := in.options("q", "look").StartToCloseTimeout; got < lookWithin || got < time.Duration(rounds)*oneLook {
			t.Errorf("%d components, %d at once: %s", c.n, c.most, got)
		}
	}
}

func TestAVerifyLooksOnceMoreAtItsDeadline(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_on", verifyOn), 1, 0, 0, component.Off)
	h.run(t)
	h.ends(t, "failed POWER_STATE_NOT_REACHED")
	if e := h.entries["1 compute main 0 0"]; e.Attempts != 4 { // at 0, 10, 20 and 30 s
		t.Errorf("it looked %d times", e.Attempts)
	}
}

func TestReachability(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		types    string
		all      bool
		switches int
		silent   []string
		excluded bool // c03 is beside the task and silent
		want     string
	}{
		"one of each answers":                {"compute, nvswitch", false, 1, []string{"c01"}, false, "succeeded"},
		"none of one type answers":           {"compute, nvswitch", false, 1, []string{"c01", "c02", "c03"}, false, "failed COMPONENT_NOT_REACHED"},
		"all have to, and one does not":      {"compute", true, 1, []string{"c02"}, false, "failed COMPONENT_NOT_REACHED"},
		"all have to, one beside does not":   {"compute", true, 1, []string{"c03"}, false, "failed COMPONENT_NOT_REACHED"},
		"all do":                             {"compute, nvswitch", true, 1, nil, false, "succeeded"},
		"a type that is absent is passed by": {"compute, nvswitch", true, 0, nil, false, "succeeded"},
		"all types are absent":               {"nvswitch", false, 0, nil, false, "failed COMPONENT_NOT_REACHED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf(`steps: [{component_type: powershelf, stage: 1, main_operation: {name: VerifyReachability, timeout: 30s, poll_interval: 10s, parameters: {component_types: [%s], require_all: %v}}}]`, c.types, c.all)
			h := newHall(ruleOf(t, "power_control", "power_on", text), 3, c.switches, 1, component.On)
			for _, name := range c.silent {
				h.tray(name).unread = act.Retry(codes.BMCUnreachable, "silent")
			}
			var asked []report.Part
			for _, p := range h.begun.Parts {
				if p.Type == "powershelf" {
					asked = append(asked, p)
				} else {
					h.begun.Beside = append(h.begun.Beside, p)
				}
			}
			h.begun.Parts = asked
			h.run(t)
			h.ends(t, c.want)
			e := h.entries["1 powershelf main 0 0"]
			if absent := c.switches == 0; c.want == "succeeded" && absent != strings.Contains(e.Message, "no nvswitch") {
				t.Errorf("it says %q", e.Message)
			}
			if e.Status == report.Failed && h.components[300].Status == report.Failed {
				t.Error("the shelf itself did not fail")
			}
		})
	}
}

func TestWaitingForADecommissioning(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status string
		unread error
		want   string
		within time.Duration
	}{
		"it comes":                  {"Ready", nil, "succeeded", time.Minute},
		"there already":             {"Decommissioning/Decommissioned", nil, "succeeded", time.Minute},
		"it takes too long":         {"Decommissioning/Inventory", nil, "partially_failed DECOMMISSION_TIMEOUT", time.Hour + time.Minute},
		"it is under maintenance":   {"Maintenance(offline)", nil, "partially_failed DECOMMISSION_TIMEOUT", time.Hour + time.Minute},
		"an empty answer":           {"", nil, "partially_failed DECOMMISSION_REFUSED", time.Minute},
		"a state of something else": {"Assigned", nil, "partially_failed DECOMMISSION_REFUSED", time.Minute},
		"no answer for 5 minutes":   {"Ready", act.Retry(codes.NetboxUnavailable, "away"), "partially_failed DECOMMISSION_REFUSED", 6 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(ruleOf(t, "decommission", "decommission", `steps: [{component_type: compute, stage: 1, main_operation: {name: DecommissionControl}, post_operation: [{name: WaitDecommissioned, timeout: 1h, poll_interval: 1m}]}]`), 2, 0, 0, component.On)
			one := h.tray("c01")
			one.status, one.unread = c.status, c.unread
			env := h.suite(t)
			began := env.Now()
			h.runIn(t, env)
			h.ends(t, c.want)
			if took := env.Now().Sub(began); took > c.within {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// To decommission is asked for once.
func TestADecommissioningIsAskedForOnce(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "decommission", "decommission", `steps: [{component_type: compute, stage: 1, retry: {max_attempts: 5, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: DecommissionControl}}]`), 1, 0, 0, component.On)
	tries := 0
	h.tray("c01").fail = func(string) error { tries++; return act.Retry(codes.NetboxUnavailable, "away") }
	h.run(t)
	h.ends(t, "failed NETBOX_UNAVAILABLE")
	if tries != 1 {
		t.Errorf("asked %d times", tries)
	}
}

func TestGettingThePowerStatus(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_on", `steps: [{component_type: compute, stage: 1, main_operation: {name: GetPowerStatus, timeout: 30s}}]`), 2, 0, 0, component.On)
	h.tray("c02").looks = []string{"", "", ""}
	h.run(t)
	h.ends(t, "partially_failed COMPONENT_NOT_REACHED")
	if h.components[100].LastState != component.On {
		t.Errorf("c01: %+v", h.components[100])
	}
}
