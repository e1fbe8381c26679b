package rack

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/workflows/act"
)

var examples = os.DirFS("../rule/testdata/examples")

// firsts gives the kinds of components in the order of their first and last effect.
func (h *hall) firsts() (order []string) {
	for _, e := range h.effects {
		_, name, _ := strings.Cut(e, " ")
		kind := h.tray(name).Type
		if len(order) == 0 || order[len(order)-1] != kind {
			order = append(order, kind)
		}
	}
	return order
}

func TestARackGoesDownAndUpByTheExamples(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, operation, from, to string
		order                     []string
		most                      map[string]int
	}{
		{"graceful_power_off", "power_off", component.On, component.Off, []string{"compute", "nvswitch", "powershelf"}, map[string]int{"compute": 8, "nvswitch": 4, "powershelf": 1}},
		{"graceful_power_on", "power_on", component.Off, component.On, []string{"powershelf", "nvswitch", "compute"}, map[string]int{"compute": 8, "nvswitch": 4, "powershelf": 1}},
		{"forceful_power_on", "force_power_on", component.Off, component.On, []string{"powershelf", "nvswitch", "compute"}, map[string]int{"compute": 18, "nvswitch": 9, "powershelf": 8}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHall(seedRule(t, examples, c.name+".json", c.operation), 18, 9, 8, c.from)
			h.run(t)
			h.ends(t, "succeeded")
			if got := h.firsts(); !slices.Equal(got, c.order) || len(h.effects) != 35 {
				t.Errorf("%d effects in the order %v", len(h.effects), got)
			}
			for kind, most := range c.most {
				if h.most[kind] > most {
					t.Errorf("%d of %s in flight, at most %d may be", h.most[kind], kind, most)
				}
			}
			for _, one := range h.trays {
				if one.power != c.to {
					t.Errorf("%s is %s", one.Name, one.power)
				}
			}
			if got := h.statuses(); got != "18 compute succeeded, 9 nvswitch succeeded, 8 powershelf succeeded" {
				t.Error(got)
			}
			if !slices.Equal(h.children, h.closed) || len(h.children) < 3 {
				t.Errorf("children %v, closed %v", h.children, h.closed)
			}
			for key, e := range h.entries {
				if e.Status != report.Succeeded {
					t.Errorf("%s ended %s", key, e.Status)
				}
			}
		})
	}
}

const twoStages = `steps:
- {component_type: compute, stage: 1, max_parallel: 2, timeout: 1m, retry: {max_attempts: 3, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: PowerControl}}
- {component_type: nvswitch, stage: 1, timeout: 1m, main_operation: {name: PowerControl}, post_operation: [{name: Sleep, parameters: {duration: 10m}}]}
- {component_type: powershelf, stage: 2, timeout: 1m, main_operation: {name: PowerControl}}`

// One bad tray: it alone is tried again, its siblings and the other step of the
// stage come to their end, and nothing begins after the stage.
func TestOneBadTrayAmongGoodOnes(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "force_power_off", twoStages), 4, 2, 1, component.On)
	tries := 0
	h.tray("c02").fail = func(string) error { tries++; return act.Retry(codes.PowerNoEffect, "it stays on") }
	h.run(t)
	h.ends(t, "partially_failed POWER_NO_EFFECT")
	if !strings.Contains(h.endings[0].Message, "stage 1, compute: c02: it stays on") {
		t.Error(h.endings[0].Message)
	}
	if tries != 3 || len(h.effects) != 5 {
		t.Errorf("c02 was tried %d times; effects %v", tries, h.effects)
	}
	if got := h.statuses(); got != "1 compute succeeded, 1 compute failed, 2 compute succeeded, 2 nvswitch succeeded, 1 powershelf" {
		t.Error(got)
	}
	if c := h.components[101]; c.LastState != component.On || c.Code != codes.PowerNoEffect {
		t.Errorf("c02 is left %+v", c)
	}
	if c := h.components[300]; c.Status != "" || c.LastState != component.On {
		t.Errorf("the shelf is left %+v", c)
	}
	e := h.entries["1 compute main 0 101"]
	if e.Attempts != 3 || e.Code != codes.PowerNoEffect {
		t.Errorf("its entry is %+v", e)
	}
}

