package engine

import (
	"math"
	"regexp"

	"cuelang.org/go/cue"
)

// HardwareProfile is what the enrolment expects of a machine of a resource class.
// Its zero parts are not asked.
type HardwareProfile struct {
	ResourceClass string
	Pos           Pos

	CPUs     Range // logical ones
	CPUArch  string
	MemoryMB Range
	GPUs     Range
	GPUModel string // a regular expression, "" for any
	NICs     []NICProfile
	Disks    []DiskProfile
	Cabling  string // none or lldp

	gpuModel *regexp.Regexp
}

// Range bounds a number, its ends included. Zero asks nothing.
type Range struct{ Min, Max int }

// Asked reports whether the range bounds anything.
func (r Range) Asked() bool { return r != Range{} }

func (r Range) holds(n int) bool { return r.Min <= n && n <= r.Max }

// NICProfile asks for at least Count network interfaces that are named so and
// have a link of SpeedMbps or more.
type NICProfile struct {
	Match     string // a regular expression, "" for any name
	Count     int
	SpeedMbps int // 0: no link is asked

	match *regexp.Regexp
}

// DiskProfile asks for at least Count disks of SizeGB (10⁹ bytes) or more.
type DiskProfile struct {
	Count  int
	SizeGB int // 0: of any size
}

// The ways to look at cables.
const (
	CablingNone = "none"
	CablingLLDP = "lldp"
)

// Hardware finds what is expected of a machine of a resource class, which is told
// apart by case. The caller may not change it.
func (b *Bundle) Hardware(resourceClass string) (*HardwareProfile, bool) {
	p, ok := b.hardware[resourceClass]
	return p, ok
}

// ProgressTags are the slugs of the tags that show in NetBox how far the
// enrolment of a device came: one a device, none before the first stage. "" tags
// nothing at that stage.
type ProgressTags struct {
	DHCPConfigured string
	BMCConfigured  string
	IronicEnrolled string
	Provisioned    string
}

// All lists the tags that there are in the order of stages: those of the other
// stages come off when one is set, all of them when a device is unenrolled.
func (t ProgressTags) All() []string {
	var all []string
	for _, slug := range []string{t.DHCPConfigured, t.BMCConfigured, t.IronicEnrolled, t.Provisioned} {
		if slug != "" {
			all = append(all, slug)
		}
	}
	return all
}

// ProgressTags gives the tags of policies/inventory.
func (b *Bundle) ProgressTags() ProgressTags { return b.progressTags }

// hardware reads the profiles of policies/hardware. A bundle of before they came
// has none.
func (c *compiler) hardware(b *Bundle, values packages) {
	v := values["policies/hardware"].LookupPath(cue.ParsePath("hardware"))
	if !v.Exists() {
		return
	}
	c.each(v, "hardware", func(class string, entry cue.Value) { b.hardware[class] = c.profile(class, entry) })
}

func (c *compiler) profile(class string, v cue.Value) *HardwareProfile {
	gpus, memory := v.LookupPath(cue.ParsePath("gpus")), v.LookupPath(cue.ParsePath("memory"))
	p := &HardwareProfile{
		ResourceClass: class, Pos: firstField(v), CPUs: exactly(c.count(v, "cpus")), CPUArch: textOf(v, "cpu_arch"),
		GPUs: exactly(c.count(gpus, "count")), GPUModel: textOf(gpus, "model"), Cabling: textOf(v, "cabling"),
	}
	if p.Cabling == "" {
		p.Cabling = CablingNone
	}
	if mb := c.count(memory, "mb"); mb > 0 {
		share, _ := memory.LookupPath(cue.ParsePath("tolerance")).Default()
		tolerance, err := share.Float64()
		if err != nil {
			c.fail(c.posOf(memory), "hardware.%s.memory.tolerance: %s", class, brief(err))
		}
		p.MemoryMB = Range{int(math.Ceil(float64(mb) * (1 - tolerance))), int(math.Floor(float64(mb) * (1 + tolerance)))}
	}
	p.gpuModel = c.expression(gpus, "model")
	c.elements(v, "nics", func(nics cue.Value) {
		p.NICs = append(p.NICs, NICProfile{textOf(nics, "match"), c.count(nics, "count"), c.count(nics, "speed_mbps"), c.expression(nics, "match")})
	})
	c.elements(v, "disks", func(disks cue.Value) {
		p.Disks = append(p.Disks, DiskProfile{c.count(disks, "count"), c.count(disks, "size_gb")})
	})
	return p
}

func exactly(n int) Range { return Range{n, n} }

// firstField is where the first field of a struct is written in a policy.
func firstField(v cue.Value) Pos {
	var first Pos
	fields, err := v.Fields()
	for err == nil && fields.Next() {
		at := writtenAt(fields.Value())
		if at.policy() && (first.File == "" || at.File == first.File && at.Line < first.Line) {
			first = at
		}
	}
	return first
}

// elements calls f on the elements of a list, if it is there.
func (c *compiler) elements(v cue.Value, field string, f func(cue.Value)) {
	list, err := v.LookupPath(cue.MakePath(cue.Str(field))).List()
	for err == nil && list.Next() {
		f(list.Value())
	}
}

// expression compiles a regular expression, nil where there is none.
func (c *compiler) expression(v cue.Value, field string) *regexp.Regexp {
	text := textOf(v, field)
	if text == "" {
		return nil
	}
	at := v.LookupPath(cue.MakePath(cue.Str(field)))
	expression, err := regexp.Compile(text)
	switch {
	case err != nil:
		c.fail(writtenAt(at), "%v", err)
	case expression.MatchString(""):
		c.warn(writtenAt(at), "%q matches every name: leave %s out, or write what tells a name from another", text, field)
	}
	return expression
}

// progress reads the tags of policies/inventory, none where the bundle says none.
func (c *compiler) progress(b *Bundle, values packages) {
	v := values["policies/inventory"].LookupPath(cue.ParsePath("progress"))
	if !v.Exists() {
		return
	}
	b.progressTags = ProgressTags{textOf(v, "dhcp_configured"), textOf(v, "bmc_configured"), textOf(v, "ironic_enrolled"), textOf(v, "provisioned")}
	stages := map[string]string{}
	for _, tag := range entriesOf(values["policies/inventory"], "progress") {
		slug, _ := tag.value.String()
		if before, twice := stages[slug]; twice && slug != "" {
			c.warn(writtenAt(tag.value), "progress.%s: the tag %s is that of %s too: nobody can tell the stages apart", tag.name, slug, before)
		}
		stages[slug] = tag.name
	}
}

// clean compiles what decides of the trait of a node that is cleaned. A bundle of
// before it leaves the trait alone.
func (c *compiler) clean(b *Bundle, values packages) {
	v := values["policies/workflows"].LookupPath(cue.ParsePath("clean_removes_trait"))
	if !v.Exists() {
		return
	}
	b.cleanTrait = c.ladderOf(v, "clean_removes_trait", func(_ int, then cue.Value) { b.cleanTraitYes = append(b.cleanTraitYes, wordOf(then) == "yes") })
}
