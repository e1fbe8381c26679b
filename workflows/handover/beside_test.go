package handover

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/nova"
	"github.com/musterhq/muster/sources/slurm"
)

// What is beside Ironic: SLURM, Nova and NetBox.

type slurms struct{ *plant }

func (p *slurms) facts() facts.Slurm {
	return facts.Slurm{Listed: facts.True, States: p.states, DrainMark: p.drainer, Reason: facts.TextOf(p.drainer)}
}

func (p *slurms) Get(_ context.Context, name string) (*sources.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.call("get slurm", func() error {
		if !p.inSlurm || p.called != "" && name != p.called {
			return sources.ErrGone
		}
		return nil
	})
	f := p.facts()
	if p.silent--; p.silent < 0 {
		p.states &^= facts.SlurmNotResponding
	}
	return &sources.Record{Slurm: &f}, err
}

func (p *slurms) Register(_ context.Context, _, mark string) (*slurm.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outcome := slurm.NotDrained
	err := p.call("register", func() error {
		switch {
		case !p.inSlurm:
			p.note("create in slurm")
			p.inSlurm, p.states, outcome = true, facts.SlurmIdle, slurm.Created
		case p.states.Has(facts.SlurmDrain) && !strings.HasPrefix(p.drainer, "muster:"):
			return conflict("drained by %s", p.drainer)
		case p.states.Has(facts.SlurmDrain) && p.states.Has(facts.SlurmNotResponding):
			p.note("resume what is silent")
		case p.states.Has(facts.SlurmDrain):
			p.note("resume")
			p.states, p.drainer, outcome = facts.SlurmIdle, "", slurm.Resumed
		}
		return nil
	})
	return &slurm.Change{Outcome: outcome, Facts: p.facts()}, err
}

func (p *slurms) Remove(_ context.Context, name, mark string) (*slurm.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	outcome := slurm.Removed
	err := p.call("remove", func() error {
		if p.called != "" && name != p.called {
			return nil
		}
		if !p.states.Has(facts.SlurmDrain) {
			p.note("drain")
			p.drainer = mark
			p.states |= facts.SlurmDrain
		}
		switch {
		case !strings.HasPrefix(p.drainer, "muster:"):
			outcome = slurm.DrainedByOther
		case p.jobs > 0:
			p.jobs--
			outcome = slurm.Draining
		}
		return nil
	})
	return &slurm.Change{Outcome: outcome, Facts: p.facts()}, err
}

func (p *slurms) Resume(_ context.Context, _, mark string) (*slurm.Change, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.call("resume", func() error {
		switch {
		case !p.inSlurm:
			return sources.ErrGone
		case p.states.Has(facts.SlurmDrain) && p.drainer != mark:
			return conflict("drained by %s", p.drainer)
		case p.states.Has(facts.SlurmDrain):
			p.note("undrain")
			p.states, p.drainer = p.states&^facts.SlurmDrain, ""
		}
		return nil
	})
	return &slurm.Change{Facts: p.facts()}, err
}

type novas struct{ *plant }

func (p *novas) Server(_ context.Context, uuid string) (s *nova.Server, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.call("server", func() error {
		found, ok := p.plant.servers[uuid]
		if !ok {
			return sources.ErrGone
		}
		s = &found
		return nil
	})
	return s, err
}

func (p *novas) Servers(_ context.Context, f nova.Filter) (found []nova.Server, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.call("servers", func() error {
		for _, id := range slices.Sorted(maps.Keys(p.plant.servers)) {
			s := p.plant.servers[id]
			s.NodeKnown = true
			if s.Name == f.Name && s.Project == f.Project {
				found = append(found, s)
			}
		}
		return nil
	})
	return found, err
}

func (p *novas) Create(_ context.Context, n nova.NewServer) (*nova.Server, error) {
	s := nova.Server{ID: "aaaaaaaa-0000-4000-8000-000000000001", Name: n.Name, Project: n.Project, Node: n.Node, Status: "BUILD"}
	_, err := p.change("create server", func() error {
		p.note("create server")
		p.plant.servers[s.ID] = s
		p.f.InstanceUUID = facts.TextOf(s.ID)
		p.begin(facts.ProvisionStateActive, facts.ProvisionStateDeploying)
		return nil
	})
	return &s, err
}

func (p *novas) Delete(_ context.Context, uuid string) error {
	_, err := p.change("delete server", func() error {
		s, ok := p.plant.servers[uuid]
		if !ok || s.TaskState == "deleting" {
			return nil
		}
		p.note("delete server")
		s.TaskState = "deleting"
		p.plant.servers[uuid] = s
		p.tearDown()
		return nil
	})
	return err
}

type netboxes struct{ *plant }

func (p *netboxes) Get(context.Context, string) (*sources.Record, error) {
	p.mu.Lock()
	came := p.came
	p.mu.Unlock()
	if came != nil {
		<-came
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.call("netbox", func() error {
		if p.plant.netbox == "" {
			return fmt.Errorf("read it: %w", sources.ErrGone)
		}
		return nil
	})
	return &sources.Record{Netbox: &facts.Netbox{Listed: facts.True, Status: facts.TextOf(p.plant.netbox)}}, err
}
