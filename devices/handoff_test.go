package devices_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// whyKept is the code of a refused hand-off, "" for none.
func whyKept(t testing.TB, err error) devices.HandOffCode {
	t.Helper()
	var refused *devices.HandOffRefused
	if errors.As(err, &refused) {
		return refused.Code
	}
	must(t, err)
	return ""
}

// proven is a device whose Ironic node an enrolment has validated.
func (w *world) proven(ref string) int64 {
	w.t.Helper()
	id := w.bear(ref, node())
	_, err := w.svc.Prove(w.ctx(), id, ref, enroller)
	must(w.t, err)
	return id
}

func TestAHandOffChecksWhatIsStoredNow(t *testing.T) {
	w := newWorld(t)
	all := devices.HandOff{Proof: true, Latches: true}
	latch := func(name string, status fleet.Tri) func(int64) {
		return func(id int64) {
			writer := map[string]string{devices.LatchNvLink: "nvlink-fabric", devices.LatchBackend: "backend-fabric", devices.LatchFrontend: "frontend-fabric"}[name]
			w.post(devices.ConditionPost{DeviceID: id, Type: name, Writer: writer, Status: status, Reason: "X"})
		}
	}
	set := func(sql string) func(int64) {
		return func(id int64) { w.exec("update devices set "+sql+" where id = $1", id) }
	}
	for name, c := range map[string]struct {
		spoil func(id int64)
		ask   devices.HandOff
		code  devices.HandOffCode
	}{
		"nothing speaks against it": {func(int64) {}, all, ""},
		"latches that were returned": {func(id int64) {
			latch(devices.LatchNvLink, fleet.False)(id)
			latch(devices.LatchBackend, fleet.False)(id)
		}, all, ""},
		"a front-end latch is no obstacle": {latch(devices.LatchFrontend, fleet.True), all, ""},
		"GPUs isolated":                    {latch(devices.LatchNvLink, fleet.True), all, devices.HandOffNvLinkLatch},
		"GPUs on their way":                {latch(devices.LatchNvLink, fleet.Unknown), all, devices.HandOffNvLinkLatch},
		"ports isolated":                   {latch(devices.LatchBackend, fleet.True), all, devices.HandOffBackendLatch},
		"ports on their way":               {latch(devices.LatchBackend, fleet.Unknown), all, devices.HandOffBackendLatch},
		"ports isolated, nobody asks":      {latch(devices.LatchBackend, fleet.True), devices.HandOff{Proof: true}, ""},
		"no proof":                         {set("enrollment_validated_ref = '', enrollment_proof_source = 'none'"), all, devices.HandOffProofMissing},
		"the proof of another node":        {set("infrastructure_ref = 'u9'"), all, devices.HandOffProofMissing},
		"neither proof nor node":           {set("enrollment_validated_ref = '', infrastructure_ref = ''"), all, devices.HandOffProofMissing},
		"no proof, nobody asks":            {set("enrollment_validated_ref = ''"), devices.HandOff{Latches: true}, ""},
		"in triage":                        {set("in_triage = true"), all, devices.HandOffTriage},
		"under an impairment":              {set(`annotations = '{"impairment-event-id": "e1"}'`), all, devices.HandOffImpairment},
		"drained by a partner":             {set("operational_status = 'drained'"), all, devices.HandOffCustody},
		"delegated":                        {set("operational_status = 'delegated'"), all, devices.HandOffCustody},
		"on its way to a partner":          {set("operational_status = 'pending_handover'"), all, devices.HandOffCustody},
		"not active in the site's listing": {set("inventory_status = 'rma'"), all, devices.HandOffInventory},
		"retired":                          {set("retired_at = now()"), all, devices.HandOffInventory},
		"inventory-only":                   {set("inventory_only = true"), all, devices.HandOffInventory},
		"handed off before, written again": {set("operational_status = 'available'"), all, ""},
	} {
		id := w.proven("node of " + name)
		c.spoil(id)
		ask := c.ask
		ask.Device, ask.Job = id, 12
		called := 0
		err := w.svc.HandOff(w.ctx(), ask, func(ctx context.Context, d *fleet.Device) error {
			called++
			if limit, bounded := ctx.Deadline(); !bounded || time.Until(limit) > 15*time.Second {
				t.Errorf("%s: the write is not bounded", name)
			}
			if d.ID != id || ask.Proof && d.InfrastructureRef != "node of "+name {
				t.Errorf("%s: %+v is handed off", name, d)
			}
			return nil
		})
		if got := whyKept(t, err); got != c.code || called != 0 != (c.code == "") {
			t.Errorf("%s: kept by %q, written %d times, want %q", name, got, called, c.code)
		}
		if n := w.audits("device.hand_off", id, "job/12"); n != called {
			t.Errorf("%s: %d audit rows of %d writes", name, n, called)
		}
	}
	nobody := func(context.Context, *fleet.Device) error { t.Error("nobody was handed off"); return nil }
	if got := whyKept(t, w.svc.HandOff(w.ctx(), devices.HandOff{Proof: true}, nobody)); got != devices.HandOffProofMissing {
		t.Errorf("an empty id under the proof's check: %q", got)
	}
	if got := whyKept(t, w.svc.HandOff(w.ctx(), devices.HandOff{Device: 1 << 40, Latches: true}, nobody)); got != devices.HandOffInventory {
		t.Errorf("no such device: %q", got)
	}
}

