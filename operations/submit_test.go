package operations_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
)

func ids(of map[string]int64, names ...string) []int64 {
	var all []int64
	for _, name := range names {
		all = append(all, of[name])
	}
	return all
}

func TestATaskLocksWhatItsOperationTouches(t *testing.T) {
	w := newWorld(t)
	everything := []string{"p1", "p2", "n1", "n2", "c1", "c2", "c3", "s1"}
	for name, c := range map[string]struct {
		operation  string
		components []jobs.Ref
		exclude    []jobs.Ref
		works      []string
		locks      []string
	}{
		"all of it":                  {"power_off", nil, nil, []string{"p1", "p2", "n1", "n2", "c1", "c2", "c3"}, everything},
		"trays alone":                {"power_off", named("Compute"), nil, []string{"c1", "c2", "c3"}, []string{"c1", "c2", "c3"}},
		"one tray":                   {"restart", named("r-c2"), nil, []string{"c2"}, []string{"c2"}},
		"links take the rack":        {"power_off", named("nvlswitch"), nil, []string{"n1", "n2"}, everything},
		"a shelf takes the rack":     {"power_on", named("r-p1"), nil, []string{"p1"}, everything},
		"trays but one":              {"warm_reset", named("compute"), named("R-C3"), []string{"c1", "c2"}, []string{"c1", "c2"}},
		"what is left out loses too": {"power_off", nil, named("r-c1"), []string{"p1", "p2", "n1", "n2", "c2", "c3"}, everything},
		"decommission of all":        {"decommission", nil, nil, []string{"p1", "p2", "n1", "n2", "c1", "c2", "c3"}, []string{"p1", "p2", "n1", "n2", "c1", "c2", "c3"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(t, "operations", wide)
			rack, of := w.rack("r")
			r := power(c.operation, rack)
			if c.operation == "decommission" {
				r.OperationType = "decommission"
			}
			r.Components, r.Exclude = c.components, c.exclude
			task := w.submit(r)
			w.wantLocked(task, ids(of, c.locks...)...)
			var got []int64
			for _, one := range w.begin(task).Components {
				got = append(got, one.Device)
			}
			want := ids(of, c.works...)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("it works on %v, want %v", got, want)
			}
		})
	}
	_ = w
}

func TestWhatARequestMayNotSay(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.rack("R2")
	why := "the hall burns"
	image := operations.Firmware{ComponentType: "Compute", URI: "https://images/x", SHA256: strings.Repeat("a", 64), Versions: map[string]string{"BMC": "2"}}
	for name, c := range map[string]struct {
		change func(*operations.Request)
		code   string
	}{
		"no rack":                 {func(r *operations.Request) { r.Racks = nil }, jobs.CodeParameterInvalid},
		"a rack that is none":     {func(r *operations.Request) { r.Racks = named("nowhere") }, operations.CodeRackNotFound},
		"a rack that is not seen": {func(r *operations.Request) { r.Visible = []string{"elsewhere"} }, operations.CodeRackNotFound},
		"no operation":            {func(r *operations.Request) { r.Operation = "power_nonsense" }, jobs.CodeParameterInvalid},
		"one of another kind":     {func(r *operations.Request) { r.Operation = "upgrade" }, jobs.CodeParameterInvalid},
		"firmware for power":      {func(r *operations.Request) { r.Firmware = []operations.Firmware{image} }, jobs.CodeParameterInvalid},
		"no firmware":             {func(r *operations.Request) { r.OperationType, r.Operation = "firmware_control", "upgrade" }, jobs.CodeParameterInvalid},
		"two images for a type": {func(r *operations.Request) {
			other := image
			other.URI = "https://images/y"
			r.OperationType, r.Operation, r.Firmware = "firmware_control", "upgrade", []operations.Firmware{image, other}
		}, jobs.CodeParameterInvalid},
		"a version of control characters": {func(r *operations.Request) {
			odd := image
			odd.Versions = map[string]string{"BMC": "2\x00"}
			r.OperationType, r.Operation, r.Firmware = "firmware_control", "upgrade", []operations.Firmware{odd}
		}, jobs.CodeParameterInvalid},
		"firmware without versions": {func(r *operations.Request) {
			r.OperationType, r.Operation, r.Firmware = "firmware_control", "upgrade", []operations.Firmware{{ComponentType: "compute", URI: image.URI, SHA256: image.SHA256}}
		}, jobs.CodeParameterInvalid},
		"queue_for without a queue":     {func(r *operations.Request) { r.QueueFor = time.Minute }, jobs.CodeParameterInvalid},
		"a stranger":                    {func(r *operations.Request) { r.Components = named("r-c1", "r2-c1") }, jobs.CodeDeviceNotFound},
		"a device of no type":           {func(r *operations.Request) { r.Components = named("r-s1") }, jobs.CodeParameterInvalid},
		"shelves cut, a type left out":  {func(r *operations.Request) { r.Exclude = named("compute") }, jobs.CodeParameterInvalid},
		"no reason":                     {func(r *operations.Request) { r.Reason = " " }, jobs.CodeReasonMissing},
		"an override without the scope": {func(r *operations.Request) { r.Override = &why }, jobs.CodeScopeMissing},
		"an override without a reason":  {func(r *operations.Request) { none := " "; r.Override, r.Force = &none, true }, jobs.CodeReasonMissing},
		"nothing that the rule is for":  {func(r *operations.Request) { r.Components = named("cdu") }, jobs.CodeTooFewDevices},
	} {
		t.Run(name, func(t *testing.T) {
			r := power("power_off", rack)
			c.change(&r)
			w.t = t
			w.refused(r, c.code)
		})
	}
	w.t = t
	r := power("upgrade", rack)
	r.OperationType, r.Firmware = "firmware_control", []operations.Firmware{image}
	w.wantLocked(w.submit(r), ids(of, "c1", "c2", "c3")...) // only what there is an image for
}

