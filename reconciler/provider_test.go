package reconciler

import (
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// provider is what Placement says of a node: Nova names its provider as the uuid.
func provider(node string, allocated facts.Bool) sources.Record {
	return sources.Record{Ref: node, Name: node, Placement: &facts.Placement{ProviderExists: facts.True, Allocated: allocated}}
}

// placementWorld is a site whose Placement is scripted.
func placementWorld(t *testing.T) *world {
	return newWorld(t, func(s *fleet.SiteSpec) {
		s.PlacementEnabled = true
		s.Sources.Recorded["placement"] = "x"
	})
}

func TestAProviderIsTheDeviceOfItsNode(t *testing.T) {
	w := placementWorld(t)
	w.ironic().says(node("u1", "n1"), node("u2", "n2"), node("u3", "n3"))
	w.sweep("ironic")
	w.wantCondition("n1", "InstanceAllocated", "") // nobody has read Placement yet
	w.wantStatus("n1", "quarantine")

	hypervisor := provider("c0ffee", facts.True)
	hypervisor.Name = "n3" // a hypervisor's name says nothing
	w.source("placement").says(provider("u1", facts.False), provider("u2", facts.True), hypervisor)
	w.sweep("placement")
	w.wantCondition("n1", "InstanceAllocated", "False NotAllocated")
	w.wantStatus("n1", "available")
	w.wantCondition("n2", "InstanceAllocated", "True PlacementAllocated")
	w.wantStatus("n2", "in_use")
	// A complete listing without a provider says that nothing is allocated.
	w.wantCondition("n3", "InstanceAllocated", "False NotAllocated")
	w.wantCount(1, "select count(*) from facts where source = 'placement' and body ->> 'provider_exists' = 'false'")
	w.wantFindings("placement")

	w.source("placement").says(provider("u1", facts.True), provider("u2", facts.False), provider("u3", facts.True))
	w.sweep("placement")
	for name, want := range map[string]string{"n1": "in_use", "n2": "available", "n3": "in_use"} {
		w.wantStatus(name, want)
	}
}

func TestAProviderThatGoesAndComesBack(t *testing.T) {
	w := placementWorld(t)
	w.ironic().says(node("u1", "n1"), node("u2", "n2"))
	w.source("placement").says(provider("u1", facts.True), provider("u2", facts.True))
	w.sweep("ironic", "placement")
	w.source("placement").says(provider("u1", facts.True))
	w.sweep("placement")
	w.wantCondition("n2", "InstanceAllocated", "False NotAllocated")
	w.source("placement").says(provider("u1", facts.True), provider("u2", facts.True))
	w.sweep("placement")
	w.wantCondition("n2", "InstanceAllocated", "True PlacementAllocated")
	w.wantFindings("placement")
}

// A machine that is enrolled anew has another node: the provider of the old one,
// which Nova leaves behind for a while, is not its own.
func TestTheProviderOfAnotherNodeIsLetGo(t *testing.T) {
	w := placementWorld(t)
	w.ironic().says(node("u1", "n1", serial("S1")))
	w.source("placement").says(provider("u1", facts.True))
	w.sweep("ironic", "placement")
	w.wantStatus("n1", "in_use")
	w.ironic().says(node("u2", "n1", serial("S1")))
	w.sweep("ironic", "placement")
	w.wantCondition("n1", "InstanceAllocated", "False NotAllocated")
	w.sweep("placement") // the old provider is still listed
	w.wantCondition("n1", "InstanceAllocated", "False NotAllocated")
	w.source("placement").says(provider("u1", facts.False), provider("u2", facts.True))
	w.sweep("placement")
	w.wantCondition("n1", "InstanceAllocated", "True PlacementAllocated")
	w.wantCount(1, "select count(*) from facts where source = 'placement' and ref = 'u2' and not ref_gone")
}

// What joins by Ironic's node waits for Ironic, not for its own interval.
func TestANewNodeAsksForPlacement(t *testing.T) {
	w := placementWorld(t)
	w.ironic().says(node("u1", "n1", serial("S1")))
	w.sweep("ironic")
	w.ironic().says(node("u2", "n1", serial("S1")))
	w.sweep("ironic")
	w.wantCount(1, "select count(*) from sweeps where source = 'placement' and due_at <= clock_timestamp()")
}
