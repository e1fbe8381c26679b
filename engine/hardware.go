package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// Machine is what is known of a machine: what its inventory tells, and the cables
// that the source of the site's inventory records. Nil and "" are not told; a list
// that is empty is told.
type Machine struct {
	CPUs     *int   `json:"cpus"` // logical ones
	CPUArch  string `json:"cpu_arch"`
	MemoryMB *int   `json:"memory_mb"`
	GPUs     []GPU  `json:"gpus"`
	NICs     []NIC  `json:"nics"`
	Disks    []Disk `json:"disks"`

	Cables []Cable `json:"cables"`
}

// GPU is one GPU of a machine.
type GPU struct {
	Model string `json:"model"`
}

// NIC is one network interface of a machine, with the switch and the port that
// it hears of by LLDP.
type NIC struct {
	Name      string `json:"name"`
	MAC       string `json:"mac"`
	SpeedMbps *int   `json:"speed_mbps"`
	Carrier   *bool  `json:"carrier"`
	Switch    string `json:"switch"`
	Port      string `json:"port"`
}

// Disk is one disk of a machine.
type Disk struct {
	SizeGB *int `json:"size_gb"` // 10⁹ bytes
}

// Cable is one cable that the inventory source records: from the interface with
// this MAC or, without one, of this name, to a port of a switch.
type Cable struct {
	Interface string `json:"interface"`
	MAC       string `json:"mac"`
	Switch    string `json:"switch"`
	Port      string `json:"port"`
}

// Kind says in which way a machine differs from its profile.
type Kind string

// What is asked and not told is incomplete, whatever else there is.
const (
	Incomplete Kind = "incomplete"
	Mismatch   Kind = "mismatch"
	Link       Kind = "link"
	Wrong      Kind = "cable"
)

// Difference is one part of a machine that is not as its profile says, or that is
// not known to be.
type Difference struct {
	Part     string // of the profile: cpus, cpu_arch, memory, gpus, nics.N, disks.N, cabling
	Expected string
	Actual   string
	Kind     Kind
}

// String says it to an operator.
func (d Difference) String() string {
	return fmt.Sprintf("%s: expected %s, found %s", d.Part, d.Expected, d.Actual)
}

const notTold = "not told"

// Judge lists where a machine differs from the profile, in the order of the
// profile's parts, none where it is as expected. Of what is not told the machine
// could have anything: it is never passed.
func (p *HardwareProfile) Judge(m Machine) []Difference {
	j := judgement{profile: p, machine: &m}
	j.number("cpus", p.CPUs, m.CPUs, "")
	if p.CPUArch != "" && m.CPUArch == "" {
		j.differs("cpu_arch", p.CPUArch, notTold, Incomplete)
	} else if p.CPUArch != "" && !strings.EqualFold(p.CPUArch, m.CPUArch) {
		j.differs("cpu_arch", p.CPUArch, m.CPUArch, Mismatch)
	}
	j.number("memory", p.MemoryMB, m.MemoryMB, " MB")
	j.gpus()
	for i := range p.NICs {
		j.nics("nics."+strconv.Itoa(i), &p.NICs[i])
	}
	for i := range p.Disks {
		j.disks("disks."+strconv.Itoa(i), p.Disks[i])
	}
	if p.Cabling == CablingLLDP {
		j.cables()
	}
	return j.found
}

// judgement is one machine looked at by one profile.
type judgement struct {
	profile *HardwareProfile
	machine *Machine
	found   []Difference
}

func (j *judgement) differs(part, expected, actual string, kind Kind) {
	j.found = append(j.found, Difference{part, expected, actual, kind})
}

func (j *judgement) number(part string, r Range, actual *int, unit string) {
	switch {
	case !r.Asked():
	case actual == nil:
		j.differs(part, r.String()+unit, notTold, Incomplete)
	case !r.holds(*actual):
		j.differs(part, r.String()+unit, strconv.Itoa(*actual)+unit, Mismatch)
	}
}

// String gives "8", or "15000 to 17000".
func (r Range) String() string {
	if r.Min == r.Max {
		return strconv.Itoa(r.Min)
	}
	return fmt.Sprintf("%d to %d", r.Min, r.Max)
}

