package rule_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/operations/rule"
)

var (
	powers = []string{"power_on", "force_power_on", "power_off", "force_power_off", "restart", "force_restart", "warm_reset", "cold_reset"}
	types  = []string{"compute", "nvswitch", "powershelf", "torswitch", "ums", "cdu", "Compute", "NVLSwitch", "CDU"}
)

func period(t *rapid.T, what string) string {
	return rapid.SampledFrom([]string{"1s", "5s", "1m30s", "0.5h", "1h", "250ms", "+2m", "90m", "1h0m0s", "10000us", "7µs"}).Draw(t, what)
}

// object is a value on its way to JSON.
type object = map[string]any

func action(t *rapid.T, operation string) object {
	switch rapid.IntRange(0, 5).Draw(t, "action") {
	case 0:
		a := object{"name": "PowerControl"}
		if rapid.Bool().Draw(t, "timed") {
			a["timeout"] = period(t, "timeout")
		}
		if rapid.Bool().Draw(t, "named") {
			a["parameters"] = object{"operation": operation}
		}
		return a
	case 1:
		return object{"name": "VerifyPowerStatus", "timeout": "2h", "poll_interval": period(t, "poll_interval"), "parameters": object{"expected_status": rapid.SampledFrom([]string{"on", "off"}).Draw(t, "status")}}
	case 2:
		return object{"name": "VerifyReachability", "timeout": "2h", "poll_interval": period(t, "poll_interval"), "parameters": object{
			"component_types": rapid.SliceOfN(rapid.SampledFrom(types), 1, 4).Draw(t, "types"), "require_all": rapid.Bool().Draw(t, "all"),
		}}
	case 3:
		return object{"name": "GetPowerStatus", "timeout": period(t, "timeout")}
	case 4:
		return object{"name": "WaitDecommissioned", "timeout": "3h", "poll_interval": period(t, "poll_interval")}
	}
	return object{"name": "Sleep", "parameters": object{"duration": period(t, "duration")}}
}

func actions(t *rapid.T, operation string) []object {
	list := []object{}
	for range rapid.IntRange(0, 3).Draw(t, "actions") {
		list = append(list, action(t, operation))
	}
	return list
}

// good draws a rule that the format allows.
func good(t *rapid.T) object {
	operation := rapid.SampledFrom(powers).Draw(t, "operation")
	steps := []object{}
	for i := range rapid.IntRange(0, 5).Draw(t, "steps") {
		s := object{"component_type": rapid.SampledFrom(types).Draw(t, "type"), "stage": i + 1, "main_operation": action(t, operation)}
		if rapid.Bool().Draw(t, "timed") {
			s["timeout"] = rapid.SampledFrom([]any{0, "0", "0s", "20m", "1h"}).Draw(t, "timeout")
		}
		if rapid.Bool().Draw(t, "retried") {
			retry := object{"max_attempts": rapid.IntRange(1, 100).Draw(t, "attempts"), "initial_interval": "5s", "backoff_coefficient": rapid.Float64Range(1, 100).Draw(t, "coefficient")}
			if rapid.Bool().Draw(t, "capped") {
				retry["max_interval"] = rapid.SampledFrom([]string{"5s", "1m", "1h"}).Draw(t, "cap")
			}
			s["retry"] = retry
		}
		if rapid.Bool().Draw(t, "pre") {
			s["pre_operation"] = actions(t, operation)
		}
		if rapid.Bool().Draw(t, "post") {
			s["post_operation"] = actions(t, operation)
		}
		if rapid.Bool().Draw(t, "bounded") {
			s["max_parallel"] = rapid.IntRange(0, 100).Draw(t, "parallel")
		}
		steps = append(steps, s)
	}
	return object{"name": rapid.StringMatching(`[a-zäö0-9 "]{0,20}x`).Draw(t, "name"), "operation_type": "power_control", "operation": operation, "steps": steps}
}

