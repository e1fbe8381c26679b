package node

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

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bundled is the shipped policies, with what a clean does to the customers' trait.
func bundled(removes string) func() (*engine.Bundle, error) {
	return sync.OnceValues(func() (*engine.Bundle, error) {
		const file = "policies/workflows/ironic_node_clean.cue"
		files, err := engine.Files(muster.Bundle())
		if err != nil {
			return nil, err
		}
		edited := maps.Clone(files)
		edited[file] = []byte(strings.Replace(string(files[file]), `otherwise: "no"`, fmt.Sprintf("otherwise: %q", removes), 1))
		b, _, err := engine.Load(engine.Tree(edited), engine.Options{})
		return b, err
	})
}

var shipped, removing = bundled("no"), bundled("yes")

func loaded(t *testing.T, load func() (*engine.Bundle, error)) *engine.Bundle {
	t.Helper()
	b, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bench is an Ironic of one node, as it is found: what it is asked for is noted,
// and moves it where the test says.
type bench struct {
	facts.Ironic
	err   error
	asked []string
	stuck bool // the trait stays
	then  map[nodes.TargetProvisionState]facts.ProvisionState
}

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

func (b *bench) RemoveTrait(_ context.Context, ref, trait string) (*sources.Record, error) {
	b.asked = append(b.asked, "remove "+trait)
	if !b.stuck {
		b.Traits = nil
	}
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
			s := acttest.Site(t, pgtest.Template(t, "bare", acttest.Database(nil)), acttest.Lab(), acttest.Clients{"ironic": c.b}, loaded(t, shipped))
			device := acttest.Device(t, s, "c1", facts.OperationalStatusFailed, "u")
			if c.b.ProvisionState == cleaning {
				s.Clock = func() time.Time { return time.Now().Add(cleanWithin + time.Minute) }
			}
			var in any = Node{Job: 7, Device: device, UUID: "u"}
			if c.act == actCleanPrepare {
				in = Cleaning{Target: act.Target{Job: 7, Device: device}}
			}
			_, err := acttest.Run(s, Family(), c.act, in)
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

// What a clean destroys is that of the machine and the custody that it was begun in.
func TestACleanLeavesAloneWhatIsNotItsNodeAnyMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		act    string
		uuid   string // of the node that the work began on
		status facts.OperationalStatus
		asks   []string
		code   codes.Failure
	}{
		"prepare: the node that it began on":   {actCleanPrepare, "u", facts.OperationalStatusFailed, []string{"clear muster:7"}, ""},
		"prepare: another node by now":         {actCleanPrepare, "v", facts.OperationalStatusFailed, nil, codes.IronicStateUnexpected},
		"prepare: delegated by now":            {actCleanPrepare, "u", facts.OperationalStatusDelegated, nil, codes.CustodyChanged},
		"prepare: to be handed over, unpinned": {actCleanPrepare, "", facts.OperationalStatusPendingHandover, nil, codes.CustodyChanged},
		"provide: delegated by now":            {actCleanProvide, "u", facts.OperationalStatusDelegated, nil, codes.CustodyChanged},
		"provide: to be handed over by now":    {actCleanProvide, "u", facts.OperationalStatusPendingHandover, nil, codes.CustodyChanged},
		"provide: ours still":                  {actCleanProvide, "u", facts.OperationalStatusFailed, []string{"provide"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := found(facts.ProvisionStateManageable)
			s := acttest.Site(t, pgtest.Template(t, "bare", acttest.Database(nil)), acttest.Lab(), acttest.Clients{"ironic": b}, loaded(t, shipped))
			device := acttest.Device(t, s, "c1", c.status, "u")
			var in any = Node{Job: 7, Device: device, UUID: c.uuid}
			if c.act == actCleanPrepare {
				in = Cleaning{act.Target{Job: 7, Device: device}, c.uuid}
			}
			_, err := acttest.Run(s, Family(), c.act, in)
			if act.Code(err) != c.code || c.code == "" && err != nil {
				t.Errorf("%v, want %q", err, c.code)
			}
			if !slices.Equal(b.asked, c.asks) {
				t.Errorf("it asked for %q, want %q", b.asked, c.asks)
			}
		})
	}
}

// Where policy says so a node that is cleaned is out of the customers' pool before
// it can be available.
func TestAPolicyTakesTheTraitOffWhatIsCleaned(t *testing.T) {
	t.Parallel()
	customers := func(b *bench) { b.Traits = []string{"CUSTOM_READY"} }
	for name, c := range map[string]struct {
		b     *bench
		asks  []string
		code  codes.Failure
		plain bool // a site without trait
	}{
		"it is taken off":                  {found(facts.ProvisionStateManageable, customers), []string{"remove CUSTOM_READY", "provide"}, "", false},
		"it stays: nothing is cleaned":     {found(facts.ProvisionStateManageable, customers, func(b *bench) { b.stuck = true }), []string{"remove CUSTOM_READY"}, codes.CustomerTraitNotRemoved, false},
		"a site that has none":             {found(facts.ProvisionStateManageable), []string{"provide"}, "", true},
		"cleaned before: it is left alone": {found(facts.ProvisionStateAvailable, customers), nil, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := acttest.Lab()
			spec.TraitBased = !c.plain
			s := acttest.Site(t, pgtest.Template(t, "bare", acttest.Database(nil)), spec, acttest.Clients{"ironic": c.b}, loaded(t, removing))
			device := acttest.Device(t, s, "c1", facts.OperationalStatusFailed, "u")
			_, err := acttest.Run(s, Family(), actCleanProvide, Node{Job: 7, Device: device, UUID: "u"})
			if act.Code(err) != c.code {
				t.Errorf("%v, want %q", err, c.code)
			}
			if !slices.Equal(c.b.asked, c.asks) {
				t.Errorf("it asked for %q, want %q", c.b.asked, c.asks)
			}
		})
	}
}

func TestACleanGoesStepByStep(t *testing.T) {
	t.Parallel()
	prepare := []string{"at 5 clear maintenance", "prepare"}
	manage := append(slices.Clone(prepare), "at 15 make manageable", "manage")
	provide := append(slices.Clone(manage), "at 25 begin to clean", "provide")
	whole := append(slices.Clone(provide), "at 30 clean", "await")
	for name, c := range map[string]struct {
		at   string
		code codes.Failure
		did  []string
	}{
		"to its end":                {"", "", whole},
		"a foreign maintenance":     {"prepare", codes.MaintenanceForeign, prepare},
		"not to be made manageable": {"manage", codes.IronicStateUnexpected, manage},
		"refused":                   {"provide", codes.IronicUnavailable, provide},
		"the clean fails":           {"await", codes.IronicCleanFailed, whole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := acttest.NewWalk(nil)
			answer := func(step string) error {
				w.Note("%s", step)
				if step == c.at {
					return act.Final(c.code, "because")
				}
				return nil
			}
			n := Node{Job: 7, UUID: "u"}
			w.Act(actCleanPrepare, func(_ context.Context, in Cleaning) (Node, error) {
				if in != (Cleaning{Target: act.Target{Job: 7, Device: 9}}) {
					t.Errorf("prepared %+v", in)
				}
				return n, answer("prepare")
			})
			for name, step := range map[string]string{actCleanManage: "manage", actCleanProvide: "provide", actCleanAwait: "await"} {
				w.Act(name, func(_ context.Context, in Node) error {
					if in != n {
						t.Errorf("%s of %+v", step, in)
					}
					return answer(step)
				})
			}
			if err := w.Run(t, cleanNode, c.did...); act.Code(err) != c.code {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
