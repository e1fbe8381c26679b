package engine

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/facts"
)

func of[T any](v T) *T { return &v }

// tray is a profile that asks every part, and a machine that has them.
func tray() (*HardwareProfile, Machine) {
	p := &HardwareProfile{
		CPUs: exactly(144), CPUArch: "aarch64", MemoryMB: Range{950, 1050}, GPUs: exactly(2), GPUModel: "GB200", gpuModel: regexp.MustCompile("GB200"),
		NICs: []NICProfile{
			{Match: "^ib", Count: 2, SpeedMbps: 400_000, match: regexp.MustCompile("^ib")},
			{Count: 3},
		},
		Disks:   []DiskProfile{{Count: 2, SizeGB: 3800}},
		Cabling: CablingLLDP,
	}
	m := Machine{
		CPUs: of(144), CPUArch: "aarch64", MemoryMB: of(1000), GPUs: []GPU{{"NVIDIA GB200"}, {"NVIDIA GB200"}},
		NICs: []NIC{
			{Name: "ib0", MAC: "02:00:00:00:00:01", SpeedMbps: of(400_000), Carrier: of(true), Switch: "leaf-1.example", Port: "Ethernet1/1"},
			{Name: "ib1", MAC: "02:00:00:00:00:02", SpeedMbps: of(400_000), Carrier: of(true), Switch: "leaf-2", Port: "Ethernet1/1"},
			{Name: "eth0", MAC: "02:00:00:00:00:03", SpeedMbps: of(25_000), Carrier: of(true), Switch: "tor-1", Port: "swp1"},
		},
		Disks: []Disk{{of(3840)}, {of(3840)}, {of(480)}},
		Cables: []Cable{
			{Interface: "ib0", Switch: "leaf-1", Port: "Ethernet1/1"},
			{Interface: "whatever", MAC: "02:00:00:00:00:02", Switch: "LEAF-2", Port: "ethernet1/1"},
			{Interface: "eth0", Switch: "tor-1", Port: "swp1"},
		},
	}
	return p, m
}

func kinds(differences []Difference) []string {
	got := []string{}
	for _, d := range differences {
		got = append(got, d.Part+" "+string(d.Kind))
	}
	return got
}

func TestJudgeOfAMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit  func(p *HardwareProfile, m *Machine)
		want  []string
		saysA string // what an operator reads of the first
	}{
		"as expected":                     {func(*HardwareProfile, *Machine) {}, nil, ""},
		"another number of CPUs":          {func(_ *HardwareProfile, m *Machine) { m.CPUs = of(72) }, []string{"cpus mismatch"}, "cpus: expected 144, found 72"},
		"CPUs not told":                   {func(_ *HardwareProfile, m *Machine) { m.CPUs = nil }, []string{"cpus incomplete"}, "cpus: expected 144, found not told"},
		"no CPU":                          {func(_ *HardwareProfile, m *Machine) { m.CPUs = of(0) }, []string{"cpus mismatch"}, ""},
		"another architecture":            {func(_ *HardwareProfile, m *Machine) { m.CPUArch = "x86_64" }, []string{"cpu_arch mismatch"}, ""},
		"architecture not told":           {func(_ *HardwareProfile, m *Machine) { m.CPUArch = "" }, []string{"cpu_arch incomplete"}, ""},
		"memory at the edge":              {func(_ *HardwareProfile, m *Machine) { m.MemoryMB = of(950) }, nil, ""},
		"memory past the edge":            {func(_ *HardwareProfile, m *Machine) { m.MemoryMB = of(949) }, []string{"memory mismatch"}, "memory: expected 950 to 1050 MB, found 949 MB"},
		"more memory than there can be":   {func(_ *HardwareProfile, m *Machine) { m.MemoryMB = of(1051) }, []string{"memory mismatch"}, ""},
		"GPUs not told":                   {func(_ *HardwareProfile, m *Machine) { m.GPUs = nil }, []string{"gpus incomplete"}, "gpus: expected 2 matching GB200, found not told"},
		"no GPU found":                    {func(_ *HardwareProfile, m *Machine) { m.GPUs = []GPU{} }, []string{"gpus mismatch"}, "gpus: expected 2 matching GB200, found 0"},
		"a GPU that fell off the bus":     {func(_ *HardwareProfile, m *Machine) { m.GPUs = m.GPUs[:1] }, []string{"gpus mismatch"}, ""},
		"a GPU too many":                  {func(_ *HardwareProfile, m *Machine) { m.GPUs = append(m.GPUs, m.GPUs[0]) }, []string{"gpus mismatch"}, ""},
		"a GPU of another model":          {func(_ *HardwareProfile, m *Machine) { m.GPUs[1].Model = "NVIDIA H100" }, []string{"gpus mismatch"}, "gpus: expected 2 matching GB200, found NVIDIA H100"},
		"a GPU of which no model is told": {func(_ *HardwareProfile, m *Machine) { m.GPUs[1].Model = "" }, []string{"gpus incomplete"}, ""},
		"interfaces not told": {func(p *HardwareProfile, m *Machine) { m.NICs, p.Cabling = nil, CablingNone },
			[]string{"nics.0 incomplete", "nics.1 incomplete"}, ""},
		"an interface that is missing": {func(p *HardwareProfile, m *Machine) { m.NICs, p.Cabling = m.NICs[:1], CablingNone },
			[]string{"nics.0 mismatch", "nics.1 mismatch"}, "nics.0: expected 2 or more matching ^ib with a link of 400000 Mb/s or more, found 1"},
		"a slow link": {func(p *HardwareProfile, m *Machine) { m.NICs[1].SpeedMbps, p.Cabling = of(100_000), CablingNone },
			[]string{"nics.0 link"}, "nics.0: expected 2 or more matching ^ib with a link of 400000 Mb/s or more, found 1: ib1 has 100000 Mb/s"},
		"a link that is down": {func(p *HardwareProfile, m *Machine) { m.NICs[1].Carrier, p.Cabling = of(false), CablingNone }, []string{"nics.0 link"}, ""},
		"a link down whose speed is not told": {func(p *HardwareProfile, m *Machine) {
			m.NICs[1].Carrier, m.NICs[1].SpeedMbps, p.Cabling = of(false), nil, CablingNone
		}, []string{"nics.0 link"}, ""},
		"a speed that is not told":    {func(p *HardwareProfile, m *Machine) { m.NICs[1].SpeedMbps, p.Cabling = nil, CablingNone }, []string{"nics.0 incomplete"}, ""},
		"a link that is not told":     {func(p *HardwareProfile, m *Machine) { m.NICs[1].Carrier, p.Cabling = nil, CablingNone }, []string{"nics.0 incomplete"}, ""},
		"a name that is not told":     {func(p *HardwareProfile, m *Machine) { m.NICs[1].Name, p.Cabling = "", CablingNone }, []string{"nics.0 incomplete"}, ""},
		"a slow link nobody asked of": {func(_ *HardwareProfile, m *Machine) { m.NICs[2].SpeedMbps, m.NICs[2].Carrier = of(10), nil }, nil, ""},
		"more interfaces than asked": {func(_ *HardwareProfile, m *Machine) { m.NICs = append(m.NICs, NIC{Name: "ib2", Carrier: of(false)}) },
			nil, ""},
		"disks not told":              {func(_ *HardwareProfile, m *Machine) { m.Disks = nil }, []string{"disks.0 incomplete"}, ""},
		"a disk that is smaller":      {func(_ *HardwareProfile, m *Machine) { m.Disks[0].SizeGB = of(960) }, []string{"disks.0 mismatch"}, "disks.0: expected 2 or more of 3800 GB or more, found 1 of 3"},
		"a disk whose size is untold": {func(_ *HardwareProfile, m *Machine) { m.Disks[0].SizeGB = nil }, []string{"disks.0 incomplete"}, ""},
		"a cable in another port": {func(_ *HardwareProfile, m *Machine) { m.NICs[0].Port = "Ethernet1/2" },
			[]string{"cabling cable"}, "cabling: expected ib0 to leaf-1 Ethernet1/1, found leaf-1.example Ethernet1/2"},
		"two cables exchanged": {func(_ *HardwareProfile, m *Machine) { m.NICs[0].Switch, m.NICs[1].Switch = "leaf-2", "leaf-1" },
			[]string{"cabling cable", "cabling cable"}, ""},
		"a switch of another domain": {func(_ *HardwareProfile, m *Machine) { m.Cables[0].Switch = "leaf-1.elsewhere" }, []string{"cabling cable"}, ""},
		"a silent switch": {func(_ *HardwareProfile, m *Machine) { m.NICs[2].Switch, m.NICs[2].Port = "", "" },
			[]string{"cabling incomplete"}, "cabling: expected eth0 to tor-1 swp1, found an end that is not told"},
		"a switch that tells no port": {func(_ *HardwareProfile, m *Machine) { m.NICs[2].Port = "" }, []string{"cabling incomplete"}, ""},
		"another switch, no port":     {func(_ *HardwareProfile, m *Machine) { m.NICs[2].Switch, m.NICs[2].Port = "tor-2", "" }, []string{"cabling cable"}, ""},
		"no cable recorded":           {func(_ *HardwareProfile, m *Machine) { m.Cables = nil }, []string{"cabling incomplete"}, ""},
		"a cable to an unknown end":   {func(_ *HardwareProfile, m *Machine) { m.Cables[2].Port = "" }, []string{"cabling incomplete"}, ""},
		"a cable of no interface told": {func(_ *HardwareProfile, m *Machine) {
			m.Cables = append(m.Cables, Cable{Interface: "ib7", Switch: "leaf-1", Port: "Ethernet1/7"})
		}, []string{"cabling incomplete"}, ""},
		"too few cables recorded": {func(_ *HardwareProfile, m *Machine) { m.Cables = m.Cables[1:] },
			[]string{"cabling incomplete", "cabling incomplete"}, ""},
		"nothing told": {func(_ *HardwareProfile, m *Machine) { *m = Machine{} },
			[]string{"cpus incomplete", "cpu_arch incomplete", "memory incomplete", "gpus incomplete", "nics.0 incomplete", "nics.1 incomplete", "disks.0 incomplete", "cabling incomplete"}, ""},
		"nothing asked": {func(p *HardwareProfile, m *Machine) { *p, *m = HardwareProfile{Cabling: CablingNone}, Machine{} }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, m := tray()
			c.edit(p, &m)
			got := p.Judge(m)
			if !slices.Equal(kinds(got), append([]string{}, c.want...)) {
				t.Fatalf("got %q, want %q", kinds(got), c.want)
			}
			if c.saysA != "" && got[0].String() != c.saysA {
				t.Errorf("says %q, not %q", got[0], c.saysA)
			}
		})
	}
}

