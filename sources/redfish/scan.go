package redfish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// poll asks one BMC once. Its record has facts if it answered at all, else
// Unanswered; an address that may not be dialled is Undecodable.
func (c *Client) poll(ctx context.Context, target Target, logins *logins) sources.Record {
	record := sources.Record{Ref: target.Address, At: c.clock()}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	b := c.bmc(target, logins.of(ctx, target.Name))
	defer b.close()
	s := &scan{bmc: b, f: &facts.BMC{Failures: facts.BMCFailures0}}
	err := b.root(ctx)
	switch {
	case errors.Is(err, errOutside):
		record.Undecodable = errOutside.Error()
		return record
	case err != nil && !b.answered:
		record.Unanswered = sources.Failure("", err).Message
		return record
	case b.anonymous:
		s.f.Refusal = facts.BMCRefusalBmcCredentialRefused
	case err != nil && s.refuse(err):
	default:
		s.run(ctx)
	}
	if b.denied != nil {
		s.f = &facts.BMC{Failures: facts.BMCFailures0, Refusal: facts.BMCRefusalBmcCredentialRefused}
	}
	for fact := range s.f.Unreadable {
		c.config.Meter.DecodeFailed(fact)
	}
	record.BMC = s.f
	return record
}

// scan reads one BMC into facts.
type scan struct {
	*bmc
	f *facts.BMC

	hostURI string
	host    document
	baseURI string   // of the HGX baseboard's System, "" where there is none
	chassis []string // of the collection
	main    []member // the chassis that stand for the whole
	blind   string   // why one of main could not be read: what hangs on it is unread too
}

// refuse notes a refusal of the whole BMC and reports whether the error is one.
func (s *scan) refuse(err error) bool {
	switch ClassOf(err) {
	case ClassCredential:
		s.f.Refusal = facts.BMCRefusalBmcCredentialRefused
	case ClassSessions:
		s.f.Refusal = facts.BMCRefusalBmcSessionsFull
	case ClassNotReady:
		s.f.Refusal = facts.BMCRefusalBmcNotReady
	default:
		return false
	}
	return true
}

// lost notes why a fact could not be read.
func (s *scan) lost(fact, why string) {
	if s.f.Unreadable == nil {
		s.f.Unreadable = map[string]string{}
	}
	s.f.Unreadable[fact] = sources.CleanText(why, 200)
}

func reason(err error) string { return sources.Failure("", err).Message }

// settle gives a subsystem's fact its value.
func (s *scan) settle(fact string, v verdict) facts.RedfishHealth {
	if v.worst <= facts.RedfishHealthOK && v.unread != "" {
		s.lost(fact, v.unread)
		if strings.HasPrefix(v.unread, "unmodelled") {
			s.client.config.Meter.Unmodelled(fact, v.unread)
		}
		return 0
	}
	return v.worst
}

// run reads what the profile of the device's class has, the most needed first:
// if the deadline comes before the end, the rest is unread.
func (s *scan) run(ctx context.Context) {
	first := s.systems
	if s.target.Class == facts.DeviceClassPowershelf {
		first = s.chassisList
	}
	if err := first(ctx); err != nil {
		if !s.refuse(err) {
			s.all(reason(err))
		}
		return
	}
	if s.target.Class == facts.DeviceClassPowershelf {
		s.shelf(ctx)
		s.thermal(ctx)
		s.firmware(ctx)
		return
	}
	if err := s.chassisList(ctx); err != nil {
		for _, fact := range []string{"chassis_health", "network_adapters", "power_supplies", "thermal"} {
			s.lost(fact, reason(err))
		}
	}
	s.mainChassis(ctx)
	s.computing(ctx)
	s.accelerators(ctx)
	s.thermal(ctx)
	s.supplies(ctx)
	s.adapters(ctx)
	s.firmware(ctx)
}

// all notes that nothing could be read.
func (s *scan) all(why string) {
	for _, fact := range []string{"power_state", "chassis_health", "processors", "memory", "storage", "network_adapters", "power_supplies", "thermal", "gpus", "fpgas"} {
		s.lost(fact, why)
	}
}

// errEmpty says that a collection which every machine has something in has
// nothing in it: a BMC that is starting shows it so, and nothing follows from it.
var errEmpty = errors.New("the collection is empty")

