package world

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// A rack holds so many of each class.
const (
	computeTrays = 18
	nvSwitches   = 9
	powerShelves = 8
	switches     = 2
)

// seed makes the fleet of a shape.
func seed(s *State, shape Shape) {
	for i := 1; i <= shape.Sites; i++ {
		site := newSite(i)
		s.Sites.Put(site.Name, site)
		for rack := 1; rack <= shape.Racks; rack++ {
			s.seedRack(shape.Seed, site, rack)
		}
	}
}

// newSite gives the nth site: the first is ours to run with all that muster
// knows, the others leave something out.
func newSite(i int) *Site {
	site := &Site{
		Name: fmt.Sprintf("sim%d", i), Index: i, Mode: "fully_managed", TraitBased: true, Trait: "CUSTOM_CUSTOMER_READY", Slurm: true, FastTrack: true,
		Lessees: Lessees{
			Enrol: projectID("enrol", i), Slurm: projectID("slurm", i), Maintenance: projectID("maintenance", i),
		},
		Customers: []string{projectID("customer-a", i), projectID("customer-b", i), projectID("customer-c", i)},
	}
	switch i % 4 {
	case 1:
		site.Placement = true
	case 2:
		site.TraitBased, site.Trait, site.Slurm, site.CredentialStore = false, "", false, true
	case 3:
		site.Mode, site.FastTrack = "metal_delegated", false
	case 0:
		site.InventoryOnly, site.Slurm, site.TraitBased, site.Trait = true, false, false, ""
	}
	return site
}

// projectID is the id of a project as Keystone has them.
func projectID(name string, site int) string {
	r := rand.New(rand.NewPCG(uint64(site), uint64(len(name))<<32|uint64(name[0])<<8|uint64(name[len(name)-1])))
	return fmt.Sprintf("%016x%016x", r.Uint64(), r.Uint64())
}

// stream gives the random numbers of one aspect of one machine: what is drawn for
// another one, or by another build for another aspect, does not move them.
func stream(seed uint64, words ...string) *rand.Rand {
	h := fnv.New64a()
	for _, word := range words {
		_, _ = h.Write([]byte(word + "\x00")) // a hash takes everything
	}
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func (s *State) seedRack(seed uint64, site *Site, number int) {
	rack := &Rack{Name: fmt.Sprintf("%s-r%02d", site.Name, number), Site: site.Name}
	s.Racks.Put(Key(site.Name, rack.Name), rack)
	unit := 1
	for _, part := range []struct {
		letter, class, vendor, model string
		count                        int
	}{
		{"p", ClassPowerShelf, "Delta", "PSB-33K", powerShelves},
		{"c", ClassCompute, "NVIDIA", "GB200 NVL", computeTrays},
		{"n", ClassNVSwitch, "NVIDIA", "GB200 NVSwitch", nvSwitches},
		{"s", ClassSwitch, "NVIDIA", "SN2201", switches},
	} {
		for n := 1; n <= part.count; n++ {
			name := fmt.Sprintf("%s-%s%02d", rack.Name, part.letter, n)
			r := stream(seed, name, "identity")
			m := &Machine{
				Name: name, Site: site.Name, Rack: rack.Name, Position: unit, Class: part.class,
				UUID: newUUID(r), Serial: serial(r), Vendor: part.vendor, Model: part.model, MAC: mac(r), On: true,
				Health: map[string]string{}, Firmware: map[string]string{},
			}
			if part.class != ClassSwitch {
				m.Address = fmt.Sprintf("127.%d.%d.%d", site.Index, number, unit)
			}
			unit++
			s.seedMachine(seed, site, m)
		}
	}
}

// seedMachine gives one machine its hardware and its place in every system.
func (s *State) seedMachine(seed uint64, site *Site, m *Machine) {
	of := func(aspect string) *rand.Rand { return stream(seed, m.Name, aspect) }
	s.seedHardware(of("hardware"), m)
	use := s.seedUse(of("use"), site, m)
	s.seedAccount(site, m, use)
	s.seedNode(of("node"), site, m, use)
	s.seedSlurm(of("slurm"), site, m, use)
	s.seedDevice(site, m, use)
	s.Machines.Put(m.Key(), m)
}

// Use is what a machine is for when the world begins.
type Use string

// The uses of a machine.
const (
	UseNone      Use = ""          // no machine that Ironic manages
	UseCustomer  Use = "customer"  // a customer's instance is on it
	UseFree      Use = "free"      // a customer may have it
	UseBurnIn    Use = "burn-in"   // leased to SLURM, deployed and in its queue
	UseDrained   Use = "drained"   // leased to SLURM and drained by a person
	UseRepair    Use = "repair"    // in Ironic's maintenance
	UseFailed    Use = "failed"    // its cleaning failed
	UseEnrolling Use = "enrolling" // known to Ironic, not yet provided
	UseNew       Use = "new"       // racked, known to NetBox alone: not yet enrolled
)

// seedUse decides what a compute tray is for.
func (s *State) seedUse(r *rand.Rand, site *Site, m *Machine) Use {
	if m.Class != ClassCompute || site.InventoryOnly {
		return UseNone
	}
	if m.Rack == site.Name+"-r01" && m.Position == powerShelves+computeTrays {
		return UseNew // each site has one at least
	}
	dice := r.IntN(100)
	for _, share := range []struct {
		use  Use
		upTo int
	}{
		{UseCustomer, 40}, {UseFree, 58}, {UseBurnIn, 74}, {UseDrained, 79}, {UseRepair, 84}, {UseFailed, 88}, {UseEnrolling, 94}, {UseNew, 100},
	} {
		if dice < share.upTo {
			return share.use
		}
	}
	return UseNew
}

func newUUID(r *rand.Rand) string {
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

func serial(r *rand.Rand) string { return fmt.Sprintf("13%011d", r.Uint64N(100_000_000_000)) }

func mac(r *rand.Rand) string {
	n := r.Uint64()
	return fmt.Sprintf("b8:ce:f6:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
}
