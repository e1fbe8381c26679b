package devices_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

var enroller = devices.Caller{Name: "worker", Remote: "192.0.2.9", Job: 7}

func (w *world) proof(id int64) fleet.Proof {
	p := w.device(id).Proof
	p.ValidatedAt = time.Time{}
	return p
}

func (w *world) setProof(id int64, source, ref string) {
	w.t.Helper()
	w.exec("update devices set enrollment_validated_ref = $2, enrollment_proof_source = $3, enrollment_validated_at = case when $3 = 'none' then null else now() end where id = $1", id, ref, source)
}

func TestTheEndOfAnEnrolmentIsProofOfOneNodeAndRevokesNoOther(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	id := w.bearFromFile("n1")
	w.apply("ironic", joins(w.say("u1", node(ready)), id))
	w.finish("ironic", "slurm")
	none, of := fleet.Proof{Source: "none"}, func(source, ref string) fleet.Proof { return fleet.Proof{Source: source, ValidatedRef: ref} }
	for name, c := range map[string]struct {
		before    fleet.Proof
		carries   string // the device's node at the time of the write
		succeeded bool
		ref       string
		outcome   devices.ProofOutcome
		want      fleet.Proof
	}{
		"success proves the node":                            {none, "u1", true, "u1", devices.ProofEstablished, of("enrolled", "u1")},
		"success over an older proof":                        {of("legacy", "u0"), "u1", true, "u1", devices.ProofEstablished, of("enrolled", "u1")},
		"success before the node is joined":                  {none, "", true, "u1", devices.ProofEstablished, of("enrolled", "u1")},
		"success of a node that was replaced":                {none, "u1", true, "u0", devices.ProofSuperseded, none},
		"success of a replaced node keeps the other's proof": {of("enrolled", "u1"), "u1", true, "u0", devices.ProofSuperseded, of("enrolled", "u1")},
		"failure without any proof":                          {none, "u1", false, "u1", devices.ProofKept, none},
		"failure keeps a matching enrolled proof":            {of("enrolled", "u1"), "u1", false, "u1", devices.ProofKept, of("enrolled", "u1")},
		"failure keeps a matching legacy proof":              {of("legacy", "u1"), "u1", false, "u1", devices.ProofKept, of("legacy", "u1")},
		"failure clears what is left of another node":        {of("enrolled", "u0"), "u1", false, "u1", devices.ProofCleared, none},
		"failure of a node that was replaced":                {of("enrolled", "u0"), "u1", false, "u0", devices.ProofSuperseded, of("enrolled", "u0")},
		"failure while no node is joined":                    {of("enrolled", "u0"), "", false, "u1", devices.ProofKept, of("enrolled", "u0")},
		"failure without a pinned node":                      {of("enrolled", "u0"), "u1", false, "", devices.ProofKept, of("enrolled", "u0")},
	} {
		w.setProof(id, c.before.Source, c.before.ValidatedRef)
		w.apply("ironic", fleet.Reading{Ref: "u1", Device: id, Gone: true, At: w.pass(time.Second)})
		if c.carries != "" {
			w.pass(time.Second)
			w.apply("ironic", joins(w.say(c.carries, node(ready)), id))
		}
		write := w.svc.Unprove
		if c.succeeded {
			write = w.svc.Prove
		}
		got, err := write(w.ctx(), id, c.ref, enroller)
		must(t, err)
		if got.Outcome != c.outcome || w.proof(id) != c.want || got.Device.Proof.ValidatedRef != c.want.ValidatedRef || got.Device.InfrastructureRef != c.carries {
			t.Errorf("%s: %s, the proof is %+v (told: %+v), want %s and %+v", name, got.Outcome, w.proof(id), got.Device.Proof, c.outcome, c.want)
		}
		if set := !w.device(id).Proof.ValidatedAt.IsZero(); set != (c.want.Source != "none") {
			t.Errorf("%s: the proof has an instant: %v", name, set)
		}
	}
	if n := w.audits("device.enrollment_proof", id, "worker"); n != 12 {
		t.Errorf("%d audit rows, want one a write", n)
	}
}