func (j *judgement) gpus() {
	p, all := j.profile, j.machine.GPUs
	if !p.GPUs.Asked() {
		return
	}
	expected := p.GPUs.String()
	if p.gpuModel != nil {
		expected += " matching " + p.GPUModel
	}
	var others []string
	untold := 0
	for _, gpu := range all {
		switch {
		case p.gpuModel == nil:
		case gpu.Model == "":
			untold++
		case !p.gpuModel.MatchString(gpu.Model):
			others = append(others, gpu.Model)
		}
	}
	switch {
	case all == nil:
		j.differs("gpus", expected, notTold, Incomplete)
	case !p.GPUs.holds(len(all)):
		j.differs("gpus", expected, strconv.Itoa(len(all)), Mismatch)
	case len(others) > 0:
		j.differs("gpus", expected, strings.Join(others, ", "), Mismatch)
	case untold > 0:
		j.differs("gpus", expected, fmt.Sprintf("%d whose model is %s", untold, notTold), Incomplete)
	}
}

// answer is what is known of a question: no, untold or yes.
type answer int8

const (
	no answer = iota
	untold
	yes
)

func answered(ok bool) answer {
	if ok {
		return yes
	}
	return no
}

// named says whether an interface is one that the profile asks for.
func (p *NICProfile) named(nic *NIC) answer {
	switch {
	case p.match == nil:
		return yes
	case nic.Name == "":
		return untold
	}
	return answered(p.match.MatchString(nic.Name))
}

// linked says whether its link is as the profile asks.
func (p *NICProfile) linked(nic *NIC) answer {
	switch {
	case p.SpeedMbps == 0:
		return yes
	case nic.Carrier != nil && !*nic.Carrier, nic.SpeedMbps != nil && *nic.SpeedMbps < p.SpeedMbps:
		return no
	case nic.Carrier == nil, nic.SpeedMbps == nil:
		return untold
	}
	return yes
}

// serves is both.
func (p *NICProfile) serves(nic *NIC) answer { return min(p.named(nic), p.linked(nic)) }

func (p *NICProfile) String() string {
	text := fmt.Sprintf("%d or more", p.Count)
	if p.match != nil {
		text += " matching " + p.Match
	}
	if p.SpeedMbps > 0 {
		text += fmt.Sprintf(" with a link of %d Mb/s or more", p.SpeedMbps)
	}
	return text
}

// nics asks for at least so many: what one more fact could make enough is
// incomplete, what nothing could is a difference.
func (j *judgement) nics(part string, p *NICProfile) {
	if j.machine.NICs == nil {
		j.differs(part, p.String(), notTold, Incomplete)
		return
	}
	var serve, could, named int
	var bad []string
	for i := range j.machine.NICs {
		nic := &j.machine.NICs[i]
		if p.named(nic) == no {
			continue
		}
		named++
		switch p.serves(nic) {
		case yes:
			serve++
		case untold:
			could++
			bad = append(bad, nic.label()+" "+nic.link())
		case no:
			bad = append(bad, nic.label()+" "+nic.link())
		}
	}
	actual := strconv.Itoa(serve)
	if len(bad) > 0 {
		actual += ": " + strings.Join(bad, ", ")
	}
	switch {
	case serve >= p.Count:
	case serve+could >= p.Count:
		j.differs(part, p.String(), actual, Incomplete)
	case named < p.Count:
		j.differs(part, p.String(), strconv.Itoa(named), Mismatch)
	default:
		j.differs(part, p.String(), actual, Link)
	}
}

// label is what a person knows an interface by.
func (n *NIC) label() string {
	switch {
	case n.Name != "":
		return n.Name
	case n.MAC != "":
		return n.MAC
	}
	return "one without a name"
}

func (n *NIC) link() string {
	switch {
	case n.Carrier != nil && !*n.Carrier:
		return "has no link"
	case n.SpeedMbps == nil:
		return "does not tell its speed"
	case n.Carrier == nil:
		return "does not tell whether it has a link"
	}
	return fmt.Sprintf("has %d Mb/s", *n.SpeedMbps)
}

func (j *judgement) disks(part string, p DiskProfile) {
	expected := fmt.Sprintf("%d or more", p.Count)
	if p.SizeGB > 0 {
		expected += fmt.Sprintf(" of %d GB or more", p.SizeGB)
	}
	if j.machine.Disks == nil {
		j.differs(part, expected, notTold, Incomplete)
		return
	}
	var serve, could int
	for _, disk := range j.machine.Disks {
		switch {
		case p.SizeGB == 0 || disk.SizeGB != nil && *disk.SizeGB >= p.SizeGB:
			serve++
		case disk.SizeGB == nil:
			could++
		}
	}
	switch {
	case serve >= p.Count:
	case serve+could >= p.Count:
		j.differs(part, expected, fmt.Sprintf("%d, and %d whose size is %s", serve, could, notTold), Incomplete)
	default:
		j.differs(part, expected, fmt.Sprintf("%d of %d", serve, len(j.machine.Disks)), Mismatch)
	}
}
