package rule_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/operations/rule"
)

func steps(t *testing.T, kind, operation, text string) *rule.Rule {
	t.Helper()
	c, err := validator(t).Steps(rule.Document{Data: []byte(text), YAML: true}, rule.Head{Name: "x", OperationType: kind, Operation: operation})
	if err != nil {
		t.Fatal(err)
	}
	return &c.Rules[0]
}

func TestTheWorstCaseCountsEveryWait(t *testing.T) {
	t.Parallel()
	rack := rule.Counts{"compute": 18, "nvswitch": 9, "powershelf": 8}
	for _, tt := range []struct {
		name, kind, operation, text string
		counts                      rule.Counts
		want                        time.Duration
	}{
		{"no steps", "power_control", "power_on", `steps: []`, rack, 0},
		{"one command by default: three tries of 20m, waits of 1s and 2s", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, main_operation: {name: PowerControl}}]`, rack, time.Hour + 3*time.Second},
		{"none of the type", "power_control", "power_on",
			`steps: [{component_type: cdu, stage: 1, main_operation: {name: PowerControl}}]`, rack, 0},
		{"rounds: ⌈18/8⌉ = 3", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, max_parallel: 8, timeout: 1m, retry: {max_attempts: 1, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: PowerControl}}]`, rack, 3 * time.Minute},
		{"more may be in flight than there are", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, max_parallel: 50, timeout: 1m, retry: {max_attempts: 1, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: PowerControl}}]`, rack, time.Minute},
		{"waits grow to their longest: 10s, 20s, 30s, 30s", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, timeout: 1s, retry: {max_attempts: 5, initial_interval: 10s, backoff_coefficient: 2, max_interval: 30s}, main_operation: {name: PowerControl}}]`, rack, 95 * time.Second},
		{"without a longest wait it is a minute, or the first if that is longer", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, timeout: 1s, retry: {max_attempts: 3, initial_interval: 5m, backoff_coefficient: 2}, main_operation: {name: PowerControl}}]`, rack, 10*time.Minute + 3*time.Second},
		{"a restart is two commands, each tried for itself", "power_control", "cold_reset",
			`steps: [{component_type: compute, stage: 1, max_parallel: 9, timeout: 1m, retry: {max_attempts: 1, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: PowerControl}}]`, rack, 4 * time.Minute},
		{"an action's timeout goes before its step's", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, timeout: 1h, retry: {max_attempts: 1, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: PowerControl, timeout: 30s}}]`, rack, 30 * time.Second},
		{"a sleep and a look are of the whole step", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, max_parallel: 1, main_operation: {name: Sleep, parameters: {duration: 20m}}, post_operation: [{name: VerifyPowerStatus, timeout: 5m, poll_interval: 5s, parameters: {expected_status: "on"}}]}]`, rack, 25 * time.Minute},
		{"firmware polls after it was started: ⌈9/3⌉ × (10m + 45m)", "firmware_control", "upgrade",
			`steps: [{component_type: nvswitch, stage: 1, max_parallel: 3, timeout: 10m, retry: {max_attempts: 1, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: FirmwareControl, parameters: {poll_timeout: 45m}}}]`, rack, 165 * time.Minute},
		{"to decommission is asked for once, for five minutes", "decommission", "decommission",
			`steps: [{component_type: powershelf, stage: 1, max_parallel: 4, timeout: 1h, main_operation: {name: DecommissionControl}, post_operation: [{name: WaitDecommissioned, timeout: 1h, poll_interval: 1m}]}]`, rack, 70 * time.Minute},
		{"a power status is asked of each", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, max_parallel: 6, retry: {max_attempts: 2, initial_interval: 1s, backoff_coefficient: 1}, main_operation: {name: GetPowerStatus, timeout: 10s}}]`, rack, 63 * time.Second},
		{"stages add up, of a stage the longest step counts", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 2, main_operation: {name: Sleep, parameters: {duration: 1m}}}, {component_type: compute, stage: 1, main_operation: {name: Sleep, parameters: {duration: 2m}}}, {component_type: nvswitch, stage: 1, main_operation: {name: Sleep, parameters: {duration: 3m}}}]`, rack, 4 * time.Minute},
		{"what no number holds is forever", "power_control", "power_on",
			`steps: [{component_type: compute, stage: 1, max_parallel: 1, timeout: 168h, retry: {max_attempts: 100, initial_interval: 168h, backoff_coefficient: 1, max_interval: 168h}, main_operation: {name: PowerControl}}]`, rule.Counts{"compute": 100_000}, math.MaxInt64},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := steps(t, tt.kind, tt.operation, tt.text).Plan(tt.counts).Worst; time.Duration(got) != tt.want {
				t.Errorf("it takes at most %s, not %s", got, tt.want)
			}
		})
	}
}

func TestWhatARuleNeeds(t *testing.T) {
	t.Parallel()
	r := steps(t, "firmware_control", "upgrade", `steps:
- {component_type: powershelf, stage: 1, main_operation: {name: FirmwareControl}, post_operation: [{name: VerifyReachability, timeout: 1m, poll_interval: 1s, parameters: {component_types: [torswitch, compute, cdu]}}]}
- {component_type: torswitch, stage: 2, main_operation: {name: PowerControl, parameters: {operation: force_restart}}}
- {component_type: ums, stage: 2, main_operation: {name: FirmwareControl}}`)
	counts := rule.Counts{"powershelf": 8, "torswitch": 1, "compute": 18}
	needs := r.Needs(counts)
	want := []rule.Need{
		{ComponentType: "powershelf", Capability: rule.Firmware, Path: "steps[0].main_operation"},
		{ComponentType: "torswitch", Capability: rule.Reachability, Path: "steps[0].post_operation[0]"},
		{ComponentType: "compute", Capability: rule.Reachability, Path: "steps[0].post_operation[0]"},
		{ComponentType: "torswitch", Capability: rule.Power, Path: "steps[1].main_operation"},
	}
	if diff := cmp.Diff(want, needs); diff != "" {
		t.Error(diff)
	}
	missing := rule.Missing(needs, rule.Managers())
	if len(missing) != 2 || missing[0].ComponentType != "torswitch" || missing[1].Capability != rule.Power {
		t.Errorf("missing are %v", missing)
	}
	commands := r.Commands()
	if diff := cmp.Diff([]rule.Command{{"upgrade", "powershelf"}, {"upgrade", "torswitch"}, {"force_restart", "torswitch"}, {"upgrade", "ums"}}, commands); diff != "" {
		t.Error(diff)
	}
}

func TestOneAfterTheOtherIsToldOfMany(t *testing.T) {
	t.Parallel()
	r := steps(t, "power_control", "power_on", `steps: [{component_type: compute, stage: 1, max_parallel: 1, main_operation: {name: PowerControl}}]`)
	if w := r.WarningsFor(rule.Counts{"compute": 18}); len(w) != 1 || !strings.Contains(w[0].Message, "18 components") || w[0].Path != "steps[0].max_parallel" {
		t.Errorf("of 18: %v", w)
	}
	if w := r.WarningsFor(rule.Counts{"compute": 8}); len(w) != 0 {
		t.Errorf("of 8: %v", w)
	}
}

func TestPeriodsAreWrittenAsPeopleDo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		20 * time.Minute: "20m", time.Hour: "1h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", 100 * time.Hour: "100h",
		time.Hour + time.Second: "1h0m1s", 10 * time.Second: "10s", 250 * time.Millisecond: "250ms", 0: "0s",
	} {
		if got := rule.Period(d).String(); got != want {
			t.Errorf("%d is %s, not %s", d, got, want)
		}
	}
}