func TestAManagerThatIsMissingIsRefusedAtSubmission(t *testing.T) {
	w := worldOf(t, "operations", wide, func(o *operations.Options) {
		o.Managers = map[string][]rule.Capability{"compute": {rule.Power, rule.Reachability}, "nvswitch": {rule.Power}}
	})
	rack, of := w.rack("r")
	report := w.refused(power("power_on", rack), operations.CodeCapabilityMissing)
	if len(report.Refusals) < 2 || !strings.Contains(report.Refusals[0].Message, "power for powershelf") {
		t.Errorf("%+v", report.Refusals)
	}
	r := power("power_on", rack)
	r.Components = named("compute")
	w.exec("update devices set bmc_address = '' where id = $1", of["c1"])
	report = w.refused(r, operations.CodeCapabilityMissing)
	if len(report.Devices) != 3 || len(report.Devices[0].Refusals) != 1 {
		t.Errorf("%+v", report)
	}
	w.exec("update devices set infrastructure_ref = 'u' where id = $1", of["c1"])
	w.submit(r)
}

// What cannot be reached matters by what is done: firmware wants the BMC, a
// decommissioning is asked of the inventory.
func TestWhatIsReachedDependsOnWhatIsDone(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.exec("update devices set bmc_address = '', infrastructure_ref = 'u' where id = $1", of["c1"])
	update := power("upgrade", rack)
	update.OperationType = "firmware_control"
	update.Firmware = []operations.Firmware{{ComponentType: "compute", URI: "https://images/x", SHA256: strings.Repeat("a", 64), Versions: map[string]string{"BMC": "2"}}}
	w.refused(update, operations.CodeCapabilityMissing)
	w.exec("update devices set infrastructure_ref = '' where id = $1", of["c1"])
	away := power("decommission", rack)
	away.OperationType, away.Components = "decommission", named("r-c1")
	w.submit(away)
}

// A shelf's power is everybody's: what muster may not touch keeps it on.
func TestWhatIsForTheInventoryOnlyKeepsItsRackFromBeingCut(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.exec("update devices set inventory_only = true where id = $1", of["c3"])
	report := w.refused(power("power_off", rack), "device_inventory_only")
	for _, v := range report.Devices {
		if (len(v.Refusals) > 0) != (v.ID == of["c3"]) {
			t.Errorf("%s: %+v", v.Name, v.Refusals)
		}
	}
	r := power("power_off", rack)
	r.Components = named("r-c1")
	w.wantLocked(w.submit(r), of["c1"])
}