// forgets lists what a machine may leave out, each a change of its own.
func forgets(m *Machine) map[string]func() {
	facts := map[string]func(){
		"cpus": func() { m.CPUs = nil }, "arch": func() { m.CPUArch = "" }, "memory": func() { m.MemoryMB = nil },
		"gpus": func() { m.GPUs = nil }, "nics": func() { m.NICs = nil }, "disks": func() { m.Disks = nil }, "cables": func() { m.Cables = nil },
	}
	add := func(what string, i int, f func()) { facts[what+string(rune('0'+i))] = f }
	for i := range m.GPUs {
		add("model", i, func() { m.GPUs[i].Model = "" })
	}
	for i := range m.Disks {
		add("size", i, func() { m.Disks[i].SizeGB = nil })
	}
	for i := range m.NICs {
		nic := &m.NICs[i]
		add("name", i, func() { nic.Name = "" })
		add("mac", i, func() { nic.MAC = "" })
		add("speed", i, func() { nic.SpeedMbps = nil })
		add("carrier", i, func() { nic.Carrier = nil })
		add("switch", i, func() { nic.Switch = "" })
		add("port", i, func() { nic.Port = "" })
	}
	for i := range m.Cables {
		add("far switch", i, func() { m.Cables[i].Switch = "" })
		add("far port", i, func() { m.Cables[i].Port = "" })
	}
	return facts
}

// Whatever a machine does not tell, a machine that fails does not pass by it, and
// one that passes is at worst incomplete.
func TestLessKnownNeverPasses(t *testing.T) {
	t.Parallel()
	failing, passing, lost := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p, m := anyProfile(t), anyMachine(t)
		for range 4 {
			before := p.Judge(m)
			all := forgets(&m)
			what := rapid.SampledFrom(slices.Sorted(keysOf(all))).Draw(t, "forgets")
			all[what]()
			after := p.Judge(m)
			if len(before) > 0 {
				failing++
				if len(after) == 0 {
					t.Fatalf("without %s the machine passes; before: %v", what, before)
				}
				continue
			}
			passing++
			lost += len(after)
			for _, d := range after {
				if d.Kind != Incomplete {
					t.Fatalf("without %s what passed is a difference: %v", what, d)
				}
			}
		}
	})
	if failing == 0 || passing == 0 || lost == 0 {
		t.Errorf("of too little to tell: %d failing, %d passing, %d differences by what was forgotten", failing, passing, lost)
	}
}

