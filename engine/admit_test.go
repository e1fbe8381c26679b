package engine

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

func quarantined() *facts.Facts {
	f := &facts.Facts{}
	f.Device.DeviceClass, f.Device.OperationalStatus = facts.DeviceClassGpuCompute, facts.OperationalStatusQuarantine
	f.Ironic.ProvisionState = facts.ProvisionStateAvailable
	return f
}

func TestAdmitTellsEveryGate(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	custody, _ := b.Type("Custody")
	failed, _ := b.Type("Failed")
	held := Masks{True: 1 << custody.Bit, Present: 1 << custody.Bit}
	plain := map[string]any{"force": false}
	tests := map[string]struct {
		request func(r *AdmitRequest)
		want    []Refusal // Message, Path, Actual and Expected only where they are set
	}{
		"a device that passes": {func(*AdmitRequest) {}, nil},
		"a latch that is set": {
			func(r *AdmitRequest) { r.Conditions = held },
			[]Refusal{{Code: "custody", ConditionType: "Custody", Path: "conditions.Custody", Actual: "True", Expected: `"False"`}},
		},
		"a wrong status, quoted": {
			func(r *AdmitRequest) { r.Facts.Device.OperationalStatus = facts.OperationalStatusAvailable },
			[]Refusal{{Code: "not_quarantined", Message: "the device is available", Path: "device.operational_status", Actual: "available", Expected: `"quarantine"`}},
		},
		"the alternative that came nearest": {
			func(r *AdmitRequest) { r.Facts.Ironic.ProvisionState = facts.ProvisionStateActive },
			[]Refusal{{Code: "instance", Message: "Ironic says active", Path: "ironic.maintenance", Actual: "null", Expected: "true"}},
		},
		"an exemption": {
			func(r *AdmitRequest) {
				r.Facts.Ironic.ProvisionState, r.Facts.Device.DeviceClass = 0, facts.DeviceClassSwitch
			},
			nil,
		},
		"parameters within their bounds": {
			func(r *AdmitRequest) {
				r.Parameters = map[string]any{"force": true, "depth": 2, "note": "ok then"}
			},
			nil,
		},
		"a parameter past its bound": {
			func(r *AdmitRequest) { r.Parameters = map[string]any{"force": true, "depth": float64(3)} },
			[]Refusal{{Code: "too_deep", Path: "parameters.depth", Actual: "3", Expected: ">=1 & <3"}},
		},
		"a stale source, and only where its gate applies": {
			func(r *AdmitRequest) { r.StaleSources = []string{"ironic"} },
			[]Refusal{{Code: CodeFactsStale, Name: "instance", Path: "ironic.provision_state"}},
		},
		"a stale source that no gate asks": {
			func(r *AdmitRequest) { r.StaleSources, r.StaleTypes = []string{"slurm"}, 1<<failed.Bit },
			nil,
		},
		"a stale condition": {
			func(r *AdmitRequest) { r.StaleTypes = 1 << custody.Bit },
			[]Refusal{{Code: CodeFactsStale, Name: "custody", ConditionType: "Custody", Path: "conditions.Custody"}},
		},
		"a device for inventory only": {
			func(r *AdmitRequest) { r.Facts.Device.InventoryOnly, r.Conditions = true, held },
			[]Refusal{{Code: CodeInventoryOnly, Path: "device.inventory_only", Actual: "true", Expected: "false"}},
		},
		"several at once, in the order of the policy": {
			func(r *AdmitRequest) {
				r.Conditions, r.Facts.Device.OperationalStatus, r.Facts.Ironic.ProvisionState = held, facts.OperationalStatusAvailable, 0
			},
			[]Refusal{{Code: "not_quarantined"}, {Code: "custody"}, {Code: "instance"}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &AdmitRequest{Facts: quarantined(), Parameters: plain}
			test.request(r)
			got := b.Admit("release", r)
			if len(got) != len(test.want) {
				t.Fatalf("got %+v, want %+v", got, test.want)
			}
			for i, want := range test.want {
				g := got[i]
				if g.Code != want.Code || want.Name != "" && g.Name != want.Name || want.Message != "" && g.Message != want.Message ||
					want.Path != "" && (g.Path != want.Path || g.ConditionType != want.ConditionType) ||
					want.Expected != "" && (g.Actual != want.Actual || g.Expected != want.Expected) {
					t.Errorf("got %+v, want %+v", g, want)
				}
				if g.Pos.File != "policies/eligibility/eligibility.cue" || g.Pos.Line == 0 || g.Message == "" {
					t.Errorf("no place or message: %+v", g)
				}
			}
		})
	}
}

