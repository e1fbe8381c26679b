package rule_test

import (
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/operations/rule"
)

// Every operation has a built-in rule that the validator takes without a word,
// that ends, and that the registered managers can carry out.
func TestBuiltInRulesCanBeCarriedOut(t *testing.T) {
	t.Parallel()
	bundle, _, err := engine.Load(muster.Bundle(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"cold_reset", "decommission", "downgrade", "force_power_off", "force_power_on", "force_restart", "power_off", "power_on", "restart", "rollback", "upgrade", "warm_reset",
	}
	var codes []string
	v, rack := validator(t), rule.Counts{"compute": 18, "nvswitch": 9, "powershelf": 8}
	for _, o := range bundle.Operations() {
		codes = append(codes, o.Code)
		c, err := v.Rule(rule.Document{Name: o.Pos.File, Data: o.Rule})
		if err != nil {
			t.Errorf("%s: %v", o.Code, err)
			continue
		}
		r := c.Rules[0]
		if warnings := append(c.Warnings, r.WarningsFor(rack)...); len(warnings) > 0 {
			t.Errorf("%s: %s", o.Code, rule.Lines("", warnings))
		}
		if r.Operation != o.Code || r.OperationType != o.Type || r.Name != o.Title {
			t.Errorf("%s: its rule is %s, %s of %s", o.Code, r.Name, r.Operation, r.OperationType)
		}
		if !bundle.HasPolicy(o.Policy()) {
			t.Errorf("%s has no eligibility", o.Code)
		}
		plan := r.Plan(rack)
		if worst := time.Duration(plan.Worst); worst <= 0 || worst > 48*time.Hour {
			t.Errorf("%s takes %s at most", o.Code, worst)
		}
		if missing := rule.Missing(r.Needs(rack), rule.Managers()); len(missing) > 0 {
			t.Errorf("%s needs what no manager can do: %v", o.Code, missing)
		}
		for _, command := range r.Commands() {
			locked, ok := bundle.Operation(command.Operation)
			if !ok {
				t.Errorf("%s carries out %s, which is no operation", o.Code, command.Operation)
				continue
			}
			power := locked.Type == "power_control"
			if got, whole := locked.Rack[command.ComponentType], power && command.ComponentType != "compute"; got != whole {
				t.Errorf("%s of %s locks the rack: %v", command.Operation, command.ComponentType, got)
			}
		}
		roundTrip(t, v, &r)
	}
	if sort.Strings(codes); !slices.Equal(codes, want) {
		t.Errorf("the operations are %v", codes)
	}
	if d := bundle.OperationDefaults(); d.Conflict != "refuse" || d.QueueFor != time.Hour {
		t.Errorf("the defaults are %+v", d)
	}
}

// What has lost its shelves has no BMC that answers: nothing is asked of it until
// they are on again.
func TestBuiltInRulesAskNothingOfTraysWithoutPower(t *testing.T) {
	t.Parallel()
	bundle, _, err := engine.Load(muster.Bundle(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := validator(t)
	for _, o := range bundle.Operations() {
		c, err := v.Rule(rule.Document{Data: o.Rule})
		if err != nil {
			t.Fatal(err)
		}
		steps := slices.Clone(c.Rules[0].Steps)
		slices.SortStableFunc(steps, func(a, b rule.Step) int { return a.Stage - b.Stage })
		cut := 0 // the stage that takes the shelves' power
		for i := range steps {
			for _, a := range steps[i].Actions() {
				operation := a.Parameters.Operation
				if operation == "" {
					operation = o.Code
				}
				switch {
				case steps[i].ComponentType != "powershelf" && cut != 0 && steps[i].Stage >= cut && a.Name != rule.Sleep:
					t.Errorf("%s: %s of %s in stage %d, after the shelves lost their power in stage %d", o.Code, a.Name, steps[i].ComponentType, steps[i].Stage, cut)
				case steps[i].ComponentType != "powershelf" || a.Name != rule.PowerControl:
				case operation == "power_off" || operation == "force_power_off":
					cut = steps[i].Stage
				default:
					cut = 0
				}
			}
		}
	}
}

// The figures of a whole rack: whoever changes a built-in rule sees what it costs.
func TestWorstCasesOfTheBuiltInRules(t *testing.T) {
	t.Parallel()
	bundle, _, err := engine.Load(muster.Bundle(), engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	v := validator(t)
	for code, want := range map[string]string{
		"power_on":        "2h15m",
		"force_power_on":  "41m24s",
		"power_off":       "2h30m",
		"force_power_off": "46m24s",
		"restart":         "4h45m30s",
		"force_restart":   "1h43m18s",
		"warm_reset":      "2h10m18s",
		"cold_reset":      "9h40m36s",
		"upgrade":         "28h46m18s",
		"downgrade":       "28h46m18s",
		"rollback":        "28h46m18s",
		"decommission":    "12h50m",
	} {
		o, _ := bundle.Operation(code)
		c, err := v.Rule(rule.Document{Data: o.Rule})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Rules[0].Plan(rule.Counts{"compute": 18, "nvswitch": 9, "powershelf": 8}).Worst.String(); got != want {
			t.Errorf("%s takes at most %s, not %s", code, got, want)
		}
	}
}
