package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

var errNoDevice = errors.New("no machine of the simulated fleet is called so")

// Machine is something that can become of a machine.
type Machine struct {
	Kind    string
	Meaning string
	apply   func(s *world.State, m *world.Machine, f *Fault) error
}

const (
	defaultSlow     = 5 * time.Second
	defaultNotReady = time.Minute
)

// Machines are all that can become of a machine, in the order of telling.
func Machines() []Machine {
	bmc := func(change func(s *world.State, b *world.BMC, f *Fault)) func(*world.State, *world.Machine, *Fault) error {
		return func(s *world.State, m *world.Machine, f *Fault) error {
			if m.Address == "" {
				return fmt.Errorf("%s has no BMC", m.Name)
			}
			s.EditBMC(m, func(b *world.BMC) { change(s, b, f) })
			return nil
		}
	}
	return []Machine{
		{"bmc-dead", "the BMC closes what it accepts", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Dead = true })},
		{"bmc-hangs", "the BMC accepts and never answers", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Hangs = true })},
		{"bmc-slow", "the BMC answers --for later", bmc(func(_ *world.State, b *world.BMC, f *Fault) {
			b.Slow = int(or(f.For, defaultSlow) / time.Millisecond)
		})},
		{"bmc-refuses", "the BMC has another password", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Password = "changed by somebody" })},
		{"bmc-full", "the BMC's sessions are all taken", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Full = true })},
		{"bmc-not-ready", "the BMC says for --for that it is not ready", bmc(func(s *world.State, b *world.BMC, f *Fault) {
			b.NotReady = s.Now.Add(or(f.For, defaultNotReady))
		})},
		{"bmc-deaf", "the BMC accepts resets, and nothing happens", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Deaf = true })},
		{"bmc-bad-image", "the BMC's next firmware update fails", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.BadImage = true })},
		{"bmc-keeps", "the BMC's firmware updates end well, and the versions stay", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Keeps = true })},
		{"bmc-push-only", "the BMC fetches no firmware, it has to be sent along", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.PushOnly = true })},
		{"bmc-loses", "the BMC does the next act, and its answer is lost", bmc(func(_ *world.State, b *world.BMC, _ *Fault) { b.Loses = true })},
		{"bmc-says", "the BMC says --state of its power, whatever is so: On, Off, or null for nothing", says},
		{"bmc-updating", "somebody has the BMC update a part of itself", updating},
		{"bmc-well", "the BMC is as it should be", bmc(func(s *world.State, b *world.BMC, _ *Fault) { *b = world.BMC{Reset: s.Now, Own: b.Own} })},
		{"health", "--part of the machine is --state: OK, Warning or Critical", health},
		{"power-off", "somebody presses the button", func(s *world.State, m *world.Machine, _ *Fault) error {
			s.Switch(m, "power button", false)
			return nil
		}},
		{"power-on", "somebody presses the button", func(s *world.State, m *world.Machine, _ *Fault) error {
			s.Switch(m, "power button", true)
			return nil
		}},
		{"clean-fails", "the next cleaning in Ironic fails", fails(world.WorkClean)},
		{"deploy-fails", "the next deployment in Ironic fails", fails(world.WorkDeploy)},
		{"inspect-fails", "the next inspection in Ironic fails", fails(world.WorkInspect)},
		{"slurmd-down", "its slurmd ends", slurmd(false)},
		{"slurmd-up", "its slurmd starts again", slurmd(true)},
		{"drain", "a person drains it in SLURM, with --reason", slurmState(world.SlurmDrain)},
		{"resume", "a person resumes it in SLURM", slurmState("RESUME")},
	}
}

// says has a BMC lie about its power.
func says(s *world.State, m *world.Machine, f *Fault) error {
	if m.Address == "" {
		return fmt.Errorf("%s has no BMC", m.Name)
	}
	if !slices.Contains([]string{"On", "Off", "null"}, f.State) {
		return fmt.Errorf("a BMC says On, Off or null of its power, not %q", f.State)
	}
	s.EditBMC(m, func(b *world.BMC) { b.Says = f.State })
	return nil
}

// updating starts an update that nobody asked muster for.
func updating(s *world.State, m *world.Machine, _ *Fault) error {
	parts := slices.Sorted(maps.Keys(m.Firmware))
	switch {
	case len(parts) == 0:
		return fmt.Errorf("%s has no firmware", m.Name)
	case m.Update != nil:
		return fmt.Errorf("an update of %s is under way already", m.Name)
	}
	s.StartUpdate(m, parts[0], m.Firmware[parts[0]], "somebody's image")
	return nil
}

