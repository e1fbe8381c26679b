package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// powerPoll is how long muster waits between two looks at a machine whose power
// changes.
const powerPoll = 2 * time.Second

// A rack goes down and up by rules of its own on BMCs that are not ours: in the
// order of the rules, no wider than they allow, each machine told once, though the
// worker is killed and somebody changes their mind. A dead BMC stops it, and it is
// told how far it came; without that machine it goes on.
func TestARackIsOperatedThroughItsBMCs(t *testing.T) {
	t.Parallel()
	needPeers(t)
	findBMCs(t) // those of this rack are its own
	r := newRackSite(t, buildWorking(t), "")
	r.bind(t)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it goes down", r.down},
		{"it comes up although the worker is killed", r.up},
		{"going down is cancelled", r.cancelled},
		{"going down stops at a dead BMC", r.stopped},
		{"it goes down without that machine", r.without},
	} {
		if !t.Run(step.name, step.run) {
			r.sees(t)
			return
		}
	}
}

// bind stores the rules and binds them to the rack.
func (r *rackSite) bind(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rackRules), 0o600); err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Rules []struct{ Rule struct{ ID int64 } }
	}
	if err := json.Unmarshal([]byte(r.cli(t, "rule", "create", "--from-yaml", file, "--output", "json")), &stored); err != nil || len(stored.Rules) != 2 {
		t.Fatalf("%v of the rules are stored: %v", stored.Rules, err)
	}
	var rack int64
	if err := r.rows.QueryRow(t.Context(), "select id from racks where name = 'x1'").Scan(&rack); err != nil {
		t.Fatal(err)
	}
	for _, one := range stored.Rules {
		r.cli(t, "rule", "associate", "--rack-id", fmt.Sprint(rack), "--rule-id", fmt.Sprint(one.Rule.ID))
	}
}

// told is what a report says.
type told struct {
	Task struct {
		Status     string
		Ended      bool
		RuleSource string `json:"rule_source"`
		Failure    *struct{ Code, Message string }
	}
	Components []struct {
		Name, Status string
		LastState    *string `json:"last_state"`
		Failure      *struct{ Code, Message string }
	}
	Stages []struct {
		Stage int
		Steps []struct {
			Actions []struct {
				Action  string
				Entries []struct {
					Name     *string
					Status   string
					Attempts int
				}
			}
		}
	}
}

// sees tells, when something failed, what muster says of its tasks.
func (r *rackSite) sees(t *testing.T) {
	if !t.Failed() {
		return
	}
	var tasks int
	if err := r.rows.QueryRow(context.Background(), "select count(*) from tasks").Scan(&tasks); err != nil {
		t.Log(err)
	}
	for task := range tasks {
		said, _ := r.ask(t, "operation", "show", fmt.Sprint(task+1))
		t.Log(said)
	}
}

func (r *rackSite) operate(t *testing.T, args ...string) (task int64) {
	t.Helper()
	var made struct{ Tasks []struct{ ID int64 } }
	if err := json.Unmarshal([]byte(r.cli(t, append([]string{"operation", "submit", "--output", "json"}, args...)...)), &made); err != nil || len(made.Tasks) != 1 {
		t.Fatalf("%d tasks: %v", len(made.Tasks), err)
	}
	return made.Tasks[0].ID
}

// over waits for a task's end and for its devices to be free, and gives its report.
func (r *rackSite) over(t *testing.T, task int64, status string) (is told) {
	t.Helper()
	for deadline := time.Now().Add(3 * settle); !is.Task.Ended; <-time.After(100 * time.Millisecond) {
		if err := r.get(fmt.Sprintf("/operations/tasks/%d/", task), &is); err != nil || time.Now().After(deadline) {
			t.Fatalf("task %d is %s, and does not end: %v", task, is.Task.Status, err)
		}
	}
	if is.Task.Status != status || is.Task.RuleSource != "association" {
		t.Fatalf("task %d is %s by the rule of %s, want %s by the rack's:\n%s", task, is.Task.Status, is.Task.RuleSource, status, r.cli(t, "operation", "show", fmt.Sprint(task)))
	}
	r.until(t, "the devices to be free", func() error {
		var held int
		err := r.rows.QueryRow(t.Context(), "select count(*) from device_locks").Scan(&held)
		if err == nil && held > 0 {
			err = fmt.Errorf("%d are held", held)
		}
		return err
	})
	return is
}

