package operations_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

func TestTheRuleThatAppliesIsTheNearest(t *testing.T) {
	w := newWorld(t)
	r1, _ := w.rack("r1")
	r2, _ := w.rack("r2")
	by := func(rack int64, id int64) (string, int64) {
		t.Helper()
		r := power("power_on", rack)
		r.RuleID = id
		task := w.submit(r)
		must(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, nil))
		return task.RuleSource, task.RuleID
	}
	if source, id := by(r1, 0); source != operations.SourceBuiltIn || id != 0 {
		t.Errorf("without any rule: %s %d", source, id)
	}
	usual, bound, asked := w.create(steps("power_on", "compute"), true), w.create(steps("power_on", "nvswitch"), false), w.create(steps("power_on", "powershelf"), false)
	_, err := w.svc.Associate(w.ctx(), r1, "power_on", bound.ID, ann, nil)
	must(t, err)
	if source, id := by(r1, 0); source != operations.SourceAssociation || id != bound.ID {
		t.Errorf("a bound rack: %s %d", source, id)
	}
	if source, id := by(r2, 0); source != operations.SourceDefault || id != usual.ID {
		t.Errorf("another rack: %s %d", source, id)
	}
	if source, id := by(r1, asked.ID); source != operations.SourceExplicit || id != asked.ID {
		t.Errorf("a rule that is asked for: %s %d", source, id)
	}
	r := power("power_off", r1)
	r.RuleID = asked.ID
	w.refused(r, operations.CodeRuleMismatch)
	r.RuleID = 999_999
	w.refused(r, operations.CodeRuleNotFound)
	must(t, w.svc.Disassociate(w.ctx(), r1, "power_on", ann, nil))
	coded(t, w.svc.Disassociate(w.ctx(), r1, "power_on", ann, nil), operations.CodeRuleNotBound)
	if source, id := by(r1, 0); source != operations.SourceDefault || id != usual.ID {
		t.Errorf("a rack that is bound no more: %s %d", source, id)
	}
}

// Whatever a rule in the database has become, nothing else is done in its place.
// A default that takes the place of another one while a request waits for its row
// applies: never the built-in rule.
func TestASubmissionBesideANewDefaultGoesByIt(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r")
	text := `{"name": %q, "operation_type": "power_control", "operation": "power_off", "steps": [{"component_type": "compute", "stage": 1, "main_operation": {"name": "PowerControl"}}]}`
	w.create(rule.Document{Data: fmt.Appendf(nil, text, "a")}, true)
	b := w.create(rule.Document{Data: fmt.Appendf(nil, text, "b")}, false).ID
	tx, err := w.db.Begin(w.ctx())
	must(t, err)
	defer func() { _ = tx.Rollback(w.ctx()) }()
	_, err = store.SetDefaultRule(w.ctx(), tx, b, "ann")
	must(t, err)
	got := make(chan fleet.Task, 1)
	go func() {
		done, err := w.svc.Submit(w.ctx(), power("power_off", rack))
		if err != nil || len(done.Tasks) == 0 {
			t.Error(err)
			got <- fleet.Task{}
			return
		}
		got <- done.Tasks[0]
	}()
	for deadline := time.Now().Add(time.Minute); value[int](w, "select count(*) from pg_locks where not granted") == 0; <-time.After(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the submission does not wait for the rule")
		}
	}
	must(t, tx.Commit(w.ctx()))
	if task := <-got; task.RuleID != b || task.RuleSource != operations.SourceDefault {
		t.Errorf("it goes by rule %d, %s, want %d", task.RuleID, task.RuleSource, b)
	}
}