// A step that fails at once does not cut its sibling short.
func TestASiblingOfAFailedStepEnds(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "force_power_off", twoStages), 1, 1, 1, component.On)
	h.tray("c01").fail = func(string) error { return act.Final(codes.PowerRefused, "no") }
	h.run(t)
	if e := h.entries["1 nvswitch post 0 0"]; e.Status != report.Succeeded {
		t.Errorf("the sibling's sleep ended %q", e.Status)
	}
	if _, begun := h.entries["2 powershelf main 0 300"]; begun {
		t.Error("the next stage began")
	}
}

func TestWhatIsThereAlreadyIsNotDoneAgain(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_off", twoStages), 2, 1, 1, component.Off)
	h.run(t)
	h.ends(t, "succeeded")
	if len(h.effects) != 0 {
		t.Errorf("effects %v", h.effects)
	}
	if e := h.entries["1 compute main 0 100"]; e.Message != "it was Off already" {
		t.Error(e.Message)
	}
}

func TestTypesThatTheRackHasNotAreSkippedAndSaidSo(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_off", twoStages), 2, 0, 1, component.On)
	h.run(t)
	h.ends(t, "succeeded")
	if e := h.entries["1 nvswitch main 0 0"]; e.Status != report.Skipped {
		t.Errorf("the absent type's entry is %+v", e)
	}
	none := newHall(ruleOf(t, "power_control", "power_off", `steps: [{component_type: compute, stage: 1, main_operation: {name: PowerControl}}]`), 0, 1, 0, component.On)
	none.run(t)
	none.ends(t, "failed COMPONENT_NOT_REACHED")
}

// An off and an on are each led to by itself: an On whose answer is lost is tried
// again without a second Off.
func TestARestartDoesNotRepeatItsOff(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"restart", "force_restart", "cold_reset"} {
		h := newHall(ruleOf(t, "power_control", operation, `steps: [{component_type: compute, stage: 1, main_operation: {name: PowerControl}}]`), 1, 0, 0, component.On)
		lost := 0
		h.tray("c01").after = func(string) error {
			if lost++; lost == 2 {
				return act.Retry(codes.BMCUnreachable, "the answer was lost")
			}
			return nil
		}
		h.run(t)
		h.ends(t, "succeeded")
		if len(h.effects) != 2 || h.tray("c01").power != component.On {
			t.Errorf("%s: effects %v", operation, h.effects)
		}
	}
}

func TestAWarmResetWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		marker string
		deaf   bool
		give   []error
		want   string
		sent   int
	}{
		"answered":                  {"m", false, nil, "succeeded", 1},
		"lost, the marker changed":  {"m", false, []error{act.Final(codes.ResetResultUnknown, "lost")}, "succeeded", 1},
		"lost, the marker stays":    {"m", true, []error{act.Final(codes.ResetResultUnknown, "lost")}, "failed RESET_RESULT_UNKNOWN", 1},
		"lost, there is no marker":  {"", false, []error{act.Final(codes.ResetResultUnknown, "lost")}, "failed RESET_RESULT_UNKNOWN", 1},
		"accepted without effect":   {"m", true, []error{act.Final(codes.PowerNoEffect, "nothing")}, "failed POWER_NO_EFFECT", 1},
		"not sent, then answered":   {"m", false, []error{act.Retry(codes.BMCUnreachable, "silent"), nil}, "succeeded", 1},
		"never sent":                {"m", false, []error{act.Retry(codes.BMCUnreachable, "s"), act.Retry(codes.BMCUnreachable, "s"), act.Retry(codes.BMCUnreachable, "s")}, "failed BMC_UNREACHABLE", 0},
		"it was off":                {"m", false, []error{act.Final(codes.PowerRefused, "it is off")}, "failed POWER_REFUSED", 0},
		"an answer that no one has": {"m", false, []error{errDead}, "succeeded", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHall(ruleOf(t, "power_control", "warm_reset", `steps: [{component_type: compute, stage: 1, main_operation: {name: PowerControl}}]`), 1, 0, 0, component.On)
			one := h.tray("c01")
			one.marker, one.deaf = c.marker, c.deaf
			give := func(string) error {
				if len(c.give) == 0 {
					return nil
				}
				err := c.give[0]
				c.give = c.give[1:]
				return err
			}
			if c.sent == 0 || name == "not sent, then answered" {
				one.fail = give
			} else {
				one.after = give
			}
			h.run(t)
			h.ends(t, c.want)
			if len(h.effects) != c.sent {
				t.Errorf("effects %v", h.effects)
			}
		})
	}
}