func TestAdmitRefusesWhatNoPolicyKnows(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	if got := b.Admit("no_such_workflow", &AdmitRequest{Facts: quarantined()}); len(got) != 1 || got[0].Code != CodeNoPolicy || b.HasPolicy("no_such_workflow") {
		t.Errorf("got %+v", got)
	}
}

// The trace of an admission refuses by the same gates as Admit, over random
// devices and every shipped policy; a device never gains by a condition or a
// fact that turns unknown.
func TestAdmissionTraceAgreesAndUnknownNeverGains(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	rapid.Check(t, func(t *rapid.T) {
		r := &AdmitRequest{Facts: randomDevice(t), Conditions: randomMasks(t), Parameters: map[string]any{
			"force_reclaim": rapid.Bool().Draw(t, "reclaim"), "cordon_only": rapid.Bool().Draw(t, "cordon"), "release_to_customer_pool": rapid.Bool().Draw(t, "pool"),
			"include_in_band": rapid.Bool().Draw(t, "in band"), "direction": rapid.SampledFrom([]string{"isolate", "return", "handover"}).Draw(t, "direction"),
		}}
		if rapid.Bool().Draw(t, "stale") {
			r.StaleSources = []string{rapid.SampledFrom(sourceFamilies).Draw(t, "source")}
		}
		if rapid.Bool().Draw(t, "stale types") {
			r.StaleTypes = rapid.Uint64().Draw(t, "types")
		}
		for _, slug := range b.Policies() {
			refused := b.Admit(slug, r)
			var traced []Refusal
			for _, g := range b.ExplainAdmission(slug, r) {
				if g.Refusal != nil {
					traced = append(traced, *g.Refusal)
				}
				if g.Passed != (g.Refusal == nil) {
					t.Fatalf("%s: gate %s passed %v with %+v", slug, g.Name, g.Passed, g.Refusal)
				}
			}
			if !slices.Equal(refused, traced) {
				t.Fatalf("%s: refused %+v, traced %+v", slug, refused, traced)
			}
			if ready := b.Admission(slug, r.Parameters).Admit(r); !slices.Equal(refused, ready) {
				t.Fatalf("%s: refused %+v, by the policy made ready %+v", slug, refused, ready)
			}
			unknown := *r
			bit := uint64(1) << rapid.IntRange(0, 63).Draw(t, "bit")
			unknown.Conditions = Masks{True: r.Conditions.True &^ bit, Unknown: r.Conditions.Unknown | bit, Present: r.Conditions.Present | bit}
			if worse := b.Admit(slug, &unknown); len(refused) > 0 && len(worse) == 0 {
				t.Fatalf("%s: admitted when a condition turned Unknown; refused before: %+v", slug, refused)
			}
			null := *r
			f := *r.Facts
			null.Facts = &f
			switch rapid.IntRange(0, 11).Draw(t, "null") {
			case 0:
				f.Ironic.InstanceBound = facts.Null
			case 1:
				f.Ironic.ProvisionState = 0
			case 2:
				f.Ironic.LesseeRole = 0
			case 3:
				f.Ironic.OurMark = facts.Null
			case 4:
				f.Device.InfrastructureRef = facts.Text{}
			case 5:
				f.Ironic.CustomerTrait = facts.Null
			case 6:
				f.Ironic.Maintenance = facts.Null
			case 7:
				f.Ironic.MaintenanceReason = facts.Text{}
			case 8:
				f.Ironic.Fault = facts.Text{}
			case 9:
				f.Ironic.Listed = facts.Null
			case 10:
				f.Slurm.Listed = facts.Null
			case 11:
				f.Device.ResourceClass = facts.Text{}
			}
			if worse := b.Admit(slug, &null); len(refused) > 0 && len(worse) == 0 {
				t.Fatalf("%s: admitted when a fact turned null; refused before: %+v", slug, refused)
			}
		}
	})
}

