package jobs_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

func TestASubmissionWritesAllOfAJob(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	s := w.submission(exclusive, b, a)
	s.Parameters, s.Reason = object(t, map[string]any{"run_inspection": false}), "a new rack"
	done, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	j := w.job(done.Job.ID)
	if j.Status != fleet.JobPending || j.Workflow != exclusive || j.Site != "lab" || j.RequestedBy != "ann" || j.Reason != "a new rack" ||
		j.Devices[fleet.DeviceWaiting] != 2 || j.Unsent != 2 || j.BundleVersion == "" {
		t.Fatalf("%+v", j)
	}
	if want := map[string]any{"run_inspection": false, "node_uuid": nil}; !reflect.DeepEqual(j.Parameters, want) {
		t.Fatalf("parameters %v, want %v", j.Parameters, want)
	}
	for _, id := range []int64{a, b} {
		if got := w.locks(id); !slices.Equal(got, []string{j.Holder() + " exclusive"}) {
			t.Errorf("device %d is held by %v", id, got)
		}
		e, err := store.Execution(w.ctx(), w.db, workflowID(j.Job, id))
		must(t, err)
		if e.State != fleet.ExecutionUnsent || e.Kind != fleet.ExecutionDevice || e.DeviceID != id || e.DispatchBy.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	if n := value[int](w, "select count(*) from audit where principal = 'ann' and action = 'job.submit' and target = $1", j.Holder()); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestACohortIsOneExecution(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a", "operational_status = 'validation'", "infrastructure_ref = 'n'"), w.device("b")
	r, err := w.svc.Check(w.ctx(), request(cohort, a, b))
	must(t, err)
	if r.Admitted() {
		t.Fatal("a cohort without facts was admitted")
	}
	// The kind is the implementation's word, not the gates'.
	batch := w.service(jobs.Options{Implemented: func(string) (jobs.Implementation, bool) { return jobs.Implementation{Batch: true}, true }})
	done, err := batch.Submit(w.ctx(), w.submission(shared, a, b))
	must(t, err)
	all, err := store.JobExecutions(w.ctx(), w.db, done.Job.ID)
	must(t, err)
	if len(all) != 1 || all[0].Kind != fleet.ExecutionBatch || all[0].WorkflowID != fmt.Sprintf("job/%d/batch", done.Job.ID) || all[0].DeviceID != 0 {
		t.Fatalf("%+v", all)
	}
}

func TestEveryReasonIsGivenAtOnce(t *testing.T) {
	w := newWorld(t)
	good := w.device("good")
	bad := w.device("bad", "operational_status = 'delegated'", "inventory_status = 'rma'", "device_class = 'nvswitch'")
	kept := w.device("kept", "inventory_only = true")
	gone := w.device("gone", "retired_at = now()")
	w.submit(exclusive, good)
	s := w.submission(exclusive, good, bad, kept, gone, bad)
	s.Devices = append(s.Devices, jobs.Ref{Name: "nobody"})
	r := w.refused(s, "workflow_conflict", "device_class_not_allowed", "inventory_status_not_allowed", "custody_frozen", "device_inventory_only", "device_not_found", "duplicate_device")
	codes := func(i int) (all []string) {
		for _, refusal := range r.Devices[i].Refusals {
			all = append(all, refusal.Code)
		}
		slices.Sort(all)
		return all
	}
	for i, want := range [][]string{
		{"workflow_conflict"}, {"custody_frozen", "device_class_not_allowed", "inventory_status_not_allowed"},
		{"device_inventory_only"}, {"device_not_found"}, {"duplicate_device"}, {"device_not_found"},
	} {
		if got := codes(i); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", r.Devices[i].Ref, got, want)
		}
	}
	for _, refusal := range r.Devices[1].Refusals {
		if refusal.Path == "" || refusal.Actual == "" || refusal.Expected == "" || !strings.Contains(refusal.Policy, ".cue:") {
			t.Errorf("a refusal does not explain itself: %+v", refusal)
		}
	}
}

func TestASubmissionAsAWholeIsRefused(t *testing.T) {
	w := newWorld(t)
	w.exec("insert into racks (site_id, source_ref, name) values ($1, '1', 'r1'), ($1, '2', 'r2')", w.lab.ID)
	rack := func(name string) string { return "rack_id = (select id from racks where name = '" + name + "')" }
	a, b := w.device("a", rack("r1")), w.device("b", rack("r2"), "resource_class = 'H100'")
	loose, other := w.device("loose", "resource_class = ''"), w.at(w.iron, "other")
	params := func(s jobs.Submission, v map[string]any) jobs.Submission { s.Parameters = object(t, v); return s }
	for name, c := range map[string]struct {
		s    jobs.Submission
		code string
		path string
	}{
		"no such workflow":         {w.submission("no_such", a), jobs.CodeWorkflowNotFound, ""},
		"not run by this version":  {w.submission("image_node", a), "", ""},
		"only by way of a report":  {w.submission("generate_report", a), jobs.CodeWorkflowNotAvailable, ""},
		"no device":                {w.submission(shared), jobs.CodeTooFewDevices, "devices"},
		"two trays at once":        {params(w.submission(swap, a, b), map[string]any{"replacement_host_name": "loose"}), jobs.CodeTooManyDevices, "devices"},
		"devices of two sites":     {w.submission(shared, a, other), jobs.CodeMixedSite, ""},
		"devices of two racks":     {w.submission(reading, a, b), jobs.CodeMixedRack, "devices"},
		"a device in no rack":      {w.submission(reading, a, loose), jobs.CodeMixedRack, "devices"},
		"an unknown parameter":     {params(w.submission(shared, a), map[string]any{"speed": 1}), jobs.CodeParameterInvalid, "parameters.speed"},
		"a parameter of the site":  {params(w.submission("release_to_customer_pool", a), map[string]any{"engagement_mode": "metal_delegated"}), jobs.CodeParameterInvalid, "parameters.engagement_mode"},
		"the spare is the tray":    {params(w.submission(swap, a), map[string]any{"replacement_host_name": "A"}), jobs.CodeParameterInvalid, "parameters.replacement_host_name"},
		"the spare does not exist": {params(w.submission(swap, a), map[string]any{"replacement_host_name": "zz"}), jobs.CodeDeviceNotFound, "parameters.replacement_host_name"},
	} {
		r, err := w.svc.Submit(w.ctx(), c.s)
		refused, ok := err.(*jobs.RefusedError)
		if !ok {
			t.Errorf("%s: %+v, %v", name, r, err)
			continue
		}
		if c.code == "" {
			c.code = jobs.CodeWorkflowNotAvailable
		}
		if i := slices.IndexFunc(refused.Report.Refusals, func(r jobs.Refusal) bool { return r.Code == c.code && r.Path == c.path }); i < 0 {
			t.Errorf("%s: %+v", name, refused.Report.Refusals)
		}
	}
	if r := w.refused(w.submission(cohort, a, b), jobs.CodeParameterInvalid, jobs.CodeMixedResourceClass); r.Refusals[len(r.Refusals)-1].Actual != "H100" {
		t.Errorf("%+v", r.Refusals)
	}
	if n := value[int](w, "select count(*) from jobs"); n != 0 {
		t.Errorf("%d jobs", n)
	}
}

func TestARequestThatWentStaleIsJudgedAgain(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	r, err := w.svc.Check(w.ctx(), request(exclusive, a))
	must(t, err)
	if !r.Admitted() || !r.Available {
		t.Fatalf("%+v", r)
	}
	w.exec("update devices set inventory_status = 'rma' where id = $1", a)
	w.refused(w.submission(exclusive, a), "inventory_status_not_allowed")
}

func TestASubmissionWaitsForWhoeverChangesItsDevices(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	tx, err := w.db.Begin(w.ctx())
	must(t, err)
	_, err = tx.Exec(w.ctx(), "update devices set inventory_status = 'rma' where id = $1", a)
	must(t, err)
	answer := make(chan error, 1)
	go func() { _, err := w.svc.Submit(w.ctx(), w.submission(exclusive, a)); answer <- err }()
	w.until("select count(*) > 0 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")
	must(t, tx.Commit(w.ctx()))
	if err, ok := (<-answer).(*jobs.RefusedError); !ok || !err.Has("inventory_status_not_allowed") {
		t.Fatalf("%v", err)
	}
}

func TestStaleFactsCloseTheGatesThatRestOnThem(t *testing.T) {
	w := newWorld(t)
	a := w.at(w.iron, "a")
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at) values ($1, 'ironic', $2, 'n1', '\x00', '{"listed": true, "instance_bound": false}', now() - interval '1 day')`, a, w.iron.ID)
	w.exec("insert into watermarks (site_id, source, at) values ($1, 'ironic', now() - interval '1 day')", w.iron.ID)
	if r := w.refused(w.submission(taking, a), "facts_stale"); !strings.HasPrefix(r.Devices[0].Refusals[0].Path, "ironic.") {
		t.Fatalf("%+v", r.Devices[0].Refusals)
	}
	w.submit(shared, a) // no gate of it rests on Ironic
	w.exec("delete from device_locks")
	w.exec("update watermarks set at = now()")
	w.submit(taking, a)
	w.exec("delete from device_locks")
	w.exec("update facts set unread_reason = 'DecodeFailed', unread_since = now()")
	w.refused(w.submission(taking, a), "facts_stale")
}

func TestLocksKeepWorkApart(t *testing.T) {
	for name, c := range map[string]struct {
		first, second string
		admitted      bool
	}{
		"exclusive, then exclusive": {exclusive, exclusive, false},
		"exclusive, then shared":    {exclusive, shared, false},
		"shared, then exclusive":    {shared, exclusive, false},
		"shared, then shared":       {shared, shared, true},
		"exclusive, then none":      {exclusive, reading, true},
		"none, then exclusive":      {reading, exclusive, true},
		"shared, then none":         {shared, reading, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.device("a"), w.device("b")
			j := w.submit(c.first, a)
			if c.admitted {
				w.submit(c.second, a)
				return
			}
			s := w.submission(c.second, b, a)
			r := w.refused(s, jobs.CodeWorkflowConflict)
			if refusal := r.Devices[1].Refusals[0]; refusal.Holder != j.Holder() || !strings.Contains(refusal.Message, "holds a") || len(r.Devices[0].Refusals) != 0 {
				t.Errorf("%+v", r.Devices)
			}
			w.finish(j, a, fleet.DeviceSucceeded, "")
			w.submit(c.second, b, a)
		})
	}
}

func TestASpareIsHeldByName(t *testing.T) {
	w := newWorld(t)
	tray, spare := w.device("Tray"), w.device("Spare-1")
	w.at(w.iron, "spare-1")
	s := w.submission(swap, tray)
	s.Parameters = object(t, map[string]any{"replacement_host_name": "SPARE-1"})
	done, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	if got := w.locks(spare); !slices.Equal(got, []string{done.Job.Holder() + " exclusive"}) {
		t.Fatalf("%v", got)
	}
	w.refused(w.submission(exclusive, spare), jobs.CodeWorkflowConflict)
	w.refused(w.submission(shared, spare), jobs.CodeWorkflowConflict)
	w.finish(done.Job, tray, fleet.DeviceFailed, codes.NetboxUnavailable)
	w.wantFree(spare, true)
	j := w.submit(shared, spare)
	r := w.refused(s, jobs.CodeWorkflowConflict)
	if refusal := r.Refusals[0]; refusal.Path != "parameters.replacement_host_name" || refusal.Holder != j.Holder() {
		t.Fatalf("%+v", refusal)
	}
	w.exec("update devices set inventory_only = true where id = $1", spare)
	w.finish(j, spare, fleet.DeviceSucceeded, "")
	w.refused(s, jobs.CodeInventoryOnly)
}

func TestDangerousParametersNeedTheirScopeAndAReason(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	s := w.submission("move_to_test_cluster", a)
	s.Parameters = object(t, map[string]any{"force_reclaim": true})
	_, err := w.svc.Submit(w.ctx(), s)
	coded(t, err, jobs.CodeScopeMissing)
	s.Force = true
	if _, err := w.svc.Submit(w.ctx(), s); err == nil || !err.(*jobs.RefusedError).Has(jobs.CodeReasonMissing) {
		t.Fatalf("%v", err)
	}
	s.Reason = "  the customer asked  "
	if _, err := w.svc.Submit(w.ctx(), s); err == nil || err.(*jobs.RefusedError).Has(jobs.CodeReasonMissing) {
		t.Fatalf("%v", err)
	}
}

func TestTheServerStampsWhatTheSiteAndTheDeviceAre(t *testing.T) {
	w := newWorld(t)
	a := w.at(w.iron, "a", "infrastructure_ref = 'n1'", "enrollment_validated_ref = 'n1'")
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at) values
		($1, 'ironic', $2, 'n1', '\x00', '{"listed": true, "instance_bound": false, "provision_state": "available", "maintenance": false}', now())`, a, w.iron.ID)
	w.exec("insert into watermarks (site_id, source, at) values ($1, 'ironic', now()), ($1, 'slurm', now())", w.iron.ID)
	done, err := w.svc.Submit(w.ctx(), w.submission("move_to_test_cluster", a))
	must(t, err)
	j := w.job(done.Job.ID)
	if j.Parameters["engagement_mode"] != "fully_managed" || j.Parameters["force_reclaim"] != false {
		t.Fatalf("%v", j.Parameters)
	}
	rows, err := store.JobDevices(w.ctx(), w.db, j.ID, 0, 10)
	must(t, err)
	if v, there := rows[0].Stamped["reclaim_instance"]; v != nil || !there {
		t.Fatalf("%v", rows[0].Stamped)
	}
}

