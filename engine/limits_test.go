package engine

import (
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/musterhq/muster"
)

// What the policy says of caps and breakers is what the admission of jobs reads.
func TestCapsAndBreakersAreDecoded(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{}
	src, err := readSource(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range src.withoutTests().paths {
		tree[name] = &fstest.MapFile{Data: src.files[name]}
	}
	tree["policies/limits/blast.cue"] = &fstest.MapFile{Data: []byte(`package limits

limits: blast_caps: {
	tenth: {per: ["site"], share: 0.1}
	reclaim: {per: ["site", "class"], workflows: ["move_to_test_cluster"], classes: ["gpu_compute"], devices: 3}
}
limits: breakers: cleaning: {
	per: ["rack"], workflows: ["ironic_node_clean"], window: "90m", min_runs: 4, failure_share: 0.25
}
`)}
	b, _, err := Load(tree, Options{})
	if err != nil {
		t.Fatal(err)
	}
	caps, breakers := b.Limits().Caps, b.Limits().Breakers
	if len(caps) != 2 || len(breakers) != 1 {
		t.Fatalf("caps %+v, breakers %+v", caps, breakers)
	}
	reclaim, tenth, cleaning := caps[0], caps[1], breakers[0]
	if reclaim.Name != "reclaim" || !slices.Equal(reclaim.Per, []string{"site", "class"}) || !slices.Equal(reclaim.Workflows, []string{"move_to_test_cluster"}) ||
		!slices.Equal(reclaim.Classes, []string{"gpu_compute"}) || reclaim.Devices != 3 || reclaim.Share != 0 || reclaim.Pos.Line != 5 {
		t.Errorf("%+v", reclaim)
	}
	if tenth.Name != "tenth" || tenth.Devices != 0 || tenth.Share != 0.1 || tenth.Workflows != nil || tenth.Classes != nil {
		t.Errorf("%+v", tenth)
	}
	if cleaning.Name != "cleaning" || !slices.Equal(cleaning.Per, []string{"rack"}) || cleaning.Window != 90*time.Minute || cleaning.MinRuns != 4 || cleaning.FailureShare != 0.25 || cleaning.Pos.Line != 8 {
		t.Errorf("%+v", cleaning)
	}
}

// The catalogue as Go reads it: the seventeen workflows, each with what its
// contention implies, its codes known, and its policy there.
func TestTheShippedCatalogue(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	want := map[string]Contention{
		"enrollment": Exclusive, "node_unenrollment": Exclusive, "move_to_test_cluster": Exclusive, "release_to_customer_pool": Exclusive,
		"ironic_node_clean": Exclusive, "image_node": Exclusive, "unimage_node": Exclusive, "node_swap": Exclusive,
		"frontend_vrf_flip": Exclusive, "backend_vrf_flip": Exclusive, "nvlink_partition_move": Exclusive,
		"single_node_burn_in": Shared, "multi_node_pairwise": Shared, "multi_node_collective": Shared, "verify_connectivity": Shared,
		"generate_report": None, "gather_firmware_inventory": None,
	}
	if len(b.Workflows()) != len(want) {
		t.Errorf("%d workflows, want %d", len(b.Workflows()), len(want))
	}
	for _, w := range b.Workflows() {
		if w.Contention != want[w.Slug] || w.Disruptive && w.Contention != Exclusive || w.Title == "" || w.MinDevices < 1 || !b.HasPolicy(w.Slug) || !w.Pos.policy() {
			t.Errorf("%+v", w)
		}
		for _, code := range w.Failures {
			if f, ok := b.Failure(code); !ok || f.Owner == "" || f.Meaning == "" || f.Hint == "" {
				t.Errorf("%s: code %s: %+v", w.Slug, code, f)
			}
		}
		if !slices.Contains(w.Failures, "INTERNAL_ERROR") || !slices.IsSorted(w.Failures) {
			t.Errorf("%s: failures %v", w.Slug, w.Failures)
		}
	}
	swap, ok := b.Workflow("node_swap")
	if !ok || !slices.Equal(swap.Held, []string{"replacement_host_name"}) || swap.MinDevices != 1 || swap.MaxDevices != 1 {
		t.Errorf("%+v", swap)
	}
	move, ok := b.Workflow("move_to_test_cluster")
	if !ok || !slices.Equal(move.Stamped, []Stamp{{"engagement_mode", "site.engagement_mode"}, {"reclaim_instance", "ironic.instance_uuid"}}) || !move.Disruptive {
		t.Errorf("%+v", move)
	}
	if pair, ok := b.Workflow("multi_node_pairwise"); !ok || pair.MinDevices != 2 || !pair.SameResourceClass || pair.Disruptive {
		t.Errorf("%+v", pair)
	}
	if report, ok := b.Workflow("generate_report"); !ok || report.Through != "report_runs" {
		t.Errorf("%+v", report)
	}
	if _, ok := b.Workflow("enrolment"); ok {
		t.Error("a workflow that is none was found")
	}
}

// Every code that admission itself refuses with is in the catalogue of refusals.
func TestRefusalsAreCatalogued(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	known := map[string]bool{}
	for _, code := range b.RefusalCodes() {
		known[code.Code] = true
		if code.Meaning == "" || !code.Pos.policy() {
			t.Errorf("%+v", code)
		}
	}
	for _, code := range []string{CodeInventoryOnly, CodeFactsStale, CodeNoPolicy} {
		if !known[code] {
			t.Errorf("%s is not in policies/eligibility/refusals.cue", code)
		}
	}
	for slug, policy := range b.eligibility {
		for i := range policy.gates {
			if !known[policy.gates[i].code] {
				t.Errorf("eligibility.%s refuses with %s", slug, policy.gates[i].code)
			}
		}
	}
}