func TestARuleIsTheSameBytesHoweverOftenItIsRead(t *testing.T) {
	t.Parallel()
	v := validator(t)
	rapid.Check(t, func(rt *rapid.T) {
		text, err := json.MarshalIndent(good(rt), "", "  ")
		if err != nil {
			rt.Fatal(err)
		}
		for _, yaml := range []bool{false, true} {
			c, err := v.Rule(rule.Document{Data: text, YAML: yaml})
			if err != nil {
				rt.Fatalf("it is refused: %v\n%s", err, text)
			}
			first := c.Rules[0].JSON()
			again, err := v.Rule(rule.Document{Data: first})
			if err != nil {
				rt.Fatalf("the normal form is refused: %v\n%s", err, first)
			}
			if second := again.Rules[0].JSON(); string(second) != string(first) {
				rt.Fatalf("read again it is\n%s\nafter\n%s", second, first)
			}
			if len(again.Warnings) != len(c.Warnings) {
				rt.Fatalf("warnings change: %v, %v", c.Warnings, again.Warnings)
			}
		}
	})
}

// Whatever one breaks in a good rule, each problem has a path and a place, and the
// words are ours.
func TestABrokenRuleIsToldWhere(t *testing.T) {
	t.Parallel()
	v := validator(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := good(rt)
		steps, _ := r["steps"].([]object)
		if len(steps) == 0 {
			return
		}
		i := rapid.IntRange(0, len(steps)-1).Draw(rt, "step")
		s := steps[i]
		main, _ := s["main_operation"].(object)
		var path string
		switch rapid.IntRange(0, 5).Draw(rt, "break") {
		case 0:
			s["colour"], path = "red", "colour"
		case 1:
			delete(s, "stage")
			path = "stage"
		case 2:
			s["stage"], path = rapid.SampledFrom([]any{0, -1, 1.5, "1", nil, true, []int{1}}).Draw(rt, "stage"), "stage"
		case 3:
			main["name"], path = "BringUpControl", "main_operation.name"
		case 4:
			s["timeout"], path = rapid.SampledFrom([]any{30, "banana", "-5s", "1 h", "", nil, "170h", "99999999999h"}).Draw(rt, "timeout"), "timeout"
		case 5:
			main["poll"], path = 1, "main_operation.poll"
		}
		path = fmt.Sprintf("steps[%d].%s", i, path)
		text, err := json.MarshalIndent(r, "", " ")
		if err != nil {
			rt.Fatal(err)
		}
		_, err = v.Rule(rule.Document{Data: text})
		var invalid *rule.Invalid
		if !errors.As(err, &invalid) {
			rt.Fatalf("it says %v of\n%s", err, text)
		}
		found := false
		for _, p := range invalid.Problems {
			found = found || p.Path == path
			if p.Line == 0 || p.Column == 0 || strings.Contains(p.Message, "schema refuses") {
				rt.Errorf("%+v", p)
			}
		}
		if !found {
			rt.Fatalf("nothing is said of %s:\n%v\n%s", path, err, text)
		}
	})
}

func TestAValidatorServesMany(t *testing.T) {
	t.Parallel()
	v := validator(t)
	data, err := os.ReadFile(filepath.Join("testdata", "examples", "graceful_power_on.json"))
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			operation := powers[i%2] // power_on, force_power_on
			if _, err := v.Steps(rule.Document{Data: data}, rule.Head{Name: "x", OperationType: "power_control", Operation: operation}); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func FuzzRule(f *testing.F) {
	files, err := filepath.Glob("testdata/messages/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		for _, o := range oddRules(f, file) {
			f.Add([]byte(o.text), o.form[0] == "yaml")
		}
	}
	v := validator(f)
	f.Fuzz(func(t *testing.T, data []byte, yaml bool) {
		for _, check := range []func(rule.Document) (*rule.Checked, error){
			v.Batch,
			func(d rule.Document) (*rule.Checked, error) {
				return v.Steps(d, rule.Head{Name: "x", OperationType: "power_control", Operation: "power_on"})
			},
		} {
			c, err := check(rule.Document{Data: data, YAML: yaml})
			var invalid *rule.Invalid
			switch {
			case err == nil:
				for i := range c.Rules {
					roundTrip(t, v, &c.Rules[i])
				}
			case !errors.As(err, &invalid) || len(invalid.Problems) == 0:
				t.Fatalf("it is refused without a problem: %v", err)
			case strings.Contains(err.Error(), "schema refuses"):
				t.Fatalf("the walk has no words for it: %v", err)
			}
		}
	})
}