func TestAtASiteWithNetBoxTheCallerAsksIt(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) {
		s.Inventory = facts.InventorySourceNetbox
		s.NetBox = &fleet.NetBoxSites{Instance: "main", Sites: []string{"lab"}}
		s.Sources.Recorded = map[string]string{"netbox": "x", "ironic": "x", "slurm": "x"}
	})
	var f facts.Facts
	f.Netbox = facts.Netbox{Name: facts.TextOf("n1"), Role: facts.TextOf("gpu-node"), Status: facts.TextOf("rma"), Tenant: facts.TextOf("")}
	id := w.apply("netbox", born(w.say("1", f))).Born[0]
	if got := whyKept(t, w.svc.HandOff(w.ctx(), devices.HandOff{Device: id}, nil)); got != "" {
		t.Errorf("kept by %q: what is stored of NetBox is older than what the caller has just read", got)
	}
}

func TestAFailedWriteComesBackAsItIs(t *testing.T) {
	w := newWorld(t)
	id := w.proven("n1")
	lost := errors.New("ironic does not answer")
	if err := w.svc.HandOff(w.ctx(), devices.HandOff{Device: id, Job: 1}, func(context.Context, *fleet.Device) error { return lost }); err != lost { //nolint:errorlint // the very one
		t.Errorf("%v", err)
	}
	if err := w.svc.HandOff(w.ctx(), devices.HandOff{Device: id, Job: 1, Delegate: true}, func(context.Context, *fleet.Device) error { return lost }); err != lost { //nolint:errorlint // the very one
		t.Errorf("%v", err)
	}
	if n := w.audits("device.hand_off", id, "job/1"); n != 0 || w.device(id).Operational != facts.OperationalStatusQuarantine {
		t.Errorf("%d audit rows, the device is %s", n, w.device(id).Operational)
	}
}

// waiting waits until n others wait for a lock.
func (w *world) waiting(n int) {
	w.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		var waiting int
		must(w.t, w.db.QueryRow(w.ctx(), "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'").Scan(&waiting))
		if waiting >= n {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d wait for a lock, want %d", waiting, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestWhatIsSetWhileAHandOffWaitsForTheDeviceKeepsIt(t *testing.T) {
	for name, c := range map[string]struct {
		sql  string
		code devices.HandOffCode
	}{
		"triage":        {"update devices set in_triage = true where id = $1", devices.HandOffTriage},
		"an impairment": {`update devices set annotations = '{"impairment-event-id": "e1"}' where id = $1`, devices.HandOffImpairment},
		"custody":       {"update devices set operational_status = 'drained' where id = $1", devices.HandOffCustody},
		"another node":  {"update devices set infrastructure_ref = 'u9' where id = $1", devices.HandOffProofMissing},
		"a latch":       {"insert into conditions (device_id, type, status, reason, writer, last_transition_at) values ($1, 'BackendPortsInMaintenanceVrf', 'Unknown', 'ApplyBegan', 'backend-fabric', now())", devices.HandOffBackendLatch},
	} {
		for _, delegate := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				id := w.proven("n1")
				kept := make(chan error, 1)
				must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
					if _, err := store.LockDevices(w.ctx(), tx, []int64{id}); err != nil {
						return err
					}
					go func() {
						kept <- w.svc.HandOff(w.ctx(), devices.HandOff{Device: id, Job: 1, Proof: true, Latches: true, Delegate: delegate}, func(context.Context, *fleet.Device) error {
							t.Error("it was handed off")
							return nil
						})
					}()
					w.waiting(1)
					_, err := tx.Exec(w.ctx(), c.sql, id)
					return err
				}))
				if got := whyKept(t, <-kept); got != c.code {
					t.Errorf("kept by %q, want %q", got, c.code)
				}
			})
		}
	}
}