// systems finds the machine among the Systems and reads it. Its error is that
// of the collection, the first thing that wants a login.
func (s *scan) systems(ctx context.Context) error {
	uris, err := s.listed(ctx, s.service("Systems"))
	if err == nil && len(uris) == 0 && s.isHost() {
		err = errEmpty
	}
	if err != nil {
		return err
	}
	for _, uri := range uris {
		if fits("HGX_*", id(uri)) {
			s.baseURI = uri
		}
	}
	uri, err := s.bmc.host(uris)
	if err != nil {
		s.lost("power_state", reason(err))
		return nil
	}
	a, err := s.get(ctx, uri)
	if err != nil {
		s.lost("power_state", reason(err))
		return nil
	}
	s.hostURI, s.host = uri, a.doc
	state, odd := powerOf(a.doc)
	s.power(state, odd)
	return nil
}

func (s *scan) power(state, odd string) {
	if odd != "" {
		s.lost("power_state", "unmodelled "+odd)
		s.client.config.Meter.Unmodelled("power_state", odd)
		return
	}
	if state != "" {
		s.f.PowerState = facts.TextOf(state)
	}
}

func (s *scan) chassisList(ctx context.Context) (err error) {
	s.chassis, err = s.listed(ctx, s.service("Chassis"))
	if err == nil && len(s.chassis) == 0 {
		err = errEmpty
	}
	return err
}

// The chassis that stand for the whole machine, and those that hold network
// adapters, by the ids that vendors give them. What the host's System names
// itself counts too.
var (
	wholeIDs   = []string{"Chassis_0", "HGX_Chassis_0", "System.Embedded.1", "Self", "1", "powershelf", "PowerShelf*"}
	switchIDs  = []string{"System_0", "MGX_NVSwitch_*", "NVSwitch_*"}
	adapterIDs = []string{"IO_Board_*", "Riser_*", "*BlueField*", "NIC_*", "CX7_*", "CX8_*"}
)

func anyFits(patterns []string, id string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, id) })
}

const chassisLimit = 8 // that are read one by one

// mainChassis reads the chassis that stand for the whole and rolls their
// healths up. One that cannot be read leaves the whole unread. A baseboard has no
// power while its host is off: then the whole is what the rest says, unless it
// was bad when last read, since silence heals nothing.
func (s *scan) mainChassis(ctx context.Context) {
	linked := s.host.object("Links").links("Chassis")
	var wanted []string
	for _, uri := range s.chassis {
		name := id(uri)
		if slices.Contains(linked, uri) || anyFits(wholeIDs, name) || s.target.Class == facts.DeviceClassNvswitch && anyFits(switchIDs, name) {
			wanted = append(wanted, uri)
		}
	}
	if len(wanted) == 0 {
		wanted = s.chassis
	}
	var v verdict
	for i, uri := range wanted {
		if i == chassisLimit {
			v.fail(fmt.Sprintf("more than %d chassis", chassisLimit))
			break
		}
		a, err := s.get(ctx, uri)
		if err != nil && s.unpowered(uri, err) {
			continue
		}
		if err != nil {
			why := id(uri) + ": " + reason(err)
			if v.fail(why); !fits("HGX_*", id(uri)) {
				s.blind = why
			}
			continue
		}
		s.main = append(s.main, member{uri: uri, doc: a.doc})
		v.add(a.doc.health())
	}
	if len(s.chassis) > 0 {
		s.f.ChassisHealth = s.settle("chassis_health", v)
	}
}

// unpowered reports that a baseboard's chassis does not answer because its host
// is off, and that nothing bad is known of the whole.
func (s *scan) unpowered(uri string, err error) bool {
	return fits("HGX_*", id(uri)) && ClassOf(err) == ClassNotReady && s.f.PowerState.String() == PowerOff && s.target.Health <= facts.RedfishHealthOK
}

// ours gives the main chassis without those of the baseboard, which its own
// controller answers for.
func (s *scan) ours() []member {
	var found []member
	for _, m := range s.main {
		if !fits("HGX_*", id(m.uri)) {
			found = append(found, m)
		}
	}
	return found
}

