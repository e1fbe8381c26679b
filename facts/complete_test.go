package facts_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/facts"
)

func TestCompleteDerives(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	context := facts.Context{
		EnrolLessee: "enrol", SlurmLessee: "slurm", MaintenanceLessee: "maint", CustomerTrait: "CUSTOM_READY",
		ValidatedRef: "node-1", Now: now,
		OverdueAfter: map[facts.ProvisionState]time.Duration{facts.ProvisionStateCleanWait: time.Hour},
	}
	cases := map[string]struct {
		given func(*facts.Facts)
		want  func(*facts.Facts)
		next  time.Time
	}{
		"nothing read": {
			given: func(*facts.Facts) {},
			want:  func(*facts.Facts) {},
		},
		"proof of another node": {
			given: func(f *facts.Facts) { f.Device.InfrastructureRef = facts.TextOf("node-2") },
			want:  func(f *facts.Facts) { f.Enrollment.Proof = facts.ProofStateMismatched },
		},
		"proof of the present node": {
			given: func(f *facts.Facts) { f.Device.InfrastructureRef = facts.TextOf("node-1") },
			want:  func(f *facts.Facts) { f.Enrollment.Proof = facts.ProofStateValid },
		},
		"no lessee is known to be none": {
			given: func(f *facts.Facts) { f.Ironic.Lessee = facts.TextOf("") },
			want:  func(f *facts.Facts) { f.Ironic.LesseeRole = facts.IronicLesseeRoleNone },
		},
		"a stranger's lease is a customer's": {
			given: func(f *facts.Facts) { f.Ironic.Lessee = facts.TextOf("acme") },
			want:  func(f *facts.Facts) { f.Ironic.LesseeRole = facts.IronicLesseeRoleCustomer },
		},
		"traits served without ours": {
			given: func(f *facts.Facts) { f.Ironic.Traits = []string{} },
			want:  func(f *facts.Facts) { f.Ironic.CustomerTrait = facts.False },
		},
		"a lock keeps a stable state unsettled": {
			given: func(f *facts.Facts) {
				f.Ironic.ProvisionState = facts.ProvisionStateActive
				f.Ironic.Reservation = facts.TextOf("conductor-1")
			},
			want: func(f *facts.Facts) { f.Ironic.Settled, f.Ironic.Overdue = facts.False, facts.False },
		},
		"a passing state is looked at again when it will be overdue": {
			given: func(f *facts.Facts) {
				f.Ironic.ProvisionState = facts.ProvisionStateCleanWait
				f.Ironic.ProvisionUpdatedAt = now.Add(-10 * time.Minute)
			},
			want: func(f *facts.Facts) { f.Ironic.Overdue = facts.False },
			next: now.Add(50 * time.Minute),
		},
		"a passing state past its time": {
			given: func(f *facts.Facts) {
				f.Ironic.ProvisionState = facts.ProvisionStateCleanWait
				f.Ironic.ProvisionUpdatedAt = now.Add(-time.Hour)
			},
			want: func(f *facts.Facts) { f.Ironic.Overdue = facts.True },
		},
		"draining is not drained": {
			given: func(f *facts.Facts) {
				f.Slurm.Listed, f.Slurm.States = facts.True, facts.SlurmAllocated|facts.SlurmDrain
			},
			want: func(f *facts.Facts) { f.Slurm.Drained = facts.False },
		},
		"jobs that complete are work": {
			given: func(f *facts.Facts) {
				f.Slurm.Listed, f.Slurm.States = facts.True, facts.SlurmIdle|facts.SlurmDrain|facts.SlurmCompleting
			},
			want: func(f *facts.Facts) { f.Slurm.Drained = facts.False },
		},
		"drained": {
			given: func(f *facts.Facts) { f.Slurm.Listed, f.Slurm.States = facts.True, facts.SlurmIdle|facts.SlurmDrain },
			want:  func(f *facts.Facts) { f.Slurm.Drained = facts.True },
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got, want facts.Facts
			want.Enrollment.Proof = facts.ProofStateMissing
			c.given(&got)
			c.given(&want)
			c.want(&want)
			next := facts.Complete(&got, &context)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("facts (-want +got):\n%s", diff)
			}
			if !next.Equal(c.next) {
				t.Errorf("next change at %v, want %v", next, c.next)
			}
		})
	}
}

func TestEveryFieldSurvivesJSON(t *testing.T) {
	t.Parallel()
	const body = `{"ironic":{"listed":true,"name":"n1","provision_state":"clean wait","unmodelled":true,"maintenance":false,` +
		`"instance_uuid":"","lessee_role":"slurm","traits":[],"unreadable":{"fault":"DecodeFailed"}},` +
		`"slurm":{"listed":false,"states":["IDLE","DRAIN"]},"bmc":{"failures":3,"chassis_health":"Warning"}}`
	var f facts.Facts
	if err := json.Unmarshal([]byte(body), &f); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(body, string(again)); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestAValueOutsideTheClosedSetIsRefused(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"provision state": `{"ironic":{"provision_state":"firmware hold"}}`,
		"slurm token":     `{"slurm":{"states":["DRAINED"]}}`,
		"bool as text":    `{"ironic":{"maintenance":"true"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f facts.Facts
			if err := json.Unmarshal([]byte(body), &f); err == nil {
				t.Errorf("%s was accepted", body)
			}
		})
	}
}

func TestInternPutsEveryCodeInItsPlace(t *testing.T) {
	t.Parallel()
	var f facts.Facts
	f.Ironic.Maintenance = facts.True
	f.Ironic.ProvisionState = facts.ProvisionStateCleanFailed
	f.Slurm.States = facts.SlurmDrain
	f.Site.TraitBased = true
	var c facts.Codes
	f.Intern(&c)
	for path, want := range map[string]string{
		"ironic.maintenance": "true", "ironic.provision_state": `"clean failed"`, "slurm.states.DRAIN": "true",
		"slurm.states.IDLE": "false", "site.trait_based": "true", "site.has_slurm": "false", "ironic.listed": "null",
	} {
		field, ok := facts.FieldOf(path)
		if !ok {
			t.Fatalf("no field %s", path)
		}
		got := "null"
		if code := c[field.At]; code > 0 {
			got = field.Values[code-1]
		}
		if got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
}

func BenchmarkIntern(b *testing.B) {
	var f facts.Facts
	var c facts.Codes
	b.ReportAllocs()
	for b.Loop() {
		f.Intern(&c)
	}
}
