package workflows

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bench is an Ironic of one node, as it is found: what it is asked for is noted,
// and moves it where the test says.
type bench struct {
	facts.Ironic
	err   error
	asked []string
	then  map[nodes.TargetProvisionState]facts.ProvisionState
}

func (b *bench) List(context.Context, func([]sources.Record) error) (sources.End, error) {
	return sources.End{}, nil
}
func (b *bench) Close() {}

func (b *bench) Get(context.Context, string) (*sources.Record, error) {
	f := b.Ironic
	return &sources.Record{Ref: "u", Ironic: &f}, b.err
}

func (b *bench) ClearMaintenance(_ context.Context, ref, mark string, repair ironic.Repair) (*sources.Record, error) {
	b.asked = append(b.asked, "clear "+mark)
	if b.MaintenanceReason.Value == "bad fan" || !repair.CleanFailure {
		return nil, &sources.Error{Kind: sources.KindConflict, Err: ironic.ErrForeign}
	}
	b.Maintenance = facts.False
	return b.Get(context.Background(), ref)
}

func (b *bench) SetProvision(_ context.Context, ref string, verb nodes.ProvisionStateOpts) (*sources.Record, error) {
	b.asked = append(b.asked, string(verb.Target))
	if state, ok := b.then[verb.Target]; ok {
		b.ProvisionState = state
	}
	return b.Get(context.Background(), ref)
}

func (b *bench) Settle(ctx context.Context, ref string, _ time.Duration) (*sources.Record, error) {
	return b.Get(ctx, ref)
}

// at gives a site whose Ironic is b, with one device that is its node.
func at(t *testing.T, b *bench) (*site, int64) {
	t.Helper()
	db, err := store.Open(t.Context(), pgtest.Template(t, "workflows", func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	}), store.Options{MaxConns: 4})
	must(t, err)
	t.Cleanup(db.Close)
	var row fleet.Site
	must(t, db.Tx(t.Context(), func(tx pgx.Tx) error {
		row, err = store.PutSite(t.Context(), tx, fleet.Site{Spec: fleet.SiteSpec{Name: "lab", EngagementMode: facts.EngagementModeFullyManaged, Inventory: facts.InventorySourceIronic}, AppliedBy: "test"})
		return err
	}))
	var id int64
	must(t, db.QueryRow(t.Context(), `insert into devices (site_id, name, name_key, device_class, inventory_status, operational_status, infrastructure_ref)
		values ($1, 'c1', 'c1', 'gpu_compute', 'active', 'failed', 'u') returning id`, row.ID).Scan(&id))
	return &site{id: row.ID, db: db, sources: b, clock: time.Now, poll: time.Millisecond}, id
}

// Use gives the Ironic whatever is asked for.
func (b *bench) Use(*fleet.Site, string) (sources.Source, func(), error) { return b, func() {}, nil }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// found is a node as it is found, with what a test changes.
func found(state facts.ProvisionState, set ...func(*bench)) *bench {
	b := &bench{Ironic: facts.Ironic{ProvisionState: state, Maintenance: facts.False, InstanceBound: facts.False, Reservation: facts.TextOf("")}}
	b.then = map[nodes.TargetProvisionState]facts.ProvisionState{nodes.TargetManage: facts.ProvisionStateManageable, nodes.TargetProvide: facts.ProvisionStateCleaning}
	for _, f := range set {
		f(b)
	}
	return b
}

func maintained(reason string) func(*bench) {
	return func(b *bench) { b.Maintenance, b.MaintenanceReason = facts.True, facts.TextOf(reason) }
}

func bound(b *bench)   { b.InstanceBound = facts.True }
func unknown(b *bench) { b.InstanceBound = facts.Null }
func away(b *bench)    { b.err = &sources.Error{Kind: sources.KindTransient, Message: "away"} }

// Whatever a step finds, also what an earlier try of itself left, it asks for what
// is missing and nothing else.
func TestWhatAStepOfACleanDoes(t *testing.T) {
	t.Parallel()
	failed, manageable, cleaning, available := facts.ProvisionStateCleanFailed, facts.ProvisionStateManageable, facts.ProvisionStateCleaning, facts.ProvisionStateAvailable
	for name, c := range map[string]struct {
		act   string
		b     *bench
		asks  []string
		code  codes.Failure
		again bool // trying again may help
	}{
		"prepare: clean failed":                 {actCleanPrepare, found(failed), []string{"clear muster:7"}, "", false},
		"prepare: maintenance of earlier work":  {actCleanPrepare, found(failed, maintained("muster:3 swap")), []string{"clear muster:3"}, "", false},
		"prepare: an operator's maintenance":    {actCleanPrepare, found(failed, maintained("bad fan")), []string{"clear muster:7"}, codes.MaintenanceForeign, false},
		"prepare: active":                       {actCleanPrepare, found(facts.ProvisionStateActive), nil, codes.IronicStateUnexpected, false},
		"prepare: an instance is bound":         {actCleanPrepare, found(manageable, bound), nil, codes.IronicStateUnexpected, false},
		"prepare: not known whether one is":     {actCleanPrepare, found(manageable, unknown), nil, codes.IronicUnavailable, true},
		"prepare: Ironic is away":               {actCleanPrepare, found(failed, away), nil, codes.IronicUnavailable, true},
		"manage: clean failed":                  {actCleanManage, found(failed), []string{"manage"}, "", false},
		"manage: done before":                   {actCleanManage, found(manageable), nil, "", false},
		"manage: available":                     {actCleanManage, found(available), nil, codes.IronicStateUnexpected, false},
		"provide: manageable":                   {actCleanProvide, found(manageable), []string{"provide"}, "", false},
		"provide: cleaned before":               {actCleanProvide, found(available), nil, "", false},
		"provide: the clean has failed already": {actCleanProvide, found(failed), nil, codes.IronicCleanFailed, false},
		"provide: maintenance meanwhile":        {actCleanProvide, found(manageable, maintained("bad fan")), nil, codes.MaintenanceForeign, false},
		"provide: an instance meanwhile":        {actCleanProvide, found(manageable, bound), nil, codes.IronicStateUnexpected, false},
		"await: available":                      {actCleanAwait, found(available), nil, "", false},
		"await: the clean fails":                {actCleanAwait, found(failed), nil, codes.IronicCleanFailed, false},
		"await: somewhere else":                 {actCleanAwait, found(facts.ProvisionStateEnroll), nil, codes.IronicStateUnexpected, false},
		"await: longer than is waited for":      {actCleanAwait, found(cleaning), nil, codes.IronicCleanFailed, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, device := at(t, c.b)
			if c.b.ProvisionState == cleaning {
				s.clock = func() time.Time { return time.Now().Add(cleanWithin + time.Minute) }
			}
			var suite testsuite.WorkflowTestSuite
			env := suite.NewTestActivityEnvironment()
			s.register(env)
			var in any = node{Job: 7, UUID: "u"}
			if c.act == actCleanPrepare {
				in = unitDevice{Job: 7, Device: device}
			}
			_, err := env.ExecuteActivity(c.act, in)
			var coded *temporal.ApplicationError
			switch {
			case c.code == "" && err != nil:
				t.Error(err)
			case c.code != "" && (!errors.As(err, &coded) || coded.Type() != string(c.code) || coded.NonRetryable() == c.again):
				t.Errorf("%v, want %s", err, c.code)
			}
			if !slices.Equal(c.b.asked, c.asks) {
				t.Errorf("it asked for %q, want %q", c.b.asked, c.asks)
			}
		})
	}
}