func TestARuleThatIsNotValidIsNotPassedBy(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r1")
	usual := w.create(steps("power_on", "compute"), true)
	bound := w.create(steps("power_on", "nvswitch"), false)
	_, err := w.svc.Associate(w.ctx(), rack, "", bound.ID, ann, nil)
	must(t, err)
	w.exec(`update operation_rules set rule = '{"version": "v1", "steps": [{"component_type": "warp core", "stage": 1}]}' where id = $1`, bound.ID)
	w.refused(power("power_on", rack), operations.CodeRuleInvalid)
	must(t, w.svc.Disassociate(w.ctx(), rack, "power_on", ann, nil))
	w.exec(`update operation_rules set rule = '{"steps": 7}' where id = $1`, usual.ID)
	w.refused(power("power_on", rack), operations.CodeRuleInvalid)
	_, err = w.svc.SetDefaultRule(w.ctx(), bound.ID, ann, nil)
	coded(t, err, operations.CodeRuleInvalid)
}

func TestARuleWithoutStepsLeavesThemToTheBuiltInOne(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r1")
	empty := w.create(rule.Document{Data: []byte(`{"name": "none", "operation_type": "power_control", "operation": "power_on", "steps": []}`)}, true)
	task := w.submit(power("power_on", rack))
	if b := w.begin(task); task.RuleSource != operations.SourceDefault || task.RuleID != empty.ID || len(b.Rule.Steps) == 0 {
		t.Errorf("%s %d with %d steps", task.RuleSource, task.RuleID, len(b.Rule.Steps))
	}
}

func TestARuleInUseStays(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r1")
	first, second := w.create(steps("power_on", "compute"), true), w.create(steps("power_on", "nvswitch"), false)
	_, err := w.svc.CreateRule(w.ctx(), steps("power_on", "compute"), true, ann, nil)
	coded(t, err, operations.CodeDefaultExists)
	coded(t, w.svc.DeleteRule(w.ctx(), first.ID, ann, nil), operations.CodeRuleInUse)
	_, err = w.svc.SetDefaultRule(w.ctx(), second.ID, ann, nil)
	must(t, err)
	_, err = w.svc.Associate(w.ctx(), rack, "power_off", first.ID, ann, nil)
	coded(t, err, operations.CodeRuleMismatch)
	_, err = w.svc.Associate(w.ctx(), rack, "power_on", first.ID, ann, []string{"elsewhere"})
	coded(t, err, operations.CodeRackNotFound)
	_, err = w.svc.Associate(w.ctx(), rack, "power_on", first.ID, ann, nil)
	must(t, err)
	coded(t, w.svc.DeleteRule(w.ctx(), first.ID, ann, nil), operations.CodeRuleInUse)
	must(t, w.svc.Disassociate(w.ctx(), rack, "power_on", ann, nil))
	task := w.submit(power("power_on", rack))
	must(t, w.svc.DeleteRule(w.ctx(), first.ID, ann, nil))
	coded(t, w.svc.DeleteRule(w.ctx(), first.ID, ann, nil), operations.CodeRuleNotFound)
	_, err = w.svc.ReplaceRule(w.ctx(), second.ID, steps("power_on", "powershelf"), ann, nil)
	must(t, err)
	if b := w.begin(task); len(b.Rule.Steps) != 1 || b.Rule.Steps[0].ComponentType != "nvswitch" {
		t.Errorf("a submitted task follows the edited rule: %+v", b.Rule)
	}
}

const batch = `version: v1
rules:
  - {name: up, operation_type: power_control, operation: power_on, steps: [{component_type: KIND, stage: 1, main_operation: {name: PowerControl}}]}
  - {name: down, operation_type: power_control, operation: power_off, steps: [{component_type: KIND, stage: 1, main_operation: {name: PowerControl}}]}
`

func TestABatchIsStoredWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r1")
	document := func(kind string) rule.Document {
		return rule.Document{Data: []byte(strings.ReplaceAll(batch, "KIND", kind)), YAML: true}
	}
	take := func(kind string, overwrite bool, want string) []operations.Imported {
		t.Helper()
		all, _, err := w.svc.ImportRules(w.ctx(), document(kind), overwrite, ann, nil)
		must(t, err)
		for _, one := range all {
			if one.Outcome != want {
				t.Errorf("%s was %s, want %s", one.Rule.Operation, one.Outcome, want)
			}
		}
		return all
	}
	made := take("compute", false, operations.BatchCreated)
	_, err := w.svc.Associate(w.ctx(), rack, "power_on", made[0].Rule.ID, ann, nil)
	must(t, err)
	_, err = w.svc.SetDefaultRule(w.ctx(), made[1].Rule.ID, ann, nil)
	must(t, err)
	take("nvswitch", false, operations.BatchSkipped)
	replaced := take("powershelf", true, operations.BatchReplaced)
	for i, one := range replaced {
		if one.Rule.ID != made[i].Rule.ID || one.Rule.Revision != 2 {
			t.Errorf("%s became rule %d of revision %d", one.Rule.Operation, one.Rule.ID, one.Rule.Revision)
		}
	}
	rows, err := store.ListRules(w.ctx(), w.db, store.RuleFilter{Limit: 10})
	must(t, err)
	if len(rows) != 2 || len(rows[0].Racks) != 1 || rows[0].Racks[0] != rack || !rows[1].IsDefault || !strings.Contains(string(rows[0].Rule), "powershelf") {
		t.Errorf("after an overwrite: %+v", rows)
	}
	w.create(steps("power_on", "compute"), false)
	_, _, err = w.svc.ImportRules(w.ctx(), document("compute"), true, ann, nil)
	coded(t, err, operations.CodeOverwriteAmbiguous)
	if n := value[int](w, "select count(*) from operation_rules where revision > 2"); n != 0 {
		t.Errorf("a refused batch changed %d rules", n)
	}
	_, _, err = w.svc.ImportRules(w.ctx(), document("warp core"), true, ann, nil)
	var invalid *rule.Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) != 2 {
		t.Errorf("a wrong batch: %v", err)
	}
}

// A rack's rules say what was looked for, what was found first, and why an
// operation is refused.
func TestARackTellsWhichRuleApplies(t *testing.T) {
	w := newWorld(t)
	rack, _ := w.rack("r1")
	of := func(operation string) operations.RackRule {
		t.Helper()
		all, err := w.svc.RackRules(w.ctx(), rack, nil)
		must(t, err)
		for _, one := range all.Rules {
			if one.Operation.Code == operation {
				return one
			}
		}
		t.Fatalf("nothing is said of %s", operation)
		return operations.RackRule{}
	}
	if one := of("power_on"); one.Source != operations.SourceBuiltIn || one.Own != nil || one.Default != nil || one.Plan.Worst == 0 {
		t.Errorf("without any rule: %+v", one)
	}
	usual, bound := w.create(steps("power_on", "compute"), true), w.create(steps("power_on", "nvswitch"), false)
	if one := of("power_on"); one.Source != operations.SourceDefault || one.ID != usual.ID || one.Default == nil || one.Own != nil {
		t.Errorf("with a default: %+v", one)
	}
	_, err := w.svc.Associate(w.ctx(), rack, "power_on", bound.ID, ann, nil)
	must(t, err)
	if one := of("power_on"); one.Source != operations.SourceAssociation || one.ID != bound.ID || one.Default.ID != usual.ID || one.Own.ID != bound.ID {
		t.Errorf("bound: %+v", one)
	}
	if one := of("power_off"); one.Source != operations.SourceBuiltIn || one.Own != nil || one.Default != nil {
		t.Errorf("of another operation: %+v", one)
	}
	w.exec(`update operation_rules set rule = '{"version": "v1", "steps": []}' where id = $1`, bound.ID)
	if one := of("power_on"); !one.Empty || len(one.Rule.Steps) == 0 || one.ID != bound.ID {
		t.Errorf("without steps: %+v", one)
	}
	w.exec(`update operation_rules set rule = '{"version": "v1", "steps": [{"stage": 0}]}' where id = $1`, bound.ID)
	if one := of("power_on"); one.Refused == nil || one.Source != "" {
		t.Errorf("not valid: %+v", one)
	}
	_, err = w.svc.RackRules(w.ctx(), rack, []string{"annex"})
	coded(t, err, operations.CodeRackNotFound)
}