// A node that is gone, or made anew, takes its own proof along and no other.
func TestTheProofOfANodeThatIsGoneIsWithdrawn(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	id := w.bearFromFile("n1")
	for ref, want := range map[string]devices.ProofOutcome{"u1": devices.ProofCleared, "u0": devices.ProofKept, "": devices.ProofKept} {
		w.setProof(id, "enrolled", "u1")
		got, err := w.svc.WithdrawProof(w.ctx(), id, ref, enroller)
		must(t, err)
		if got.Outcome != want || (w.proof(id) == fleet.Proof{Source: "none"}) != (want == devices.ProofCleared) {
			t.Errorf("%q: %s, the proof is %+v", ref, got.Outcome, w.proof(id))
		}
	}
}

// audits counts what a caller did to a device.
func (w *world) audits(action string, id int64, who string) (n int) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.ctx(), "select count(*) from audit where action = $1 and target || ' ' like $2 and principal = $3", action, fmt.Sprintf("device %d %%", id), who).Scan(&n))
	return n
}

func TestAProofIsWrittenOfManagedDevicesOnly(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	for name, c := range map[string]struct {
		spoil string
		ref   string
		code  devices.Code
	}{
		"no node":                        {"name = name", "", devices.CodeRefMissing},
		"inventory-only":                 {"inventory_only = true", "n1", devices.CodeOutOfScope},
		"a class that is not enrolled":   {"device_class = 'nvswitch'", "n1", devices.CodeOutOfScope},
		"absent from the inventory":      {"absent_since = now()", "n1", devices.CodeOutOfScope},
		"retired":                        {"retired_at = now()", "n1", devices.CodeDeviceRetired},
		"as it was, to see that it goes": {"name = name", "n1", ""},
	} {
		w.exec("update devices set inventory_only = false, device_class = 'gpu_compute', absent_since = null, retired_at = null where id = $1", id)
		w.exec("update devices set "+c.spoil+" where id = $1", id)
		_, err := w.svc.Prove(w.ctx(), id, c.ref, enroller)
		if c.code == "" && err != nil || c.code != "" && !errors.Is(err, &devices.RefusedError{Code: c.code}) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	if _, err := w.svc.Unprove(w.ctx(), 1<<40, "n1", enroller); !errors.Is(err, &devices.RefusedError{Code: devices.CodeDeviceNotFound}) {
		t.Errorf("a failure of nobody: %v", err)
	}
}

// The other ways out have tests of their own: a class that changes, another
// machine under the same ref, a move to another site.
func TestAProofEndsWhereNoEnrolmentManagesTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		leave func(w *world, id int64)
		want  string // what is stored after; it never reads valid
	}{
		"it becomes inventory-only": {func(w *world, id int64) {
			w.exec("update devices set inventory_only = true where id = $1", id)
			w.apply("ironic", w.say("u1", node(ready, maintenance)))
		}, ""},
		"it leaves the inventory for good": {func(w *world, id int64) {
			w.apply("file", fleet.Reading{Ref: "n1", Device: id, Gone: true, At: w.clock()})
			w.pass(25 * time.Hour)
			w.finish("file", "ironic", "slurm")
			w.project()
		}, ""},
		"a person says that it left": {func(w *world, id int64) {
			w.apply("file", fleet.Reading{Ref: "n1", Device: id, Gone: true, Confirmed: true, At: w.clock()})
		}, ""},
		"its node is gone": {func(w *world, id int64) {
			w.apply("ironic", fleet.Reading{Ref: "u1", Device: id, Gone: true, At: w.clock()})
		}, "u1"},
		"it has another node": {func(w *world, id int64) {
			w.apply("ironic", fleet.Reading{Ref: "u1", Device: id, Gone: true, At: w.clock()})
			w.pass(time.Second)
			w.apply("ironic", joins(w.say("u2", node(ready)), id))
		}, "u1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fileAndIronic)
			id := w.bearFromFile("n1")
			w.apply("ironic", joins(w.say("u1", node(ready)), id))
			w.finish("ironic", "slurm")
			_, err := w.svc.Prove(w.ctx(), id, "u1", enroller)
			must(t, err)
			if ref, err := w.svc.Proven(w.ctx(), id); err != nil || ref != "u1" {
				t.Fatalf("proven is %q: %v", ref, err)
			}
			w.pass(time.Second)
			c.leave(w, id)
			if d := w.device(id); d.Proof.ValidatedRef != c.want || (d.Proof.Source == "none") != (c.want == "") || d.Proof.ValidatedAt.IsZero() != (c.want == "") {
				t.Errorf("the proof is %+v", d.Proof)
			}
			if ref, err := w.svc.Proven(w.ctx(), id); !errors.Is(err, devices.ErrProofMissing) || ref != "" {
				t.Errorf("proven is %q: %v", ref, err)
			}
		})
	}
}

