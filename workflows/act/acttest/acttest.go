// Package acttest tries activities of workflows without a Temporal: against a real
// database and clients that a test gives.
package acttest

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/testsuite"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/store/storetest"
	"github.com/musterhq/muster/workflows/act"
)

// Clients gives a test's clients, by name, whatever the site's row says.
type Clients map[string]any

// Open gives a client.
func (c Clients) Open(site *fleet.Site, name string) (any, func(), error) {
	client, ok := c[name]
	if !ok {
		return nil, nil, &missing{site.Spec.Name, name}
	}
	return client, func() {}, nil
}

type missing struct{ site, name string }

func (m *missing) Error() string { return "the site " + m.site + " has no " + m.name }

// policies give one bundle, or none.
type policies struct{ bundle *engine.Bundle }

func (p policies) Current() *engine.Bundle { return p.bundle }

func (p policies) Refresh(ctx context.Context) (*engine.Bundle, error) { return p.Bundle(ctx, "") }

func (p policies) Bundle(context.Context, string) (*engine.Bundle, error) {
	if p.bundle == nil {
		return nil, devices.ErrPolicyNotLoaded
	}
	return p.bundle, nil
}

// Lab is a fully managed, trait-based site with Ironic as its inventory.
func Lab() fleet.SiteSpec {
	return fleet.SiteSpec{
		Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic, TraitBased: true, CustomerReadyTrait: "CUSTOM_READY",
		Lessees: fleet.Lessees{Enrol: "enrol", Slurm: "slurm", Maintenance: "maintenance"},
	}
}

// Database is what a database of Site is made with: the bundle is the active one,
// nil where nothing judges.
func Database(bundle *engine.Bundle) func(url string) error {
	if bundle == nil {
		return storetest.Migrated
	}
	return func(url string) error {
		return storetest.Active(url, storetest.Bundle{Version: bundle.Version(), Semantics: engine.Semantics, Types: bundle.TypeNames()})
	}
}

// Site stores a site in a database that Database has made, and gives it as its
// activities see it.
func Site(t *testing.T, url string, spec fleet.SiteSpec, clients Clients, bundle *engine.Bundle) *act.Site {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var row fleet.Site
	if err := db.Tx(t.Context(), func(tx pgx.Tx) error {
		row, err = store.PutSite(t.Context(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	p := policies{bundle}
	return &act.Site{
		ID: row.ID, DB: db, Clients: clients, Policies: p, Clock: time.Now, Poll: time.Millisecond,
		Devices: devices.New(db, p, db.Now, hclog.NewNullLogger()),
	}
}

// Device stores a device of a site: class gpu_compute, inventory active.
func Device(t *testing.T, s *act.Site, name string, status facts.OperationalStatus, infrastructureRef string) (id int64) {
	t.Helper()
	err := s.DB.QueryRow(t.Context(), `insert into devices (site_id, name, name_key, device_class, inventory_status, operational_status, infrastructure_ref)
		values ($1, $2, lower($2), 'gpu_compute', 'active', $3, $4) returning id`, s.ID, name, status.String(), infrastructureRef).Scan(&id)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Run runs one activity of a family, once.
func Run(s *act.Site, f act.Family, name string, in any) (converter.EncodedValue, error) {
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	for name, do := range f.Activities(s) {
		env.RegisterActivityWithOptions(do, activity.RegisterOptions{Name: name})
	}
	return env.ExecuteActivity(name, in)
}