// left checks how each component is left: status, code, and how its last state
// begins.
func (is *told) left(t *testing.T, want func(name string) (status, code string, states []string)) {
	t.Helper()
	for _, c := range is.Components {
		code := ""
		if c.Failure != nil {
			code = c.Failure.Code
		}
		status, wanted, states := want(c.Name)
		state := said(c.LastState)
		if c.Status != status || code != wanted || !slices.ContainsFunc(states, func(s string) bool {
			return s == state || strings.HasSuffix(s, "…") && strings.HasPrefix(state, strings.TrimSuffix(s, "…"))
		}) {
			t.Errorf("%s is left %s %s in %q, want %s %s in one of %q", c.Name, c.Status, code, state, status, wanted, states)
		}
	}
}

// went checks the report of a task that took every component to a state, each by
// one try where told how often.
func (is *told) went(t *testing.T, state string, components, tries int) {
	t.Helper()
	if len(is.Components) != components {
		t.Errorf("the report has %d components, want %d", len(is.Components), components)
	}
	is.left(t, func(string) (string, string, []string) { return "succeeded", "", []string{state} })
	for _, stage := range is.Stages {
		for _, step := range stage.Steps {
			for _, action := range step.Actions {
				for _, e := range action.Entries {
					if e.Status != "succeeded" || tries > 0 && e.Name != nil && e.Attempts != tries {
						t.Errorf("stage %d, %s of %s is %s after %d tries", stage.Stage, action.Action, said(e.Name), e.Status, e.Attempts)
					}
				}
			}
		}
	}
}

func (r *rackSite) down(t *testing.T) {
	mark := r.journal.mark(t)
	is := r.over(t, r.operate(t, "power_off", "x1", "--reason", "test"), "succeeded")
	is.went(t, "Off", len(racked), 1)
	did := r.journal.deeds(t, mark)
	wereSent(t, did, "GracefulShutdown", racked...)
	began, done := wereInTurn(t, did, kinds...)
	if waited := began["powershelf"].minus(done["nvswitch"]); waited < pause {
		t.Errorf("the first shelf was told after %s, want its Sleep of %s before", waited, pause)
	}
	most := inFlight(t, did)
	if most["compute"] != atOnce["compute"] {
		t.Errorf("%d trays were in flight at most: the rule has room for %d", most["compute"], atOnce["compute"])
	}
	t.Logf("at most in flight: %v; %s in all", most, done["powershelf"].minus(began["compute"]).Round(time.Millisecond))
}

// up is the other way round. The worker is killed while two trays are between
// command and effect.
func (r *rackSite) up(t *testing.T) {
	mark := r.journal.mark(t)
	task := r.operate(t, "power_on", "x1", "--reason", "test")
	r.sent(t, mark, "compute", 2)
	r.killWorker(t)
	is := r.over(t, task, "succeeded")
	is.went(t, "On", len(racked), 0)
	did := r.journal.deeds(t, mark)
	wereSent(t, did, "On", racked...)
	began, done := wereInTurn(t, did, "powershelf", "nvswitch", "compute")
	if waited := began["nvswitch"].minus(done["powershelf"]); waited < pause {
		t.Errorf("the first switch was told %s after the last shelf was on, want the Sleep of %s between", waited, pause)
	}
	for _, kind := range []string{"compute", "nvswitch"} { // VerifyReachability
		if !slices.ContainsFunc(r.journal.all(t)[mark:], func(a asked) bool {
			return kindOf(a.machine()) == kind && a.told() != "" && a.Began > done["powershelf"] && a.Ended < began["nvswitch"]
		}) {
			t.Errorf("no %s was looked for between the last shelf and the first switch", kind)
		}
	}
	t.Logf("at most in flight: %v; %s in all", inFlight(t, did), done["compute"].minus(began["powershelf"]).Round(time.Millisecond))
}