func TestWhoCannotReadTheProofGivesNoVerdict(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	ended, cancel := context.WithCancel(w.ctx())
	cancel()
	if _, err := w.svc.Proven(ended, id); err == nil || errors.Is(err, devices.ErrProofMissing) {
		t.Errorf("without a database: %v", err)
	}
	if _, err := w.svc.Proven(w.ctx(), 0); !errors.Is(err, devices.ErrProofMissing) {
		t.Errorf("no device: %v", err)
	}
}

func TestAPersonRecordsALatch(t *testing.T) {
	w := newWorld(t)
	id := w.bear("n1", node(ready))
	ada := devices.Caller{Name: "ada", Remote: "192.0.2.1"}
	ahead := w.clock().Add(4 * time.Minute)
	w.post(devices.ConditionPost{DeviceID: id, Type: devices.LatchNvLink, Writer: "nvlink-fabric", Status: fleet.Unknown, Reason: "MoveBegan", ObservedAt: ahead})
	isolated := devices.LatchPost{DeviceID: id, Type: devices.LatchNvLink, Status: fleet.True, Reason: devices.ReasonManualIsolation, Note: " CHG-1, by hand\x00 ", By: ada}
	row, err := w.svc.Latch(w.ctx(), isolated)
	must(t, err)
	if row.Status != fleet.True || row.Message != "CHG-1, by hand" || row.Writer != "operator" || row.ObservedAt.Before(ahead) {
		t.Errorf("the latch is %+v", row)
	}
	w.wantCondition(id, devices.LatchNvLink, "True ManualIsolation")
	w.post(devices.ConditionPost{DeviceID: id, Type: devices.LatchNvLink, Writer: "nvlink-fabric", Status: fleet.False, Reason: "Returned", ObservedAt: ahead.Add(time.Second)})
	w.wantCondition(id, devices.LatchNvLink, "False Returned")
	if n := w.audits("device.latch", id, "ada"); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	for name, c := range map[string]struct {
		change func(p *devices.LatchPost)
		code   devices.Code
	}{
		"another durable type":           {func(p *devices.LatchPost) { p.Type = "CustodyIntent" }, devices.CodeTypeUnknown},
		"an observed type":               {func(p *devices.LatchPost) { p.Type = "Maintenance" }, devices.CodeTypeUnknown},
		"Unknown":                        {func(p *devices.LatchPost) { p.Status = fleet.Unknown }, devices.CodeInvalid},
		"a reason of a workflow":         {func(p *devices.LatchPost) { p.Reason = "Isolated" }, devices.CodeInvalid},
		"no note":                        {func(p *devices.LatchPost) { p.Note = " " }, devices.CodeInvalid},
		"isolated, and False":            {func(p *devices.LatchPost) { p.Status = fleet.False }, devices.CodeInvalid},
		"returned, and True":             {func(p *devices.LatchPost) { p.Reason = devices.ReasonManualReturn }, devices.CodeInvalid},
		"isolated into the customer VRF": {func(p *devices.LatchPost) { p.Type = devices.LatchFrontend }, devices.CodeInvalid},
		"no such device":                 {func(p *devices.LatchPost) { p.DeviceID = 1 << 40 }, devices.CodeDeviceNotFound},
		"isolated from the customer VRF": {func(p *devices.LatchPost) { p.Type, p.Status = devices.LatchFrontend, fleet.False }, ""},
		"returned to service": {func(p *devices.LatchPost) {
			p.Type, p.Status, p.Reason = devices.LatchBackend, fleet.False, devices.ReasonManualReturn
		}, ""},
	} {
		p := isolated
		c.change(&p)
		if _, err := w.svc.Latch(w.ctx(), p); c.code == "" && err != nil || c.code != "" && !errors.Is(err, &devices.RefusedError{Code: c.code}) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
	w.wantStatus(id, "available", "customer-available") // it feeds no status
}

func TestTriageIsEnteredOnceAndLeft(t *testing.T) {
	w := newWorld(t)
	a, b := w.bear("n1", node(ready)), w.bear("n2", node(ready))
	ada := devices.Caller{Name: "ada"}
	text := func(s string) *string { return &s }
	entered := w.clock()
	must(t, w.svc.Triage(w.ctx(), devices.TriagePost{Devices: []int64{b, a, a}, InTriage: true, TicketURL: text("https://t/1"), ParentURL: text("https://t/p"), By: ada}))
	w.pass(time.Hour)
	must(t, w.svc.Triage(w.ctx(), devices.TriagePost{Devices: []int64{a}, InTriage: true, TicketURL: text("https://t/2"), ParentURL: text("https://t/p"), By: ada}))
	if d := w.device(a); !d.InTriage || !d.EnteredTriageAt.Equal(entered) || d.TriageTicketURL != "https://t/2" || d.ParentTicketURL != "https://t/p" || !d.UpdatedAt.Equal(w.clock()) {
		t.Errorf("in triage since %v with %q under %q", d.EnteredTriageAt, d.TriageTicketURL, d.ParentTicketURL)
	}
	err := w.svc.Triage(w.ctx(), devices.TriagePost{Devices: []int64{a, b}, InTriage: false, ParentURL: text("https://t/q"), By: ada})
	if !errors.Is(err, &devices.RefusedError{Code: devices.CodeParentTicket}) || !w.device(b).InTriage {
		t.Errorf("another parent ticket: %v", err)
	}
	must(t, w.svc.Triage(w.ctx(), devices.TriagePost{Devices: []int64{a}, By: ada}))
	if d := w.device(a); d.InTriage || !d.EnteredTriageAt.IsZero() || d.TriageTicketURL != "" || d.ParentTicketURL != "https://t/p" {
		t.Errorf("out of triage: %+v", d)
	}
	if n := w.audits("device.triage", a, "ada"); n != 3 {
		t.Errorf("%d audit rows, want 3", n)
	}
	w.wantStatus(a, "available", "customer-available") // orthogonal to the status
	w.apply("ironic", w.say("n2", node(ready, maintenance)))
	if d := w.device(b); !d.InTriage || d.Operational != facts.OperationalStatusQuarantine {
		t.Errorf("a reading takes it out: %+v", d)
	}
	w.exec("update devices set retired_at = now() where id = $1", b)
	for name, c := range map[string]struct {
		ids  []int64
		code devices.Code
	}{"nobody": {nil, devices.CodeInvalid}, "a retired one": {[]int64{a, b}, devices.CodeDeviceRetired}, "no such": {[]int64{a, 1 << 40}, devices.CodeDeviceNotFound}} {
		if err := w.svc.Triage(w.ctx(), devices.TriagePost{Devices: c.ids, InTriage: true, By: ada}); !errors.Is(err, &devices.RefusedError{Code: c.code}) || w.device(a).InTriage {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
	}
}
