package rack

import (
	"testing"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/workflows/act"
)

const upgrading = `steps: [{component_type: compute, stage: 1, max_parallel: 1, timeout: 1m, main_operation: {name: FirmwareControl, parameters: {poll_interval: 1m, poll_timeout: 10m}}}]`

func TestHowAnUpdateEnds(t *testing.T) {
	t.Parallel()
	running := component.Progress{State: "Running"}
	long := make([]component.Progress, 30)
	for i := range long {
		long[i] = running
	}
	for name, c := range map[string]struct {
		prepare func(*tray)
		want    string
		started int
	}{
		"well":                       {func(*tray) {}, "succeeded", 1},
		"after a while":              {func(t *tray) { t.updates = []component.Progress{running, {State: "silent"}, running} }, "succeeded", 1},
		"it was there":               {func(t *tray) { t.versions["BMC"] = "2" }, "succeeded", 0},
		"another's ends first":       {func(t *tray) { t.task = "other" }, "succeeded", 1},
		"another's does not end":     {func(t *tray) { t.task = "stuck" }, "failed FIRMWARE_BUSY", 0},
		"the BMC says it failed":     {func(t *tray) { t.updates = []component.Progress{{Failed: true, State: "Exception"}} }, "failed FIRMWARE_UPDATE_FAILED", 1},
		"it does not end":            {func(t *tray) { t.updates = long }, "failed FIRMWARE_UPDATE_TIMEOUT", 1},
		"the image is wrong":         {func(t *tray) { t.fail = always(act.Final(codes.FirmwareImageInvalid, "no")) }, "failed FIRMWARE_IMAGE_INVALID", 0},
		"lost, and it is found":      {func(t *tray) { t.after = always(act.Final(codes.FirmwareStartUnknown, "lost")) }, "succeeded", 1},
		"lost, and nothing is found": {func(t *tray) { t.deaf, t.after = true, always(act.Final(codes.FirmwareStartUnknown, "lost")) }, "failed FIRMWARE_START_UNKNOWN", 1},
		"a worker died over it":      {func(t *tray) { t.after = always(errDead) }, "succeeded", 1},
		"another version runs":       {func(t *tray) { t.deaf = true }, "failed FIRMWARE_VERSION_MISMATCH", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(ruleOf(t, "firmware_control", "upgrade", upgrading), 1, 0, 0, component.On)
			h.begun.Firmware = []report.Firmware{{ComponentType: "compute", URI: "http://images/x", Versions: map[string]string{"BMC": "2"}}}
			c.prepare(h.tray("c01"))
			env := h.suite(t)
			began := env.Now()
			h.runIn(t, env)
			h.ends(t, c.want)
			if len(h.effects) != c.started {
				t.Errorf("effects %v", h.effects)
			}
			if took := env.Now().Sub(began); took > 25*time.Minute {
				t.Errorf("it took %s", took)
			}
			if c.want != "succeeded" && h.components[100].Status != report.Failed {
				t.Errorf("the component is %+v", h.components[100])
			}
		})
	}
}

// Firmware that comes alive by the restart of its step is waited for there, where
// the BMC has no task of it.
func TestFirmwareThatComesAliveByARestart(t *testing.T) {
	t.Parallel()
	staged := component.Progress{Gone: true, Text: "the BMC has no task of it"}
	for name, c := range map[string]struct{ post, want string }{
		"the step restarts it": {"post_operation: [{name: PowerControl, parameters: {operation: restart}}]", "succeeded"},
		"nothing restarts it":  {"", "failed FIRMWARE_UPDATE_TIMEOUT"},
		"it is only looked at": {`post_operation: [{name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: "on"}}]`, "failed FIRMWARE_UPDATE_TIMEOUT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(ruleOf(t, "firmware_control", "upgrade", `steps:
- component_type: compute
  stage: 1
  main_operation: {name: FirmwareControl, parameters: {poll_interval: 1m, poll_timeout: 10m}}
  `+c.post), 1, 0, 0, component.On)
			h.begun.Firmware = []report.Firmware{{ComponentType: "compute", URI: "http://images/x", Versions: map[string]string{"BMC": "2"}}}
			for range 20 {
				h.tray("c01").updates = append(h.tray("c01").updates, staged)
			}
			h.run(t)
			h.ends(t, c.want)
		})
	}
}

func always(err error) func(string) error { return func(string) error { return err } }

func TestAnUpdateNeedsAnImage(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "firmware_control", "upgrade", upgrading), 1, 0, 0, component.On)
	h.begun.Firmware = []report.Firmware{{ComponentType: "compute", URI: "http://images/x"}}
	h.run(t)
	h.ends(t, "failed FIRMWARE_UPDATE_REFUSED")
}