// Each rack of a request is judged by its own rule.
func TestARackIsNotJudgedByTheRuleOfAnother(t *testing.T) {
	w := newWorld(t)
	r1, _ := w.rack("r1")
	r2, of := w.rack("r2")
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"])
	id := w.create(rule.Document{Data: []byte(`{"name": "again", "operation_type": "power_control", "operation": "power_on", "steps": [
		{"component_type": "compute", "stage": 1, "main_operation": {"name": "PowerControl", "parameters": {"operation": "force_power_off"}}},
		{"component_type": "compute", "stage": 2, "main_operation": {"name": "PowerControl"}}]}`)}, false).ID
	_, err := w.svc.Associate(w.ctx(), r1, "", id, ann, nil)
	must(t, err)
	done, err := w.svc.Submit(w.ctx(), power("power_on", r1, r2))
	must(t, err)
	if len(done.Tasks) != 2 || !done.Tasks[0].Disruptive || done.Tasks[1].Disruptive {
		t.Errorf("%+v", done.Tasks)
	}
}

// Types that a rule asks about are no components of it: nothing is done to them.
func TestWhatARuleOnlyAsksAboutIsNotItsOwn(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.exec("update devices set bmc_address = '' where id = $1", of["p1"])
	w.create(rule.Document{Data: []byte(`{"name": "fed", "operation_type": "power_control", "operation": "power_on", "steps": [{"component_type": "compute", "stage": 1,
		"pre_operation": [{"name": "VerifyReachability", "timeout": "1m", "poll_interval": "1s", "parameters": {"component_types": ["powershelf"]}}], "main_operation": {"name": "PowerControl"}}]}`)}, true)
	task := w.submit(power("power_on", rack))
	w.wantLocked(task, ids(of, "c1", "c2", "c3")...)
	if b := w.begin(task); len(b.Components) != 3 || len(b.Beside) != 5 {
		t.Errorf("%d components, %d beside them", len(b.Components), len(b.Beside))
	}
}

func TestCustomersKeepTheirPowerWithoutAnOverride(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"])
	report := w.refused(power("power_off", rack), "instance_present")
	for _, v := range report.Devices {
		if (len(v.Refusals) > 0) != (v.ID == of["c2"]) {
			t.Errorf("%s: %+v", v.Name, v.Refusals)
		}
		if v.ID == of["c2"] && !strings.HasPrefix(v.Refusals[0].Policy, "policies/eligibility/") {
			t.Errorf("the refusal does not say where it stands: %+v", v.Refusals)
		}
	}
	// Left out of the request, the machine loses its power with the shelves all the same.
	r := power("power_off", rack)
	r.Exclude = named("r-c2")
	w.refused(r, "instance_present")
	r.Components = named("compute") // the shelves stay
	w.wantLocked(w.submit(r), ids(of, "c1", "c3")...)
	must(t, w.svc.Cancel(w.ctx(), value[int64](w, "select max(id) from tasks"), "", ann, nil))
	why := "the hall burns"
	r = power("power_off", rack)
	r.Override, r.Force = &why, true
	task := w.submit(r)
	if n := value[int](w, "select count(*) from audit where target = $1 and detail->>'override' = $2", task.Holder(), why); n != 1 || task.OverrideReason != why {
		t.Errorf("%d audited overrides, %q on the task", n, task.OverrideReason)
	}
	must(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, nil))
	w.submit(power("power_on", rack)) // takes nothing from anybody
}

// A rule for power_on that also switches off is judged as one that switches off.
func TestARuleIsJudgedByEverythingThatItDoes(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"])
	w.create(rule.Document{Data: []byte(`{"name": "again", "operation_type": "power_control", "operation": "power_on", "steps": [
		{"component_type": "compute", "stage": 1, "main_operation": {"name": "PowerControl", "parameters": {"operation": "force_power_off"}}},
		{"component_type": "compute", "stage": 2, "main_operation": {"name": "PowerControl"}}]}`)}, true)
	w.refused(power("power_on", rack), "instance_present")
}

func TestCapsCountTheDevicesOfTasks(t *testing.T) {
	w := worldOf(t, "narrow", narrow)
	r1, _ := w.rack("r1")
	r2, _ := w.rack("r2")
	w.refused(power("power_off", r1, r2), jobs.CodeBlastCapExceeded)
	first := w.submit(power("power_off", r1))
	r := power("power_off", r2)
	r.Components = named("compute")
	report := w.refused(r, jobs.CodeBlastCapExceeded)
	if !strings.Contains(report.Refusals[0].Message, first.Holder()) {
		t.Errorf("%s does not name the holder", report.Refusals[0].Message)
	}
	w.submit(power("power_on", r2)) // takes nothing from anybody
	_, err := w.jobs.Submit(w.ctx(), jobs.Submission{Request: jobs.Request{Workflow: "node_unenrollment", Devices: named("r2-c1")}, By: ann})
	if err == nil {
		t.Error("a job was admitted on a device that a task holds")
	}
}

