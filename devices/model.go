package devices

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// model is what the judgement needs of a bundle in the form it needs it.
type model struct {
	bundle      *engine.Bundle
	limits      engine.Limits
	writers     []engine.Writer
	policies    []fleet.TypePolicy
	known       uint64 // bits of the bundle's types; the others are of other bundles and stay as they are
	operational uint64 // types that feed the operational status
	durable     uint64
	chassis     uint64 // types whose emission reads the chassis' health
	maintenance uint64 // types whose emission reads Ironic's maintenance flag

	quotesDevices bool // health, freeze or customer-ready test a text of the device, such as its name
}

func newModel(b *engine.Bundle) *model {
	m := &model{bundle: b, limits: b.Limits(), writers: b.Writers()}
	for i := range b.Catalogue() {
		t := &b.Catalogue()[i]
		bit := uint64(1) << t.Bit
		m.known |= bit
		if t.Feeds == "operational" {
			m.operational |= bit
		}
		if t.Durable {
			m.durable |= bit
		}
		if readsFact(b, t, "bmc.chassis_health") {
			m.chassis |= bit
		}
		if readsFact(b, t, "ironic.maintenance") {
			m.maintenance |= bit
		}
		m.policies = append(m.policies, fleet.TypePolicy{
			Name: t.Name, Bit: t.Bit, Sources: m.sourcesOf(t), Hold: t.HoldLimit, Durable: t.Durable, Emitted: t.Observed,
		})
	}
	var nothing facts.Facts
	for _, trace := range []engine.Trace{b.ExplainHealth(&nothing), b.ExplainFreeze(&nothing), b.ExplainCustomerReady(&nothing)} {
		m.quotesDevices = m.quotesDevices || testsText(&trace)
	}
	return m
}

// testsText tells whether a rung of a ladder tests a text of the device.
func testsText(t *engine.Trace) bool {
	return slices.ContainsFunc(t.Steps, func(step engine.Step) bool {
		return slices.ContainsFunc(step.Tests, func(test engine.FieldTest) bool {
			field, ok := facts.FieldOf(test.Path)
			return ok && field.Kind == facts.KindText && field.Family() == "device"
		})
	})
}

func readsFact(b *engine.Bundle, t *engine.ConditionType, path string) bool {
	if t.Emission == nil {
		return false
	}
	for rung := range t.Emission.Rungs {
		if slices.Contains(b.RungTests(t.Bit, int16(rung)), path) {
			return true
		}
	}
	return false
}

// sourcesOf gives what a type's age is judged by: the sources that its emission
// reads; of one without an emission, those of its writer.
func (m *model) sourcesOf(t *engine.ConditionType) []string {
	if t.Observed || len(t.Writers) == 0 {
		return t.Sources
	}
	if i := m.bundle.WriterIndex(t.Writers[0]); i >= 0 {
		return m.writers[i].Sources
	}
	return nil
}

// Paces gives how often each source of a site is read and how old its facts may
// be: the bundle's, or what the site says for itself.
func Paces(b *engine.Bundle, spec *fleet.SiteSpec) map[string]engine.Pace {
	paces := maps.Clone(b.Limits().Sources)
	own := map[string]time.Duration{}
	if s := spec.Sources.Ironic; s != nil {
		own["ironic"], own["placement"] = time.Duration(s.Interval), time.Duration(s.Interval)
	}
	if s := spec.Sources.Placement; s != nil {
		own["placement"] = time.Duration(s.Interval)
	}
	if s := spec.Sources.NetBox; s != nil {
		own["netbox"] = time.Duration(s.Interval)
	}
	if s := spec.Sources.Slurm; s != nil {
		own["slurm"] = time.Duration(s.Interval)
	}
	if s := spec.Sources.BMC; s != nil {
		own["bmc"] = time.Duration(s.Interval)
	}
	for source, interval := range own {
		if interval > 0 {
			paces[source] = engine.Pace{Interval: interval, TTL: 3 * interval}
		}
	}
	return paces
}

func ttls(paces map[string]engine.Pace) map[string]time.Duration {
	ttl := make(map[string]time.Duration, len(paces))
	for source, pace := range paces {
		ttl[source] = pace.TTL
	}
	return ttl
}