// The worst case is told when it has passed, and ends nothing.
func TestTheWorstCaseIsToldAndEndsNothing(t *testing.T) {
	t.Parallel()
	for worst, over := range map[time.Duration]int{time.Minute: 1, time.Hour: 0, 0: 0} {
		h := newHall(ruleOf(t, "power_control", "power_off", twoStages), 1, 1, 1, component.On)
		h.begun.Worst = worst
		h.run(t)
		h.ends(t, "succeeded")
		if h.over != over {
			t.Errorf("with %s it was told %d times", worst, h.over)
		}
	}
}

func TestNothingHappensToATaskThatDoesNotRun(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_off", twoStages), 1, 1, 1, component.On)
	h.begun.Runs = false
	h.run(t)
	if !slices.Equal(h.lines, []string{"begin"}) || len(h.effects) != 0 {
		t.Errorf("%v %v", h.lines, h.effects)
	}
}

// A cancel is told at once, ends within one poll, begins nothing more, and says in
// which state every component was left.
// Whoever cancels one step in Temporal ends the task by it: what it was to see was
// not seen.
func TestAStepThatIsCancelledByItselfEndsTheTask(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_off", `steps:
- {component_type: compute, stage: 1, main_operation: {name: PowerControl}, post_operation: [{name: VerifyPowerStatus, timeout: 30m, poll_interval: 5s, parameters: {expected_status: "off"}}]}
- {component_type: powershelf, stage: 2, main_operation: {name: PowerControl}}
`), 2, 0, 1, component.On)
	h.tray("c02").deaf = true
	env := h.suite(t)
	env.RegisterDelayedCallback(func() { env.CancelWorkflowByID("task/7/stage/1/compute", "") }, time.Minute)
	h.runIn(t, env)
	h.ends(t, "failed COMPONENT_RESULT_UNKNOWN")
	slices.Sort(h.effects)
	if want := []string{"power_off c01", "power_off c02"}; !slices.Equal(h.effects, want) {
		t.Errorf("effects %v, want %v", h.effects, want)
	}
}

func TestACancelEndsWithinOnePoll(t *testing.T) {
	t.Parallel()
	h := newHall(ruleOf(t, "power_control", "power_off", `steps:
- {component_type: compute, stage: 1, main_operation: {name: PowerControl}, post_operation: [{name: VerifyPowerStatus, timeout: 30m, poll_interval: 5s, parameters: {expected_status: "off"}}]}
- {component_type: nvswitch, stage: 2, main_operation: {name: PowerControl}}`), 2, 1, 0, component.On)
	h.tray("c02").deaf = true
	env := h.suite(t)
	looked := 0
	env.RegisterDelayedCallback(func() { h.mu.Lock(); looked = h.looked; h.mu.Unlock(); env.CancelWorkflow() }, time.Minute)
	h.runIn(t, env)
	h.ends(t, "cancelled")
	if h.looked > looked+2+3 { // one look that was under way, and the last one at all
		t.Errorf("%d looks after the cancel", h.looked-looked)
	}
	if e := h.entries["1 compute post 0 0"]; e.Status != report.Cancelled {
		t.Errorf("the look ended %q", e.Status)
	}
	if got := h.statuses(); got != "2 compute cancelled, 1 nvswitch" {
		t.Error(got)
	}
	if a, b, n := h.components[100].LastState, h.components[101].LastState, h.components[200].LastState; a != component.Off || b != component.On || n != component.On {
		t.Errorf("left %s %s %s", a, b, n)
	}
	if !slices.Contains(h.closed, "default-test-workflow-id") || h.endings[0].Status != fleet.JobCancelled {
		t.Errorf("closed %v", h.closed)
	}
	if len(h.effects) != 2 {
		t.Errorf("effects %v", h.effects)
	}
}