func TestTheSameAgainIsTheSameTask(t *testing.T) {
	w := newWorld(t)
	r1, _ := w.rack("r1")
	r2, _ := w.rack("r2")
	first := w.submit(power("power_off", r1))
	again, err := w.svc.Submit(w.ctx(), power("power_off", r1))
	must(t, err)
	if !again.Repeated || again.Tasks[0].ID != first.ID {
		t.Errorf("%+v", again)
	}
	both, err := w.svc.Submit(w.ctx(), power("power_off", r2, r1))
	must(t, err)
	if both.Repeated || len(both.Tasks) != 2 || both.Tasks[0].ID != first.ID || both.Tasks[1].RackID != r2 {
		t.Errorf("%+v", both)
	}
	w.refused(power("power_on", r1), jobs.CodeWorkflowConflict)
	why, over := "fire", power("power_off", r1) // it asks for more than the one that there is
	over.Override, over.Force = &why, true
	w.refused(over, jobs.CodeWorkflowConflict)
	keyed := power("power_on", r1)
	keyed.IdempotencyKey, keyed.Conflict = "k", operations.ConflictQueue
	task := w.submit(keyed)
	must(t, w.svc.Cancel(w.ctx(), task.ID, "", ann, nil))
	repeated, err := w.svc.Submit(w.ctx(), keyed)
	must(t, err)
	if !repeated.Repeated || repeated.Tasks[0].ID != task.ID {
		t.Errorf("%+v", repeated)
	}
	keyed.Operation = "restart"
	_, err = w.svc.Submit(w.ctx(), keyed)
	coded(t, err, jobs.CodeIdempotencyKeyReused)
}

func TestWhatWaitsGoesOnInTurnAndIsJudgedAnew(t *testing.T) {
	w := newWorld(t)
	rack, of := w.rack("r")
	queue := func(operation string, components ...string) fleet.Task {
		t.Helper()
		r := power(operation, rack)
		r.Conflict, r.Components = operations.ConflictQueue, named(components...)
		return w.submit(r)
	}
	first := w.submit(power("power_off", rack))
	second, third, fourth := queue("power_on"), queue("restart", "compute"), queue("restart", "r-c1")
	for i, task := range []fleet.Task{second, third, fourth} {
		w.want(task.ID, fleet.TaskQueued, "")
		w.wantLocked(task)
		if row := w.task(task.ID); row.Ahead != i || row.QueueUntil.IsZero() {
			t.Errorf("task %d has %d ahead of it", task.ID, row.Ahead)
		}
	}
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"]) // it passes before anybody's turn
	if n := w.promote(); n != 0 {
		t.Fatalf("%d went on while the rack was held", n)
	}
	w.want(third.ID, fleet.TaskQueued, "")
	w.exec("update devices set operational_status = 'quarantine' where id = $1", of["c2"])
	w.begin(first)
	w.finish(first, succeeded())
	if n := w.promote(); n != 1 {
		t.Fatalf("%d went on", n)
	}
	w.want(second.ID, fleet.TaskPending, "")
	w.begin(second)
	w.exec("update devices set operational_status = 'in_use' where id = $1", of["c2"])
	w.finish(second, succeeded())
	if n := w.promote(); n != 2 { // the third ends, the fourth begins
		t.Fatalf("%d were decided", n)
	}
	w.want(third.ID, fleet.TaskFailed, "instance_present")
	w.want(fourth.ID, fleet.TaskPending, "")
	w.wantLocked(fourth, of["c1"])
	late := queue("power_off", "r-c1")
	w.exec("update tasks set queue_until = now() - interval '1 second' where id = $1", late.ID)
	n, err := w.svc.Expire(w.ctx(), 10)
	must(t, err)
	w.want(late.ID, fleet.TaskExpired, "")
	if n != 1 {
		t.Errorf("%d expired", n)
	}
	late = queue("power_off", "r-c1") // nobody has looked for what is late yet
	w.exec("update tasks set queue_until = now() - interval '1 second' where id = $1", late.ID)
	w.finish(fourth, succeeded())
	w.promote()
	w.want(late.ID, fleet.TaskExpired, "")
	w.wantLocked(late)
}
