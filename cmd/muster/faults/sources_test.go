package faults

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/simulator/faultproxy"
)

func TestNoFaultOfIronicChangesADevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "ironic", 1)
	r.tryAll(t, "ironic", append(of("ironic", "ironic", map[string]told{
		"an empty listing": withholds, "pages that lead to themselves": fails, // what is seen first may be the last page, which ends the listing
	}), fault{
		name: "tokens are refused, and Keystone gives no others", want: fails, sweeps: 2,
		rules: []faultproxy.Rule{{Kind: faultproxy.Status, Face: "ironic", Code: 401}, {Kind: faultproxy.Status, Face: "keystone", Code: 503}},
	}, fault{
		name: "Keystone's clock is nine hours behind", want: nothing, sweeps: 2,
		rules: []faultproxy.Rule{{Kind: faultproxy.Status, Face: "ironic", Code: 401, Times: 1}, {Kind: faultproxy.Skew, Face: "keystone", For: -9 * forEver}},
	}))
}

func TestNoFaultOfPlacementChangesADevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "placement", 1)
	r.tryAll(t, "placement", onePage(of("placement", "placement", nil)))
}

func TestNoFaultOfSLURMChangesADevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "slurm", 1)
	faults := onePage(of("slurm", "slurm", map[string]told{"an answer in drops": nothing}))
	shorten(faults)
	r.tryAll(t, "slurm", faults)
}

func TestNoFaultOfNetBoxChangesADevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "netbox", 1)
	r.tryAll(t, "netbox", of("netbox", "netbox", map[string]told{
		"an empty listing": withholds, "the first page again and again": fails, "pages that lead to themselves": fails,
		"what the first page has on every page": fails,
	}))
}

// What a BMC answers is an answer, whatever it is, and a round fails only where
// most of the BMCs are silent. A refused login is not tried for ever: that is a
// test of its own.
func TestNoFaultOfBMCsChangesADevice(t *testing.T) {
	t.Parallel()
	r := newReplica(t, "bmc", 2)
	faults := of("bmc", "redfish", map[string]told{
		"too many requests": either, "unavailable": either, "half an answer": either, "a login page": either, "an answer in drops": nothing,
	})
	shorten(faults)
	faults = slices.DeleteFunc(faults, func(f fault) bool { return f.name == "forbidden" })
	for i := range faults {
		if faults[i].name == "an empty listing" { // of parts a machine may have none
			faults[i].rules = []faultproxy.Rule{
				{Kind: faultproxy.Empty, Face: "redfish", Path: "/Systems$"}, {Kind: faultproxy.Empty, Face: "redfish", Path: "/v1/Chassis$"},
			}
		}
	}
	r.tryAll(t, "bmc", faults)
}

// onePage leaves out what is wrong with further pages, where listings have one.
func onePage(faults []fault) []fault {
	return slices.DeleteFunc(faults, func(f fault) bool {
		return slices.ContainsFunc(f.rules, func(r faultproxy.Rule) bool {
			return r.Kind == faultproxy.Duplicate || r.Kind == faultproxy.Repeat || r.Kind == faultproxy.Loop
		})
	})
}

// shorten makes an end of what would last for ever, for sources that muster gives
// more time than a test has: then the connection is cut, or the answer there.
func shorten(faults []fault) {
	for i := range faults {
		for k := range faults[i].rules {
			if faults[i].rules[k].For == forEver {
				faults[i].rules[k].For = 2 * quick
			}
		}
	}
}