// sent waits until so many machines of a type were told something.
func (r *rackSite) sent(t *testing.T, mark int, kind string, many int) {
	t.Helper()
	r.until(t, fmt.Sprintf("%d of %s to be told", many, kind), func() error {
		n := 0
		for _, d := range r.journal.deeds(t, mark) {
			if kindOf(d.machine) == kind {
				n++
			}
		}
		if n < many {
			return fmt.Errorf("%d were", n)
		}
		return nil
	})
}

// cancelled asks for the end while the third tray is on its way.
func (r *rackSite) cancelled(t *testing.T) {
	mark := r.journal.mark(t)
	task := r.operate(t, "power_off", "x1", "--reason", "test")
	r.sent(t, mark, "compute", 3)
	r.cli(t, "operation", "cancel", fmt.Sprint(task), "--reason", "not today")
	asked := momentOf(time.Now())
	is := r.over(t, task, "cancelled")
	did := r.journal.deeds(t, mark)
	for _, d := range did {
		if late := d.sent.minus(asked); late > powerPoll {
			t.Errorf("%s was sent %s %s after the cancel", d.machine, d.reset, late)
		}
	}
	var names []string
	for _, d := range did {
		names = append(names, d.machine)
	}
	if len(did) < 3 || len(did) == len(of("compute")) {
		t.Errorf("the cancel came when %d trays had been told: it was to come in the middle", len(did))
	}
	wereSent(t, did, "GracefulShutdown", names...)
	inFlight(t, did)
	r.until(t, "what was told to be off", func() error {
		if off := r.powers(t, "Off"); !sameNames(off, names) {
			return fmt.Errorf("%v are, and %v were told", off, names)
		}
		return nil
	})
	is.left(t, func(name string) (string, string, []string) {
		at := slices.Index(names, name)
		switch {
		case at >= 0 && at < 2: // they had room for the third
			return "cancelled", "", []string{"Off"}
		case at >= 0: // it may take a moment yet
			return "cancelled", "", []string{"Off", "On"}
		case kindOf(name) == "compute":
			return "cancelled", "", []string{"On"}
		}
		return "waiting", "", []string{"On"} // it never began
	})
}

// stopped goes on where that ended. One tray's BMC is dead.
func (r *rackSite) stopped(t *testing.T) {
	on := r.powers(t, "On")
	r.wire.cut()
	mark := r.journal.mark(t)
	is := r.over(t, r.operate(t, "power_off", "x1", "--reason", "test"), "failed")
	if f := is.Task.Failure; f == nil || f.Code != "BMC_UNREACHABLE" || !strings.Contains(f.Message, "stage 1, compute: "+deadName) {
		t.Errorf("the task's failure is %+v", f)
	}
	is.left(t, func(name string) (string, string, []string) {
		switch {
		case name == deadName:
			return "failed", "BMC_UNREACHABLE", []string{"unknown (…"}
		case kindOf(name) == "compute":
			return "cancelled", "", []string{"Off"}
		}
		return "waiting", "", []string{"On"} // it never began
	})
	did := r.journal.deeds(t, mark)
	wereSent(t, did, "GracefulShutdown", slices.DeleteFunc(of("compute"), func(name string) bool { return name == deadName || !slices.Contains(on, name) })...)
	inFlight(t, did)
	if on := r.powers(t, "On"); !sameNames(on, append([]string{deadName}, append(of("nvswitch"), of("powershelf")...)...)) {
		t.Errorf("%v are on", on)
	}
}

// without leaves the dead one out, by its name since the shelves are cut too.
func (r *rackSite) without(t *testing.T) {
	if said, code := r.ask(t, "operation", "submit", "power_off", "x1", "--reason", "test", "--exclude", "compute"); code != 1 {
		t.Errorf("a type was left out where the shelves are cut: %d\n%s", code, said)
	}
	mark := r.journal.mark(t)
	is := r.over(t, r.operate(t, "power_off", "x1", "--reason", "test", "--exclude", deadName), "succeeded")
	is.went(t, "Off", len(racked)-1, 1)
	did := r.journal.deeds(t, mark)
	wereSent(t, did, "GracefulShutdown", append(of("nvswitch"), of("powershelf")...)...)
	wereInTurn(t, did, "nvswitch", "powershelf")
	inFlight(t, did)
	if on := r.powers(t, "On"); !sameNames(on, []string{deadName}) {
		t.Errorf("%v are on, want the one that was left out", on)
	}
}