func TestDevicesOfOtherSitesDoNotExist(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	s := w.submission(shared, a)
	s.Visible = []string{"iron"}
	w.refused(s, jobs.CodeDeviceNotFound)
	s.Devices = []jobs.Ref{{Name: "a"}}
	w.refused(s, jobs.CodeDeviceNotFound)
	b := w.at(w.iron, "a")
	s.Visible = nil
	w.refused(s, jobs.CodeDeviceNotFound) // which of the two?
	s.Site = "iron"
	done, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	w.wantDevice(done.Job.ID, b, fleet.DeviceWaiting, "")
	_, err = w.svc.Cancel(w.ctx(), done.Job.ID, "", s.By, []string{"lab"})
	coded(t, err, jobs.CodeJobNotFound)
}

func TestAnyTextCanBeStored(t *testing.T) {
	w := newWorld(t)
	w.device("a")
	s := w.submission(cohort)
	s.Devices, s.Site = []jobs.Ref{{Name: "A\x00"}, {Name: "\xff"}}, "lab\x00"
	s.Parameters = []byte(`{"test_slug": "x", "test_params": {"k\u0000": "v\u0000"}}`)
	s.Reason, s.IdempotencyKey = "because\x00", "k\x00"
	r, err := w.svc.Check(w.ctx(), s.Request)
	must(t, err)
	if r.Devices[0].Name != "a" || r.Parameters["test_slug"] != "x" {
		t.Fatalf("%+v", r)
	}
	if _, err := w.svc.Submit(w.ctx(), s); err == nil || !err.(*jobs.RefusedError).Has(jobs.CodeDeviceNotFound) {
		t.Fatalf("%v", err)
	}
	a := w.submission(shared)
	a.Devices, a.Reason, a.IdempotencyKey, a.By.Name = []jobs.Ref{{Name: " A"}}, "because\x00", "k\x00", "ann"
	_, err = w.svc.Submit(w.ctx(), a)
	must(t, err)
}

func TestThePolicyKnowsEveryCodeOfARefusal(t *testing.T) {
	t.Parallel()
	b, err := shipped()
	must(t, err)
	for _, code := range []string{
		jobs.CodeWorkflowNotFound, jobs.CodeWorkflowNotAvailable, jobs.CodeWorkflowConflict, jobs.CodeDeviceNotFound, jobs.CodeInventoryOnly, jobs.CodeDuplicateDevice,
		jobs.CodeTooFewDevices, jobs.CodeTooManyDevices, jobs.CodeMixedSite, jobs.CodeMixedResourceClass, jobs.CodeMixedRack, jobs.CodeParameterInvalid,
		jobs.CodeBlastCapExceeded, jobs.CodeBreakerOpen, jobs.CodeReasonMissing, engine.CodeFactsStale, engine.CodeNoPolicy,
	} {
		if !slices.ContainsFunc(b.RefusalCodes(), func(c engine.RefusalCode) bool {
			return c.Code == code && (!c.Gate || code == jobs.CodeParameterInvalid)
		}) {
			t.Errorf("%s has no meaning in policies/eligibility/refusals.cue", code)
		}
	}
}
