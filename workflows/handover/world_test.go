package handover

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
	"github.com/musterhq/muster/workflows/node"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

// world is a database with one site.
type world struct {
	*act.Site
	jobs atomic.Int64
}

// direct is a fully managed site with a trait, NetBox, SLURM, and an image that
// Ironic deploys by itself.
func direct(change ...func(*fleet.SiteSpec)) fleet.SiteSpec {
	spec := acttest.Lab()
	spec.Inventory, spec.ForceReclaimEnabled = facts.InventorySourceNetbox, true
	spec.Sources.Slurm, spec.Sources.Ironic, spec.Sources.NetBox = &fleet.SlurmSource{}, &fleet.IronicSource{}, &fleet.NetBoxSource{}
	spec.Imaging = &fleet.Imaging{Direct: &fleet.DirectImaging{Image: "http://images.example/a.raw"}}
	for _, f := range change {
		f(&spec)
	}
	return spec
}

// throughNova makes Nova deploy.
func throughNova(spec *fleet.SiteSpec) {
	spec.PlacementEnabled = true
	spec.Imaging = &fleet.Imaging{Nova: &fleet.NovaImaging{Image: "i", Flavor: "f", Network: "n"}}
}

// legacy is a site where the lease alone keeps customers away.
func legacy(spec *fleet.SiteSpec) { spec.TraitBased = false }

func metal(spec *fleet.SiteSpec) {
	spec.EngagementMode, spec.TraitBased = facts.EngagementModeMetalDelegated, false
}

func newWorld(t *testing.T, spec fleet.SiteSpec) *world {
	t.Helper()
	t.Parallel()
	b, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Site: acttest.Site(t, pgtest.Template(t, "active", acttest.Database(b)), spec, nil, b)}
	w.jobs.Store(100)
	if err := w.DB.Tx(t.Context(), func(tx pgx.Tx) error { return store.AdvanceWatermark(t.Context(), tx, w.ID, "slurm", time.Now(), "") }); err != nil {
		t.Fatal(err)
	}
	return w
}

// machine is a device with a proven node, and the systems around it.
type machine struct {
	*plant
	world  *world
	site   act.Site
	device int64
	name   string
	uuid   string
}

func (w *world) machine(t *testing.T, p *plant) *machine {
	t.Helper()
	i := w.jobs.Add(1)
	m := &machine{plant: p, world: w, name: fmt.Sprintf("c%d", i), uuid: fmt.Sprintf("11111111-2222-4333-8444-%012d", i)}
	m.site = act.Site{ID: w.ID, DB: w.DB, Clients: p.clients(), Devices: w.Devices, Policies: w.Policies, Clock: w.Clock, Poll: w.Poll}
	m.device = acttest.Device(t, &m.site, m.name, facts.OperationalStatusQuarantine, m.uuid)
	m.exec(t, "update devices set enrollment_validated_ref = infrastructure_ref, enrollment_proof_source = 'enrolled', enrollment_validated_at = now() where id = $1")
	m.exec(t, `insert into facts (device_id, site_id, source, ref, hash, body, seen_at) select id, site_id, 'netbox', id::text, '\x00000000000000000000000000000000', '{}', now() from devices where id = $1`)
	return m
}

// exec runs SQL of which $1 is the device.
func (m *machine) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := m.site.DB.Exec(t.Context(), sql, m.device); err != nil {
		t.Fatal(err)
	}
}

// run runs a whole workflow under a new job; its activities run for real.
func (m *machine) run(t *testing.T, do act.Workflow, parameters map[string]any) error {
	t.Helper()
	w := acttest.NewWalk(parameters)
	w.Unit.Job, w.Unit.Device, w.Unit.Name = m.world.jobs.Add(1), m.device, m.name
	w.Family(&m.site, Family())
	w.Family(&m.site, node.Family())
	return w.Go(t, do)
}

func managed(more ...string) map[string]any {
	parameters := map[string]any{"engagement_mode": "fully_managed", "release_to_customer_pool": true}
	for _, name := range more {
		parameters[name] = true
	}
	return parameters
}