// computing reads processors, memory and storage of the machine: from the
// System's own summaries where it rolls their healths up, else from the parts.
func (s *scan) computing(ctx context.Context) {
	wantGPUs := s.baseURI == "" && s.target.Class == facts.DeviceClassGpuCompute
	if s.host == nil {
		unread := []string{"processors", "memory", "storage"}
		if wantGPUs {
			unread = append(unread, "gpus", "fpgas")
		}
		for _, fact := range unread {
			s.lost(fact, "the machine's System was not read")
		}
		return
	}
	summary := s.host.object("ProcessorSummary").health()
	if summary.health != 0 && !wantGPUs {
		s.f.Processors = summary.health
	} else {
		cpus, gpus, fpgas := s.processors(ctx, s.host.link("Processors"))
		if summary.health != 0 {
			cpus.add(summary)
		}
		s.f.Processors = s.settle("processors", cpus)
		if wantGPUs {
			if gpus.parts == 0 && gpus.unread == "" {
				gpus = s.cards(ctx)
			}
			s.f.Gpus, s.f.Fpgas = s.settle("gpus", gpus), s.settle("fpgas", fpgas)
		}
	}
	if summary := s.host.object("MemorySummary").health(); summary.health != 0 {
		s.f.Memory = summary.health
	} else {
		s.f.Memory = s.settle("memory", s.collection(ctx, s.host.link("Memory")))
	}
	s.f.Storage = s.settle("storage", s.collection(ctx, s.host.link("Storage")))
}

// collection gathers the healths of a collection's members; "" is none.
func (s *scan) collection(ctx context.Context, uri string) verdict {
	var v verdict
	if uri == "" {
		return v
	}
	members, err := s.members(ctx, uri, nil)
	if err != nil {
		v.failed(err)
	}
	for _, m := range members {
		v.member(m)
	}
	return v
}

// processors gathers the healths of a System's processors by what they are.
func (s *scan) processors(ctx context.Context, uri string) (cpus, gpus, fpgas verdict) {
	if uri == "" {
		return cpus, gpus, fpgas
	}
	members, err := s.members(ctx, uri, nil)
	if err != nil {
		for _, v := range []*verdict{&cpus, &gpus, &fpgas} {
			v.failed(err)
		}
	}
	for _, m := range members {
		kind := strings.ToUpper(m.doc.text("ProcessorType"))
		if m.doc == nil { // what it is can only be told from its name
			kind = strings.ToUpper(id(m.uri))
		}
		switch {
		case strings.HasPrefix(kind, "GPU") || kind == "ACCELERATOR":
			gpus.member(m)
		case strings.HasPrefix(kind, "FPGA"):
			fpgas.member(m)
		default:
			cpus.member(m)
		}
	}
	return cpus, gpus, fpgas
}

// cards gathers the healths of the GPUs that a machine has as PCIe devices of
// its chassis only.
func (s *scan) cards(ctx context.Context) verdict {
	v := verdict{unread: s.blind}
	for _, m := range s.ours() {
		uri := m.doc.link("PCIeDevices")
		if uri == "" {
			continue
		}
		members, err := s.members(ctx, uri, func(id string) bool { return fits("GPU*", id) })
		if err != nil {
			v.failed(err)
		}
		for _, one := range members {
			v.member(one)
		}
	}
	return v
}

// accelerators reads the GPUs and FPGAs of the baseboard. Where it has no FPGA
// among its processors their chassis say how they are.
func (s *scan) accelerators(ctx context.Context) {
	if s.baseURI == "" {
		return
	}
	_, gpus, fpgas := s.processors(ctx, strings.TrimRight(s.baseURI, "/")+"/Processors")
	if fpgas.parts == 0 && fpgas.unread == "" {
		asked := 0
		for _, uri := range s.chassis {
			if !fits("HGX_FPGA_*", id(uri)) || asked == chassisLimit {
				continue
			}
			asked++
			a, err := s.get(ctx, uri)
			if err != nil {
				fpgas.fail(id(uri) + ": " + reason(err))
				continue
			}
			fpgas.add(a.doc.health())
		}
	}
	s.f.Gpus, s.f.Fpgas = s.settle("gpus", gpus), s.settle("fpgas", fpgas)
}