func TestNothingOfADeviceChangesWhileItIsHandedOff(t *testing.T) {
	w := newWorld(t)
	id := w.proven("n1")
	var inside, most, writes atomic.Int32
	entered, leave := make(chan struct{}), make(chan struct{})
	write := func(context.Context, *fleet.Device) error {
		most.Store(max(most.Load(), inside.Add(1)))
		defer inside.Add(-1)
		if writes.Add(1) == 1 {
			close(entered)
			<-leave
		}
		return nil
	}
	results := make(chan error, 3)
	hand := func(job int64) {
		results <- w.svc.HandOff(w.ctx(), devices.HandOff{Device: id, Job: job, Proof: true, Latches: true}, write)
	}
	go hand(1)
	<-entered
	go hand(2)
	w.waiting(1)
	go func() {
		results <- w.svc.Triage(w.ctx(), devices.TriagePost{Devices: []int64{id}, InTriage: true, By: enroller})
	}()
	w.waiting(2)
	if inside.Load() != 1 || w.device(id).InTriage {
		t.Errorf("%d write at once, in triage %v", inside.Load(), w.device(id).InTriage)
	}
	// Neither a policy nor another device waits for what is written outside.
	other := w.bear("n2", node(ready))
	w.wantStatus(other, "available", "customer-available")
	close(leave)
	kept := 0
	for range 3 {
		if whyKept(t, <-results) == devices.HandOffTriage {
			kept++
		}
	}
	if most.Load() != 1 || int(writes.Load()) != 2-kept || !w.device(id).InTriage {
		t.Errorf("%d wrote at once, %d writes, %d kept", most.Load(), writes.Load(), kept)
	}
}

func TestManyHandOffsLeaveTheDatabaseToOthers(t *testing.T) {
	w := newWorld(t)
	const devicesAtOnce = 12 // more than there are connections
	leave, results := make(chan struct{}), make(chan error, devicesAtOnce)
	entered := make(chan struct{}, devicesAtOnce)
	for i := range devicesAtOnce {
		id := w.proven(fmt.Sprintf("n%d", i))
		go func() {
			results <- w.svc.HandOff(w.ctx(), devices.HandOff{Device: id, Job: 1, Proof: true}, func(context.Context, *fleet.Device) error {
				entered <- struct{}{}
				<-leave
				return nil
			})
		}()
	}
	for range 4 { // as many as are let in
		<-entered
	}
	w.bear("other", node(ready))
	if len(entered) != 0 {
		t.Errorf("%d more are let in", len(entered))
	}
	impatient, cancel := context.WithCancel(w.ctx())
	cancel()
	if err := w.svc.HandOff(impatient, devices.HandOff{Device: 1}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("who gives up waiting: %v", err)
	}
	close(leave)
	for range devicesAtOnce {
		must(t, <-results)
	}
}

// metal is a site whose customers get machines by the status alone.
func metal(s *fleet.SiteSpec) { s.EngagementMode = facts.EngagementModeMetalDelegated }

