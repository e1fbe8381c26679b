package handover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/workflows/act/acttest"
)

// plant is the systems around one machine, as they are found. What they are asked
// to change is noted and takes effect; a node goes on with each look at it.
type plant struct {
	mu    sync.Mutex
	f     facts.Ironic
	mark  string
	ahead []facts.ProvisionState // that the node goes through

	inSlurm bool
	called  string // its name there, "" for any
	states  facts.SlurmStates
	drainer string // whose the drain is
	jobs    int    // looks until the node is idle
	silent  int    // looks until its slurmd answers

	servers map[string]nova.Server
	netbox  string // status; "" NetBox has no such device

	did    []string
	calls  int
	failAt int  // that call fails
	after  bool // having taken effect
	failed string
	broken map[string]error
	looked func()          // called at each look at the node
	lost   string          // the first such call takes effect, and its answer is lost
	then   func()          // called when that has come about
	came   <-chan struct{} // NetBox is asked after that
}

const theNode = "11111111-2222-4333-8444-555555555555"

// newPlant has a machine of the customers' pool that nobody uses.
func newPlant(change ...func(*plant)) *plant {
	p := &plant{
		f: facts.Ironic{
			ProvisionState: facts.ProvisionStateAvailable, TargetProvisionState: facts.TextOf(""), Maintenance: facts.False, Reservation: facts.TextOf(""),
			Lessee: facts.TextOf("enrol"), Traits: []string{"CUSTOM_READY"},
		},
		servers: map[string]nova.Server{}, netbox: "active", broken: map[string]error{},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func (p *plant) clients() acttest.Clients {
	return acttest.Clients{"ironic": &ironics{p}, "slurm": &slurms{p}, "nova": &novas{p}, "imaging": &novas{p}, "netbox": &netboxes{p}}
}

var errRefused = &sources.Error{Kind: sources.KindRefused, Op: "test", Message: "told to fail"}

// does something that counts as one call of a client.
func (p *plant) call(name string, effect func() error) error {
	p.calls++
	if p.calls == p.failAt {
		p.failed = name
	}
	if err := p.broken[name]; err != nil {
		return err
	}
	if p.calls == p.failAt && !p.after {
		return errRefused
	}
	err := effect()
	if p.calls == p.failAt {
		return errRefused
	}
	if p.lost == name && err == nil {
		p.lost = ""
		p.then()
		return &sources.Error{Kind: sources.KindTransient, Op: name, Message: "no answer"}
	}
	return err
}

func (p *plant) note(format string, args ...any) { p.did = append(p.did, fmt.Sprintf(format, args...)) }

// times tells how often something was done.
func (p *plant) times(what string) (n int) {
	for _, did := range p.did {
		if did == what {
			n++
		}
	}
	return n
}

func (p *plant) record() *sources.Record {
	f := p.f
	f.InstanceBound = facts.BoolOf(f.InstanceUUID.Value != "")
	_, marked, ok := ironic.ParseMark(p.mark)
	f.OurMark = facts.BoolOf(ok && marked == f.InstanceUUID.Value && marked != "")
	f.Traits = slices.Clone(f.Traits)
	return &sources.Record{Ref: theNode, Ironic: &f}
}

func conflict(format string, args ...any) error {
	return &sources.Error{Kind: sources.KindConflict, Op: "test", Message: fmt.Sprintf(format, args...)}
}

type ironics struct{ *plant }

func (p *ironics) Get(context.Context, string) (r *sources.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.call("get", func() error {
		r = p.record()
		p.goOn()
		if p.looked != nil {
			p.looked()
		}
		return nil
	})
	return r, err
}

// goOn takes the node through what is ahead of it.
func (p *plant) goOn() {
	if len(p.ahead) == 0 {
		return
	}
	p.f.ProvisionState, p.ahead = p.ahead[0], p.ahead[1:]
	if p.f.ProvisionState == facts.ProvisionStateCleaning { // torn down
		delete(p.servers, p.f.InstanceUUID.Value)
		p.f.InstanceUUID = facts.TextOf("")
	}
	if len(p.ahead) == 0 {
		p.f.TargetProvisionState = facts.TextOf("")
	}
	if s, ok := p.servers[p.f.InstanceUUID.Value]; ok && p.f.ProvisionState == facts.ProvisionStateActive {
		s.Status = "ACTIVE"
		p.servers[s.ID] = s
	}
}

func (p *plant) begin(target facts.ProvisionState, through ...facts.ProvisionState) {
	p.f.ProvisionState, p.ahead, p.f.TargetProvisionState = through[0], append(through[1:], target), facts.TextOf(target.String())
}

func (p *plant) change(name string, effect func() error) (*sources.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.call(name, effect); err != nil {
		return nil, err
	}
	return p.record(), nil
}

func (p *ironics) RemoveTrait(_ context.Context, _, trait string) (*sources.Record, error) {
	return p.change("remove trait", func() error {
		if at := slices.Index(p.f.Traits, trait); at >= 0 {
			p.note("trait off")
			p.f.Traits = slices.Delete(p.f.Traits, at, at+1)
		}
		return nil
	})
}

func (p *ironics) AddTrait(_ context.Context, _, trait string) (*sources.Record, error) {
	return p.change("add trait", func() error {
		if !slices.Contains(p.f.Traits, trait) {
			p.note("trait on")
			p.f.Traits = append(p.f.Traits, trait)
		}
		return nil
	})
}

func (p *ironics) SetLessee(_ context.Context, _, from, to string) (*sources.Record, error) {
	return p.change("lease", func() error {
		if p.f.Lessee.Value != from && p.f.Lessee.Value != to {
			return conflict("leased to %s", p.f.Lessee.Value)
		}
		if p.f.Lessee.Value != to {
			p.note("lease %s", to)
		}
		p.f.Lessee = facts.TextOf(to)
		return nil
	})
}

func (p *ironics) ClearMaintenance(_ context.Context, _, mark string, repair ironic.Repair) (*sources.Record, error) {
	return p.change("clear maintenance", func() error {
		reason := p.f.MaintenanceReason.Value
		if p.f.Maintenance == facts.True && !strings.HasPrefix(reason, mark) && !(repair.CleanFailure && p.f.Fault.Known) {
			return &sources.Error{Kind: sources.KindConflict, Err: ironic.ErrForeign}
		}
		if p.f.Maintenance == facts.True {
			p.note("maintenance off")
		}
		p.f.Maintenance = facts.False
		return nil
	})
}

func (p *ironics) SetProvision(_ context.Context, _ string, verb nodes.ProvisionStateOpts) (*sources.Record, error) {
	return p.change("provision", func() error {
		p.note("provision %s", verb.Target)
		switch verb.Target {
		case nodes.TargetManage:
			p.f.ProvisionState = facts.ProvisionStateManageable
		case nodes.TargetProvide:
			p.begin(facts.ProvisionStateAvailable, facts.ProvisionStateCleaning)
		}
		return nil
	})
}

func (p *ironics) Undeploy(_ context.Context, _, instance string) (*sources.Record, error) {
	return p.change("provision", func() error {
		if p.f.InstanceUUID.Value != instance {
			return conflict("another instance is on it")
		}
		p.note("provision deleted")
		p.tearDown()
		return nil
	})
}

func (p *plant) tearDown() {
	p.begin(facts.ProvisionStateAvailable, facts.ProvisionStateDeleting, facts.ProvisionStateCleaning)
}

func (p *ironics) Settle(ctx context.Context, ref string, _ time.Duration) (*sources.Record, error) {
	return p.Get(ctx, ref)
}

func (p *ironics) Details(context.Context, string) (d ironic.Details, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ironic.Details{Extra: map[string]any{"muster": p.mark}}, p.call("details", func() error { return nil })
}

func (p *ironics) Bind(_ context.Context, _ string, d ironic.Deployment) (*sources.Record, error) {
	return p.change("bind", func() error {
		mark := ironic.Mark(d.Job, d.Instance)
		switch {
		case p.mark == mark && p.f.InstanceUUID.Value == d.Instance:
			return nil
		case d.Lessee != "" && p.f.Lessee.Value != d.Lessee:
			return conflict("it is leased to %q", p.f.Lessee.Value)
		case p.f.InstanceUUID.Value != "" || p.f.ProvisionState != facts.ProvisionStateAvailable:
			return conflict("it is bound, or not available")
		}
		p.note("bind")
		p.mark, p.f.InstanceUUID = mark, facts.TextOf(d.Instance)
		return nil
	})
}

func (p *ironics) Deploy(_ context.Context, _ string, d ironic.Deployment) (*sources.Record, error) {
	return p.change("deploy", func() error {
		if p.mark != ironic.Mark(d.Job, d.Instance) {
			return conflict("it is not bound so")
		}
		p.note("deploy")
		p.begin(facts.ProvisionStateActive, facts.ProvisionStateDeploying, facts.ProvisionStateWaitCallback)
		return nil
	})
}

func (p *ironics) Unbind(_ context.Context, _, instance string) (*sources.Record, error) {
	return p.change("unbind", func() error {
		switch bound := p.f.InstanceUUID.Value; {
		case bound != "" && bound != instance:
			return conflict("another instance is bound")
		case p.f.ProvisionState != facts.ProvisionStateAvailable:
			return conflict("it is not available")
		}
		if p.mark != "" {
			p.note("unbind")
		}
		p.mark, p.f.InstanceUUID = "", facts.TextOf("")
		return nil
	})
}