// anyProfile asks some of the parts that tray asks.
func anyProfile(t *rapid.T) *HardwareProfile {
	p, _ := tray()
	asks := func(part string) bool { return rapid.Bool().Draw(t, "asks "+part) }
	if !asks("cpus") {
		p.CPUs = Range{}
	}
	if !asks("arch") {
		p.CPUArch = ""
	}
	if !asks("memory") {
		p.MemoryMB = Range{}
	}
	if !asks("gpus") {
		p.GPUs = Range{}
	} else if !asks("model") {
		p.GPUModel, p.gpuModel = "", nil
	}
	p.NICs = p.NICs[rapid.IntRange(0, 2).Draw(t, "nics"):]
	p.Disks = p.Disks[rapid.IntRange(0, 1).Draw(t, "disks"):]
	if !asks("cabling") {
		p.Cabling = CablingNone
	}
	return p
}

// anyMachine is the machine of tray with a few things otherwise.
func anyMachine(t *rapid.T) Machine {
	_, m := tray()
	for range rapid.IntRange(0, 3).Draw(t, "otherwise") {
		i := rapid.IntRange(0, 2).Draw(t, "which")
		nic := &NIC{}
		if i < len(m.NICs) {
			nic = &m.NICs[i]
		}
		switch rapid.IntRange(0, 14).Draw(t, "what") {
		case 0:
			m.CPUs = of(1)
		case 1:
			m.MemoryMB = of(1)
		case 2:
			m.GPUs = append(m.GPUs, GPU{"GB200"})
		case 3:
			m.GPUs[0].Model = "H100"
		case 4:
			m.NICs = append(m.NICs, NIC{Name: "ib9", MAC: "02:00:00:00:00:09", SpeedMbps: of(400_000), Carrier: of(true)})
		case 5:
			nic.SpeedMbps = of(1000)
		case 6:
			nic.Carrier = of(false)
		case 7:
			nic.Switch = "leaf-9"
		case 8:
			nic.Port = "swp9"
		case 9:
			m.Disks[0].SizeGB = of(1)
		case 10:
			nic.MAC = "02:00:00:00:00:02" // of another as well
		case 11:
			nic.Name = "ib0"
		case 12:
			m.Cables = append(m.Cables, Cable{MAC: "02:00:00:00:00:03", Switch: "tor-1", Port: "swp2"})
		case 13:
			m.Cables = m.Cables[:len(m.Cables)/2]
		case 14:
			all := forgets(&m)
			all[rapid.SampledFrom(slices.Sorted(keysOf(all))).Draw(t, "lacks")]()
		}
		if len(m.GPUs) == 0 || len(m.Disks) == 0 {
			break
		}
	}
	return m
}