// fails has the next work of a kind fail at a machine's node.
func fails(work string) func(*world.State, *world.Machine, *Fault) error {
	return func(s *world.State, m *world.Machine, _ *Fault) error {
		n := s.Nodes.Edit(world.Key(m.Site, m.Node))
		if m.Node == "" || n == nil {
			return fmt.Errorf("no node of Ironic drives %s", m.Name)
		}
		n.Fails = work
		s.Nodes.Put(n.Key(), n)
		return nil
	}
}

func slurmd(up bool) func(*world.State, *world.Machine, *Fault) error {
	return func(s *world.State, m *world.Machine, _ *Fault) error {
		if m.Slurm == "" {
			return notInSlurm(m)
		}
		s.SetSlurmd(m, up)
		return nil
	}
}

// slurmState is a person with scontrol.
func slurmState(state string) func(*world.State, *world.Machine, *Fault) error {
	return func(s *world.State, m *world.Machine, f *Fault) error {
		if m.Slurm == "" {
			return notInSlurm(m)
		}
		if f.Reason == "" && state == world.SlurmDrain {
			f.Reason = "drained by hand"
		}
		return s.UpdateSlurmNode(m.Site, m.Slurm, world.SlurmUpdate{State: []string{state}, Reason: f.Reason, User: "root"})
	}
}

func notInSlurm(m *world.Machine) error { return fmt.Errorf("no node of SLURM is %s", m.Name) }

func or(d, other time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return other
}

func health(s *world.State, m *world.Machine, f *Fault) error {
	parts := world.Parts(m.Class)
	if !slices.Contains(parts, f.Part) {
		return fmt.Errorf("%s has no part %q: it has %s", m.Name, f.Part, strings.Join(parts, ", "))
	}
	if !slices.Contains([]string{"OK", "Warning", "Critical"}, f.State) {
		return fmt.Errorf("a part is OK, Warning or Critical, not %q", f.State)
	}
	s.EditMachine(m, func(m *world.Machine) {
		if m.Health[f.Part] = f.State; f.State == "OK" {
			delete(m.Health, f.Part)
		}
	})
	return nil
}

// Site is something that can become of a system of a site.
type Site struct {
	Kind    string
	Meaning string
	apply   func(s *world.State, site string)
}

// Sites are all that can become of a site, which the field device then names.
func Sites() []Site {
	return []Site{
		{"slurmctld-down", "its slurmctld ends", func(s *world.State, site string) { s.SlurmController(site, true, false) }},
		{"slurmctld-hangs", "its slurmctld answers no more", func(s *world.State, site string) { s.SlurmController(site, false, true) }},
		{"slurmctld-up", "its slurmctld starts: nodes are UNKNOWN for seconds", func(s *world.State, site string) { s.SlurmController(site, false, false) }},
	}
}

// strikeSite lets a fault become of its site.
func (c control) strikeSite(f *Fault, apply func(*world.State, string)) error {
	return c.World.Do(world.Effect{Face: world.FaceControl, Site: f.Device, Op: string(f.Kind), Subject: f.Device}, func(s *world.State) error {
		site := s.Sites.Get(f.Device)
		if site == nil || !site.Slurm {
			return fmt.Errorf("no simulated site with a SLURM is called %s", f.Device)
		}
		apply(s, f.Device)
		return nil
	})
}

// strike lets a fault become of its machine.
func (c control) strike(f *Fault) error {
	if i := slices.IndexFunc(Sites(), func(s Site) bool { return s.Kind == string(f.Kind) }); i >= 0 {
		return c.strikeSite(f, Sites()[i].apply)
	}
	i := slices.IndexFunc(Machines(), func(m Machine) bool { return m.Kind == string(f.Kind) })
	if i < 0 {
		var kinds []string
		for _, m := range Machines() {
			kinds = append(kinds, m.Kind)
		}
		return fmt.Errorf("nothing that a machine can have is called %q: there are %s", f.Kind, strings.Join(kinds, ", "))
	}
	found := c.named(f.Device)
	if found == nil {
		return errNoDevice
	}
	return c.World.Do(world.Effect{Face: world.FaceControl, Site: found.Site, Op: string(f.Kind), Subject: found.Name, Detail: detail(f)}, func(s *world.State) error {
		m := s.Machines.Get(found.Key())
		if m == nil {
			return errNoDevice
		}
		return Machines()[i].apply(s, m, f)
	})
}

func detail(f *Fault) string {
	return strings.Join(slices.DeleteFunc([]string{f.Part, f.State, f.Reason}, func(s string) bool { return s == "" }), " ")
}

// named finds a machine by its name, or by SITE/NAME.
func (c control) named(name string) (found *world.Machine) {
	site, _, _ := strings.Cut(name, "-r")
	if s, n, qualified := strings.Cut(name, "/"); qualified {
		site, name = s, n
	}
	c.World.Read(func(s *world.State) { found = s.Machines.Get(world.Key(site, name)) })
	return found
}
