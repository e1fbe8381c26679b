package reconciler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// withPowered gives the shipped policies with a condition type more, and a rung
// that reads it.
func withPowered(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := engine.Files(muster.Bundle())
	must(t, err)
	files = maps.Clone(files)
	files["policies/conditions/powered.cue"] = []byte(`package conditions

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
			t.Fatalf("the shipped policy has no %s", edit[0])
		}
		status = before + edit[1] + after
	}
	files["policies/status/operational.cue"] = []byte(status)
	return files
}

// statuses lists the history of the operational status by name of the device,
// each value with the first letter of the policy's edition.
func (w *world) statuses(editions map[string]string) map[string][]string {
	w.t.Helper()
	rows, err := w.db.Query(w.t.Context(), `select d.name, e.value, e.bundle_version from lifecycle_events e join devices d on d.id = e.device_id
		where e.kind = 'operational' order by e.id`)
	must(w.t, err)
	all := map[string][]string{}
	var name, value, version string
	_, err = pgx.ForEachRow(rows, []any{&name, &value, &version}, func() error {
		all[name] = append(all[name], value+" by the "+editions[version])
		return nil
	})
	must(w.t, err)
	return all
}

func powered(state string) func(*sources.Record) {
	return func(r *sources.Record) {
		if state != "" {
			r.Ironic.PowerState = facts.TextOf(state)
		}
	}
}

// Two replicas sweep and project all the time, each with a policy of its own in
// hand, while another policy becomes active.
func TestAnActivationUnderWayMakesNoDeviceFlap(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), pgtest.Template(t, "migrated", func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	}), store.Options{MaxConns: 16})
	must(t, err)
	t.Cleanup(db.Close)
	w := &world{t: t, db: db, scripts: map[string]*script{}}
	open := func() *devices.Policy {
		p, err := devices.OpenPolicy(db, muster.Bundle(), db.Now, hclog.NewNullLogger())
		must(t, err)
		return p
	}
	one, other := open(), open()
	first, _, err := one.Activate(t.Context(), muster.Bundle(), "ada")
	must(t, err)
	_, err = other.Refresh(t.Context())
	must(t, err)
	must(t, db.Tx(t.Context(), func(tx pgx.Tx) error {
		w.site, err = store.PutSite(t.Context(), tx, fleet.Site{AppliedBy: "test", Spec: fleet.SiteSpec{
			Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true,
			CustomerReadyTrait: "CUSTOM_READY", Sources: fleet.Sources{Recorded: map[string]string{"ironic": "x"}},
		}})
		return err
	}))
	var all []sources.Record
	for i := range 30 {
		for kind, state := range map[string]string{"lit": "power on", "dark": "power off", "unread": ""} {
			name := fmt.Sprintf("%s%02d", kind, i)
			all = append(all, node("u-"+name, name, powered(state)))
		}
	}
	w.ironic().says(all...)
	for owner, p := range map[string]*devices.Policy{"a": one, "b": other} {
		run(t, w.replica(owner, func(o *Options) {
			o.Policies, o.Devices = p, devices.New(db, p, db.Now, o.Log)
		}))
	}
	eventually(t, "all devices are judged", func() bool {
		return w.count("select count(*) from devices where operational_status = 'available'") == len(all)
	})

	busy, idle := context.WithCancel(t.Context())
	churned := make(chan struct{})
	go func() { // the sweeps never end, and each changes something
		defer close(churned)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for n := 0; busy.Err() == nil; n++ {
			now := slices.Clone(all)
			for i := n % 5; i < len(now); i += 5 {
				changed := *now[i].Ironic
				changed.LastError = facts.TextOf(fmt.Sprint(n))
				now[i].Ironic = &changed
			}
			w.ironic().says(now...)
			_ = store.RequestSweep(busy, db, w.site.ID, "ironic")
			_ = store.RequestProjection(busy, db, w.site.ID)
			<-tick.C
		}
	}()
	second, _, err := one.Activate(t.Context(), engine.Tree(withPowered(t)), "ada")
	must(t, err)
	eventually(t, "everything is judged by the new policy, by both", func() bool {
		return w.count("select count(*) from devices where name like 'dark%' and operational_status = 'failed'") == 30 &&
			w.count("select count(distinct observation_version) from devices") == 1 && other.Current().Version() == second.Version()
	})
	idle()
	<-churned

	editions := map[string]string{first.Version(): "first", second.Version(): "second"}
	for name, got := range w.statuses(editions) {
		want := []string{"available by the first"}
		if strings.HasPrefix(name, "dark") {
			want = []string{"available by the first", "failed by the second"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s was %q, want %q", name, got, want)
		}
	}
	w.wantCount(30, "select count(*) from conditions where type = 'Powered' and status = 'True'")
	w.wantCount(30, "select count(*) from device_writers where unread -> 'Powered' ->> 'reason' = 'FieldNotServed'")
}