// withFile is the shipped bundle, its tests left out, with one file more.
func withFile(t *testing.T, name, text string) (*Bundle, []Finding, error) {
	t.Helper()
	src, err := readSource(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for _, name := range src.withoutTests().paths {
		tree[name] = &fstest.MapFile{Data: src.files[name]}
	}
	if text == "" {
		delete(tree, name)
	} else {
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return Load(tree, Options{})
}

func TestAProfileIsDecoded(t *testing.T) {
	t.Parallel()
	b, _, err := withFile(t, "policies/hardware/hgx.cue", `package hardware

hardware: "hgx.h100": {
	cpus:     224
	cpu_arch: "x86_64"
	memory: {mb: 2_097_152, tolerance: 0.01}
	gpus: {count: 8, model: "H100"}
	nics: [
		{match: "^ib", count: 8, speed_mbps: 400_000},
		{match: "^eth", count: 2},
	]
	disks: [{count: 8, size_gb: 3800}, {count: 10}]
	cabling: "lldp"
}
`)
	if err != nil {
		t.Fatal(err)
	}
	p, ok := b.Hardware("hgx.h100")
	if !ok {
		t.Fatal("there is no profile")
	}
	if p.ResourceClass != "hgx.h100" || p.Pos.Short() != "policies/hardware/hgx.cue:4" || p.CPUs != (Range{224, 224}) || p.CPUArch != "x86_64" ||
		p.MemoryMB != (Range{2_076_181, 2_118_123}) || p.GPUs != (Range{8, 8}) || p.GPUModel != "H100" || p.Cabling != CablingLLDP {
		t.Errorf("%+v", p)
	}
	if len(p.NICs) != 2 || p.NICs[0].Match != "^ib" || p.NICs[0].Count != 8 || p.NICs[0].SpeedMbps != 400_000 || p.NICs[1].SpeedMbps != 0 {
		t.Errorf("%+v", p.NICs)
	}
	if !slices.Equal(p.Disks, []DiskProfile{{8, 3800}, {10, 0}}) {
		t.Errorf("%+v", p.Disks)
	}
	for _, other := range []string{"HGX.H100", "hgx", ""} {
		if _, ok := b.Hardware(other); ok {
			t.Errorf("%q has a profile", other)
		}
	}
}

// The shipped gb200 asks what an inspection through a BMC tells, no more.
func TestTheShippedHardware(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	p, ok := b.Hardware("gb200")
	if !ok {
		t.Fatal("gb200 is not described")
	}
	if d := p.Judge(Machine{CPUs: of(144), CPUArch: "aarch64", MemoryMB: of(983_040), NICs: []NIC{{MAC: "a0:88:c2:00:00:01"}}}); d != nil {
		t.Errorf("a simulated tray differs: %v", d)
	}
	if p.Cabling != CablingNone || p.GPUs.Asked() || p.MemoryMB.holds(900_000) {
		t.Errorf("%+v", p)
	}
	tags := b.ProgressTags()
	if want := []string{"dhcp-configured", "bmc-configured", "ironic-enrolled", "provisioned"}; !slices.Equal(tags.All(), want) || tags.IronicEnrolled != want[2] {
		t.Errorf("tags %+v", tags)
	}
}

// A bundle of before these policies loads; it describes no machine, tags nothing
// and leaves traits alone.
func TestABundleWithoutHardwareAndTags(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	var f facts.Facts
	var c facts.Codes
	_, described := b.Hardware("gb200")
	if rung, removes := b.CleanRemovesTrait(&f, &c); described || rung != "" || removes || b.ProgressTags().All() != nil {
		t.Errorf("described %v, removes %v by %q, tags %+v", described, removes, rung, b.ProgressTags())
	}
}

// One file of the bundle's own turns the shipped answer for one site.
func TestACleanThatRemovesTheTrait(t *testing.T) {
	t.Parallel()
	b, _, err := withFile(t, "policies/workflows/ironic_node_clean.cue", `package workflows

workflows: ironic_node_clean: {
	title:      "Ironic node clean"
	group:      "in_service"
	contention: "exclusive"
	disruptive: true
	failure_codes: ["IRONIC_UNAVAILABLE", "IRONIC_STATE_UNEXPECTED", "MAINTENANCE_FOREIGN", "IRONIC_CLEAN_FAILED"]
	#parameters: {}
}

clean_removes_trait: {
	rungs: [{name: "strict-site", #when: site: name: "fra1", then: "yes"}]
	otherwise: "no"
}
`)
	if err != nil {
		t.Fatal(err)
	}
	for site, want := range map[string]string{"fra1": "strict-site", "ams1": otherwise} {
		var f facts.Facts
		var c facts.Codes
		f.Site.Name = site
		f.Intern(&c)
		rung, removes := b.CleanRemovesTrait(&f, &c)
		if rung != want || removes != (site == "fra1") {
			t.Errorf("%s: %v by %s, not by %s", site, removes, rung, want)
		}
	}
}

// A test that expects something else fails, and one of a resource class that
// nobody describes is told: it would never run.
func TestHardwareTestsCanFail(t *testing.T) {
	t.Parallel()
	src, err := readSource(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for _, name := range src.withoutTests().paths {
		tree[name] = &fstest.MapFile{Data: src.files[name]}
	}
	const tests = "policies/hardware/hardware_tests.cue"
	tree[tests] = &fstest.MapFile{Data: []byte(`package hardware

tests: gb200: "half of it": {
	given: {cpus: 72, cpu_arch: "aarch64", memory_mb: 983040}
	differs: ["cpus mismatch"]
}
`)}
	results, err := RunTests(tree, shippedBundle(t))
	if err != nil || len(results) != 1 {
		t.Fatalf("%v, %v", results, err)
	}
	if r := results[0]; r.Passed || r.Got != `differs in ["cpus mismatch" "nics.0 incomplete"]` || r.Policy != "hardware.gb200" || r.Pos.Line != 5 {
		t.Errorf("%+v", r)
	}
	tree[tests].Data = []byte("package hardware\n\ntests: gb300: \"x\": {given: {}, differs: []}\n")
	if _, err := RunTests(tree, shippedBundle(t)); err == nil || !strings.Contains(err.Error(), `describes no resource class "gb300"`) {
		t.Errorf("%v", err)
	}
}