// causes lists value, rung and cause of the operational history, oldest first.
func (w *world) causes(id int64) []string {
	w.t.Helper()
	rows, err := w.db.Query(w.ctx(), `select value || ' by ' || rung || ' of ' || (cause ->> 'type') || coalesce(' ' || (cause ->> 'job'), '') || case when judged is null then '' else ' judged' end
		from lifecycle_events where device_id = $1 and kind = 'operational' order by id`, id)
	must(w.t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(w.t, err)
	return values
}

func TestADelegatedDeviceIsFrozenUntilItIsWithdrawn(t *testing.T) {
	w := newWorld(t, metal)
	id := w.bear("n1", node(leased))
	w.apply("slurm", joins(w.say("n1", slurm(facts.SlurmIdle)), id))
	w.finish("ironic", "slurm")
	w.wantStatus(id, "validation", "validation")
	give := devices.HandOff{Device: id, Job: 31, Latches: true, Delegate: true}
	written := 0
	write := func(context.Context, *fleet.Device) error { written++; return nil }
	must(t, w.svc.HandOff(w.ctx(), give, write))
	must(t, w.svc.HandOff(w.ctx(), give, write)) // its answer was lost
	w.wantStatus(id, "delegated", "")
	if d := w.device(id); written != 1 || !d.CustomerReady || d.EnteredServiceAt.IsZero() {
		t.Errorf("written %d times, customer-ready %v, in service since %v", written, d.CustomerReady, d.EnteredServiceAt)
	}
	second := give
	second.Job = 32
	if got := whyKept(t, w.svc.HandOff(w.ctx(), second, write)); got != devices.HandOffCustody || written != 1 {
		t.Errorf("another job's: kept by %q, written %d times", got, written)
	}

	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(leased, maintenance)))
	w.finish("ironic", "slurm")
	w.project()
	w.wantStatus(id, "delegated", "")
	w.wantCondition(id, "Maintenance", "True MaintenanceSet")
	maintained, _ := w.bundle.Type("Maintenance")
	if d := w.device(id); d.Decisive != 1<<maintained.Bit {
		t.Errorf("the decisive mask is %x", d.Decisive)
	}
	w.pass(time.Minute)
	w.apply("ironic", w.say("n1", node(leased)))
	w.finish("ironic", "slurm")

	must(t, w.svc.Withdraw(w.ctx(), id, 33))
	must(t, w.svc.Withdraw(w.ctx(), id, 33))
	w.wantStatus(id, "quarantine", "")
	if w.device(id).CustomerReady {
		t.Error("it is customer-ready")
	}
	if got := whyKept(t, w.svc.Withdraw(w.ctx(), id, 34)); got != devices.HandOffCustody {
		t.Errorf("another job's withdrawal: %q", got)
	}
	w.project()
	w.wantStatus(id, "validation", "validation")
	must(t, w.svc.Withdraw(w.ctx(), id, 33)) // done, whatever followed
	w.wantStatus(id, "validation", "validation")
	want := []string{"validation by validation of snapshot judged", "delegated by  of job 31", "quarantine by  of job 33", "validation by validation of projection judged"}
	if got := w.causes(id)[1:]; !slices.Equal(got, want) {
		t.Errorf("the history is %q, want %q", got, want)
	}
	if h, v := w.audits("device.hand_off", id, "job/31"), w.audits("device.withdraw", id, "job/33"); h != 1 || v != 1 {
		t.Errorf("%d and %d audit rows, want one each", h, v)
	}
	var event int64
	must(t, w.db.QueryRow(w.ctx(), "select id from lifecycle_events where device_id = $1 and value = 'delegated'", id).Scan(&event))
	if e, err := w.svc.ExplainEvent(w.ctx(), event); err != nil || e.Status != nil || e.Event.Cause.Job != 31 {
		t.Errorf("the hand-off is explained by a ladder: %+v, %v", e, err)
	}
}

func TestAWithdrawalEndsTheCustodyThatItFoundOnly(t *testing.T) {
	w := newWorld(t, metal)
	for name, c := range map[string]struct {
		status string
		code   devices.HandOffCode
	}{
		"delegated":        {"delegated", ""},
		"pending_handover": {"pending_handover", ""},
		"drained":          {"drained", devices.HandOffCustody},
		"validation":       {"validation", devices.HandOffCustody},
		"quarantine":       {"quarantine", devices.HandOffCustody},
	} {
		id := w.bear("node of "+name, node())
		w.exec("update devices set operational_status = $2 where id = $1", id, c.status)
		got := whyKept(t, w.svc.Withdraw(w.ctx(), id, 5))
		if is := w.device(id).Operational.String(); got != c.code || c.code == "" && is != "quarantine" || c.code != "" && is != c.status {
			t.Errorf("%s: kept by %q and is %s, want %q", name, got, is, c.code)
		}
		if c.code != "" {
			continue
		}
		w.exec("update devices set operational_status = 'delegated' where id = $1", id) // the partner has it again
		if got := whyKept(t, w.svc.Withdraw(w.ctx(), id, 5)); got != devices.HandOffCustody {
			t.Errorf("%s: the same job takes it twice: %q", name, got)
		}
	}
	if err := w.svc.Withdraw(w.ctx(), 1<<40, 5); !errors.Is(err, &devices.RefusedError{Code: devices.CodeDeviceNotFound}) {
		t.Errorf("no such device: %v", err)
	}
}

func TestTwoJobsDelegateOnce(t *testing.T) {
	w := newWorld(t, metal)
	id := w.bear("n1", node())
	results := make(chan error, 2)
	for job := range int64(2) {
		go func() {
			results <- w.service().HandOff(w.ctx(), devices.HandOff{Device: id, Job: job + 1, Delegate: true}, nil)
		}()
	}
	codes := []devices.HandOffCode{whyKept(t, <-results), whyKept(t, <-results)}
	slices.Sort(codes)
	if !slices.Equal(codes, []devices.HandOffCode{"", devices.HandOffCustody}) {
		t.Errorf("kept by %q", codes)
	}
	if got := w.history(id, fleet.KindOperational); !slices.Equal(got, []string{"quarantine", "delegated"}) {
		t.Errorf("the history is %v", got)
	}
}