// What is stale closes the gates that rest on it and apply, and no other: a
// node can be taken from the customers' pool while Ironic is silent.
func TestStaleFactsCloseOnlyWhatRestsOnThem(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	node := func() *facts.Facts {
		f := &facts.Facts{}
		f.Device.DeviceClass, f.Device.InventoryStatus = facts.DeviceClassGpuCompute, facts.InventoryStatusActive
		f.Device.OperationalStatus, f.Device.InfrastructureRef = facts.OperationalStatusValidation, facts.TextOf("n1")
		f.Enrollment.Proof, f.Site.EngagementMode, f.Site.TraitBased = facts.ProofStateValid, facts.EngagementModeFullyManaged, true
		f.Site.HasImaging = true
		f.Ironic.ProvisionState, f.Ironic.InstanceBound, f.Ironic.LesseeRole = facts.ProvisionStateActive, facts.True, facts.IronicLesseeRoleSlurm
		f.Slurm.Listed = facts.True
		return f
	}
	for name, tt := range map[string]struct {
		workflow   string
		parameters map[string]any
		stale      []string
		want       []string // "code at file", of every refusal
	}{
		"a move asks Ironic for the instance": {
			"move_to_test_cluster", map[string]any{"force_reclaim": false, "cordon_only": false}, []string{"ironic"},
			[]string{"facts_stale instance_present policies/eligibility/move_to_test_cluster.cue"},
		},
		"a cordon does not":    {"move_to_test_cluster", map[string]any{"force_reclaim": false, "cordon_only": true}, []string{"ironic"}, nil},
		"a move asks no SLURM": {"move_to_test_cluster", map[string]any{"force_reclaim": false, "cordon_only": false}, []string{"slurm"}, nil},
		"a test needs both gates": {"single_node_burn_in", nil, []string{"slurm"}, []string{
			"facts_stale slurm_node_not_listed policies/eligibility/single_node_burn_in.cue", "facts_stale slurm_node_down policies/eligibility/single_node_burn_in.cue",
		}},
		"and Ironic's two": {"single_node_burn_in", nil, []string{"ironic"}, []string{
			"facts_stale ironic_state_not_allowed policies/eligibility/single_node_burn_in.cue", "facts_stale instance_missing policies/eligibility/single_node_burn_in.cue",
		}},
		"a release to customers rests on none of it": {"release_to_customer_pool", map[string]any{"release_to_customer_pool": true}, []string{"ironic", "slurm", "placement", "netbox"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &AdmitRequest{Facts: node(), Parameters: tt.parameters}
			if fresh := b.Admit(tt.workflow, r); len(fresh) > 0 {
				t.Fatalf("refused when all is fresh: %+v", fresh)
			}
			r.StaleSources = tt.stale
			var got []string
			for _, refusal := range b.Admit(tt.workflow, r) {
				got = append(got, refusal.Code+" "+refusal.Name+" "+refusal.Pos.File)
				if refusal.Pos.Line == 0 || refusal.Path == "" {
					t.Errorf("no place or path: %+v", refusal)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

// A refusal over a disqualifying condition says what the policy asks, not how the
// schema spells it: "False", whichever of the two gates refuses.
func TestDisqualifyingConditionsAreExpectedFalse(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	for _, slug := range []string{"image_node", "unimage_node", "enrollment"} {
		for value, code := range map[string]string{"True": "condition_disqualifier_asserted", "Unknown": "condition_disqualifier_unproven"} {
			conditions := Masks{True: ^uint64(0), Present: ^uint64(0)}
			if value == "Unknown" {
				conditions = Masks{Unknown: ^uint64(0), Present: ^uint64(0)}
			}
			r := &AdmitRequest{Facts: quarantined(), Conditions: conditions}
			refused := b.Admit(slug, r)
			i := slices.IndexFunc(refused, func(f Refusal) bool { return f.Code == code })
			if i < 0 || refused[i].Expected != `"False"` || refused[i].Actual != value {
				t.Errorf("%s of a device with %s: %+v", slug, value, refused)
			}
			for _, g := range b.ExplainAdmission(slug, r) {
				for _, test := range g.Require {
					if strings.HasPrefix(test.Path, "conditions.") && strings.Contains(test.Want, "#") {
						t.Errorf("%s: the trace of gate %s wants %s", slug, g.Name, test.Want)
					}
				}
			}
		}
	}
}
