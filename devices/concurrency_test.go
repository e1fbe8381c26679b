package devices_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

func TestBatchesInOppositeOrderDoNotDeadlock(t *testing.T) {
	w := newWorld(t)
	const n, rounds, workers = 20, 15, 4
	var births []fleet.Reading
	for i := range n {
		births = append(births, born(w.say(fmt.Sprintf("n%d", i), node(ready))))
	}
	w.apply("ironic", births...)
	w.finish("ironic", "slurm")
	var wait sync.WaitGroup
	failed := make(chan error, workers+1)
	for worker := range workers {
		wait.Go(func() {
			svc := w.service()
			for r := range rounds {
				var readings []fleet.Reading
				for i := range n {
					readings = append(readings, w.say(fmt.Sprintf("n%d", i), node(ready, func(f *facts.Ironic) {
						f.LastError = facts.TextOf(fmt.Sprint(worker, r))
					})))
				}
				if worker%2 == 1 {
					slices.Reverse(readings)
				}
				if _, err := svc.Apply(w.ctx(), w.batch("ironic", readings...)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wait.Go(func() {
		for range rounds {
			if _, err := w.svc.Project(w.ctx(), w.site.ID, fleet.Cause{Type: "projection"}); err != nil {
				failed <- err
				return
			}
		}
	})
	wait.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
	var deadlocks int
	must(t, w.db.QueryRow(w.ctx(), "select deadlocks from pg_stat_database where datname = current_database()").Scan(&deadlocks))
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}

func TestAReplicaWhoseLeaseIsLostWritesNothing(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	paused := w.batch("ironic", w.say("n1", node(maintenance)))
	w.exec("update sweeps set epoch = epoch + 1, owner = 'other' where source = 'ironic'")
	w.pass(time.Minute)
	taken := w.batch("ironic", w.say("n1", node(ready, bound)))
	taken.Owner, taken.Epoch = "other", w.epoch+1
	_, err := w.service().Apply(w.ctx(), taken)
	must(t, err)
	before := w.rowVersions()

	if _, err := w.svc.Apply(w.ctx(), paused); !errors.Is(err, devices.ErrLeaseLost) {
		t.Fatalf("apply: %v", err)
	}
	finish := devices.Finish{SiteID: w.site.ID, Source: "ironic", Owner: owner, Epoch: w.epoch, At: w.clock()}
	if err := w.svc.FinishSweep(w.ctx(), finish); !errors.Is(err, devices.ErrLeaseLost) {
		t.Fatalf("finish: %v", err)
	}
	if err := w.svc.FailSweep(w.ctx(), w.site.ID, "ironic", owner, w.epoch, "Stale"); !errors.Is(err, devices.ErrLeaseLost) {
		t.Fatalf("fail: %v", err)
	}
	// Even without its lease being looked at, what it read is older.
	paused.Epoch = 0
	a, err := w.svc.Apply(w.ctx(), paused)
	must(t, err)
	if a.Ignored != 1 || w.rowVersions() != before {
		t.Fatalf("%+v", a)
	}
	w.wantStatus(id, "in_use", "customer-in-use")
}

// edition is the shipped bundle with one edit, loaded with the bits of the
// database. Loading takes seconds, so all tests share it.
var edition = sync.OnceValues(func() (*engine.Bundle, error) {
	shipped, err := shipped()
	if err != nil {
		return nil, err
	}
	bits := map[string]uint8{}
	for _, t := range shipped.Catalogue() {
		bits[t.Name] = t.Bit
	}
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		return nil, err
	}
	added := maps.Clone(files)
	added["policies/conditions/powered.cue"] = []byte(`package conditions

conditions: Powered: {
	writer:     "openstack"
	hold_limit: "24h"
	feeds:      "operational"
	meaning:    "Ironic says that the node has power."
	emission: {
		rungs: [
			{name: "no-node", #when: ironic: listed: false, then: {status: "Unknown", reason: "NodeNotFound"}},
			{name: "power-unread", #when: ironic: power_state: null, then: {status: "NotRead", reason: "FieldNotServed"}},
			{name: "on", #when: ironic: power_state: "power on", then: {status: "True", reason: "PowerOn"}},
		]
		otherwise: {status: "False", reason: "PowerOff"}
	}
}
`)
	status := string(files["policies/status/operational.cue"])
	for _, edit := range [][2]string{
		{`{name: "provision-failed",`, `{name: "dark", #when: conditions: Powered: "False", then: "failed"},
		{name: "provision-failed",`},
		{`unknownTolerated: {`, `unknownTolerated: {
				Powered: "not every BMC tells"`},
		{`then: "available"`, `then: "available"
			unknownTolerated: Powered: "not every BMC tells"`},
	} {
		before, after, found := strings.Cut(status, edit[0])
		if !found {
			return nil, fmt.Errorf("the shipped policy has no %s", edit[0])
		}
		status = before + edit[1] + after
	}
	added["policies/status/operational.cue"] = []byte(status)
	b, _, err := engine.Load(engine.Tree(added), engine.Options{Bits: bits})
	return b, err
})

func TestAnotherBundleTakesOverBetweenTwoReadings(t *testing.T) {
	w := newWorld(t)
	next, err := edition()
	must(t, err)
	on := func(i *facts.Ironic) { i.PowerState = facts.TextOf("power on") }
	off := func(i *facts.Ironic) { i.PowerState = facts.TextOf("power off") }
	lit, dark, unread := w.bear("n1", node(ready, on)), w.bear("n2", node(ready, off)), w.bear("n3", node(ready))
	w.pass(time.Minute)
	w.policies.next = next
	must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error { return activate(w.ctx(), tx, next) }))

	// The first thing that comes in is judged by the new rules, for its device.
	w.apply("ironic", w.say("n2", node(ready, off)))
	w.wantStatus(dark, "failed", "dark")
	w.wantStatus(lit, "available", "customer-available")
	w.finish("ironic", "slurm")
	if p := w.project(); p.Changed != 2 {
		t.Fatalf("%+v", p)
	}
	w.wantCondition(lit, "Powered", "True PowerOn")
	w.wantStatus(lit, "available", "customer-available")
	w.wantStatus(unread, "available", "customer-available") // a type without a value changes nothing
	for _, id := range []int64{lit, unread} {
		if got := w.history(id, fleet.KindOperational); !slices.Equal(got, []string{"available"}) {
			t.Fatalf("device %d flapped: %v", id, got)
		}
	}
	var version string
	must(t, w.db.QueryRow(w.ctx(), "select bundle_version from lifecycle_events where device_id = $1 order by id desc limit 1", dark).Scan(&version))
	if version != next.Version() {
		t.Fatalf("the change records bundle %s", version)
	}
	w.policies.kept = map[string]*engine.Bundle{w.bundle.Version(): w.bundle}
	var birth int64
	must(t, w.db.QueryRow(w.ctx(), "select id from lifecycle_events where device_id = $1 and kind = 'operational' order by id limit 1", dark).Scan(&birth))
	e, err := w.svc.ExplainEvent(w.ctx(), birth)
	must(t, err)
	if e.Status == nil || e.Status.Rung != "customer-available" || e.Event.Cause.Type != "birth" {
		t.Fatalf("the birth replays as %+v", e.Status)
	}
}

func TestAReplicaThatCannotLoadTheActiveBundleJudgesNothing(t *testing.T) {
	w := newWorld(t)
	w.bear("n1", node(ready))
	w.exec(`insert into policy_bundles (version, semantics, files, stored_by) values ('sha256:new', 1, '{}', 'test')`)
	w.exec(`update active_policy set version = 'sha256:new'`)
	w.policies.next = nil
	before := w.rowVersions()
	_, err := w.svc.Apply(w.ctx(), w.batch("ironic", w.say("n1", node(maintenance))))
	if !errors.Is(err, devices.ErrPolicyNotLoaded) {
		t.Errorf("apply: %v", err)
	}
	if _, err := w.svc.Project(w.ctx(), w.site.ID, fleet.Cause{}); !errors.Is(err, devices.ErrPolicyNotLoaded) {
		t.Errorf("project: %v", err)
	}
	if w.rowVersions() != before {
		t.Error("something was written")
	}
}

func TestHistoryCannotBeRewritten(t *testing.T) {
	w := newWorld(t)
	w.bear("n1", node(ready))
	for _, sql := range []string{"update lifecycle_events set value = 'x'", "delete from lifecycle_events", "truncate lifecycle_events"} {
		if _, err := w.db.Exec(w.ctx(), sql); err == nil {
			t.Errorf("%s was allowed", sql)
		}
	}
}

func TestAProjectionAskedForMeanwhileIsNotForgotten(t *testing.T) {
	w := newWorld(t)
	w.bear("n1", node(ready))
	was, err := store.ProjectionDue(w.ctx(), w.db, w.site.ID)
	must(t, err)
	w.exec("update projections set due_at = now() - interval '1 hour'") // an activation
	must(t, store.DeferProjection(w.ctx(), w.db, w.site.ID, was, w.clock().Add(time.Hour)))
	var due bool
	must(t, w.db.QueryRow(w.ctx(), "select due_at <= now() from projections").Scan(&due))
	if !due {
		t.Fatal("the activation's projection was put off")
	}
}

func TestACancelledCallLeavesNoLock(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	ctx, cancel := context.WithCancel(w.ctx())
	err := w.db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := store.LockDevices(ctx, tx, []int64{id}); err != nil {
			return err
		}
		cancel()
		_, err := tx.Exec(ctx, "select 1")
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
	w.pass(time.Second)
	w.apply("ironic", w.say("n1", node(ready, maintenance)))
	w.wantStatus(id, "quarantine", "maintenance")
}

func TestOneConnectionIsEnough(t *testing.T) {
	w := newWorld(t)
	narrow, err := store.Open(w.ctx(), w.db.Config().ConnString(), store.Options{MaxConns: 1})
	must(t, err)
	t.Cleanup(narrow.Close)
	svc := devices.New(narrow, w.policies, w.clock, hclogNull())
	id := w.bear("n1", node(ready))
	var wait sync.WaitGroup
	failed := make(chan error, 8)
	for range 4 {
		wait.Go(func() {
			_, err := svc.Project(w.ctx(), w.site.ID, fleet.Cause{})
			failed <- err
			_, err = svc.Explain(w.ctx(), id)
			failed <- err
		})
	}
	wait.Wait()
	close(failed)
	for err := range failed {
		must(t, err)
	}
}
