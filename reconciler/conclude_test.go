package reconciler

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

func TestAFewMissingNodesAreAskedForOneByOne(t *testing.T) {
	w := newWorld(t)
	all := nodes(5)
	w.ironic().says(all...)
	w.sweep("ironic")
	w.ironic().set(func(s *script) {
		s.pages, s.unsure = [][]sources.Record{all[:3]}, map[string]error{"u004": errDown}
	})
	before := w.watermark("ironic")
	w.sweep("ironic")
	w.wantCondition("n003", "Enrolled", "Unknown NodeNotFound")
	w.wantStatus("n003", "unknown")
	w.wantCondition("n004", "Enrolled", "True Enrolled")
	w.wantStatus("n004", "available")
	w.wantCount(1, "select count(*) from facts f join devices d on d.id = f.device_id where d.name = 'n004' and unread_reason = 'MissingUnconfirmed'")
	w.wantFindings("ironic", "missing u004")
	if !w.watermark("ironic").At.After(before.At) {
		t.Error("the watermark did not move")
	}
	w.ironic().says(append(all[:3:3], all[4])...)
	w.sweep("ironic")
	w.wantFindings("ironic")
	w.wantCount(0, "select count(*) from facts where unread_reason <> ''")
}

func TestAMissingNodeThatAnswersWasNotMissing(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(2)...)
	w.sweep("ironic")
	// The page shifted under the listing: the node is there when asked for.
	w.ironic().set(func(s *script) { s.pages = [][]sources.Record{nodes(1), {}} })
	r := w.replica("a", func(o *Options) { o.Clients = &only{hiding{w.ironic(), node("u001", "n001", maintenance)}} })
	r.sweep(t.Context(), w.claim(r, "ironic", time.Minute))
	w.wantStatus("n001", "quarantine")
	w.wantFindings("ironic")
}

// hiding does not list what it answers for.
type hiding struct {
	*script
	hidden sources.Record
}

func (h hiding) Get(ctx context.Context, ref string) (*sources.Record, error) {
	if ref != h.hidden.Ref {
		return h.script.Get(ctx, ref)
	}
	r := h.hidden
	r.At = h.clock()
	return &r, nil
}

func TestManyMissingNodesWaitForAPerson(t *testing.T) {
	w := newWorld(t)
	all := nodes(100)
	w.ironic().says(all...)
	w.sweep("ironic")
	before := w.watermark("ironic")
	w.ironic().says(all[:85]...)
	w.sweep("ironic")
	w.wantStatus("n090", "available")
	w.wantCount(15, "select count(*) from facts where unread_reason = 'MissingUnconfirmed'")
	w.wantFindings("ironic", refs(85, 100)...)
	if mark := w.watermark("ironic"); !mark.At.After(before.At) || mark.Alert != "" {
		t.Errorf("the watermark is %+v", mark)
	}
	w.ironic().set(func(s *script) {
		if len(s.asked) > 0 {
			t.Errorf("%v were asked for", s.asked)
		}
	})
	confirm(w, "ironic")
	w.ironic().says(all[:84]...) // one more is missing: it is another set
	w.sweep("ironic")
	w.wantStatus("n090", "available")
	w.wantFindings("ironic", refs(84, 100)...)
	confirm(w, "ironic")
	w.sweep("ironic")
	w.wantCount(16, "select count(*) from devices where operational_status = 'unknown'")
	w.wantCount(84, "select count(*) from devices where operational_status = 'available'")
	w.wantFindings("ironic")
}

func TestAnImplausibleListingConcludesNothing(t *testing.T) {
	for name, kept := range map[string]int{"more than the share is missing": 79, "the listing is empty": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			all := nodes(100)
			w.ironic().says(all...)
			w.sweep("ironic")
			before := w.watermark("ironic")
			now := all[:kept:kept]
			if kept > 0 {
				now[0] = node("u000", "n000", maintenance)
				now = append(now, node("stranger", "stranger"))
			}
			w.ironic().says(now...)
			w.sweep("ironic")
			mark := w.watermark("ironic")
			if !mark.At.Equal(before.At) || mark.Alert == "" {
				t.Errorf("the watermark went from %+v to %+v", before, mark)
			}
			w.wantCount(100, "select count(*) from devices") // nobody is born of it
			w.wantCount(0, "select count(*) from facts where ref_gone or unread_reason <> ''")
			w.wantFindings("ironic", refs(kept, 100)...)
			w.wantStatus("n099", "available")
			if kept > 0 {
				w.wantStatus("n000", "quarantine") // what it gave is observed
			}
			confirm(w, "ironic")
			w.sweep("ironic")
			w.wantStatus("n099", "unknown")
			if mark := w.watermark("ironic"); !mark.At.After(before.At) || mark.Alert != "" {
				t.Errorf("after the confirmation the watermark is %+v", mark)
			}
			if kept > 0 {
				w.wantStatus("stranger", "available")
			}
		})
	}
}

func TestWithARecordOfNobodyNothingIsGone(t *testing.T) {
	w := newWorld(t)
	all := nodes(5)
	w.ironic().says(all...)
	w.sweep("ironic")
	w.ironic().says(all[:3]...)
	w.ironic().set(func(s *script) { s.dropped = 2 })
	w.sweep("ironic")
	w.wantStatus("n004", "available")
	w.wantCount(2, "select count(*) from facts where unread_reason = 'DecodeFailed'")
	w.wantFindings("ironic", "dropped", "missing u003", "missing u004")
}

func TestAnUnreadableRecordIsNotMissing(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(2)...)
	w.sweep("ironic")
	w.ironic().says(node("u000", "n000"), sources.Record{Ref: "u001", Undecodable: "a list in place of an object"}, sources.Record{Ref: "u9", Undecodable: "as well"})
	w.sweep("ironic")
	w.wantStatus("n001", "available")
	w.wantCount(1, "select count(*) from facts where unread_reason = 'DecodeFailed'")
	w.wantCount(2, "select count(*) from devices")
	w.wantFindings("ironic", "undecodable u001", "undecodable u9")
}

// IRN-030: nodes are deleted and enrolled again under their names.
func TestANodeThatIsEnrolledAgainStaysItsDevice(t *testing.T) {
	enrol := func(r *sources.Record) { r.Ironic.ProvisionState = facts.ProvisionStateEnroll }
	for name, between := range map[string][][]sources.Record{
		"seen while it was away":           {{}},
		"not seen while it was away":       {},
		"away for longer than one listing": {{}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ironic().says(node("old", "n1"))
			w.sweep("ironic")
			id := w.device("n1").ID
			for _, listing := range between {
				w.ironic().says(listing...)
				w.sweep("ironic")
				w.wantStatus("n1", "unknown")
			}
			w.ironic().says(node("new", "n1", enrol))
			w.sweep("ironic")
			d := w.device("n1")
			if d.ID != id || d.InfrastructureRef != "new" {
				t.Errorf("device %d with node %s, was device %d", d.ID, d.InfrastructureRef, id)
			}
			w.wantStatus("n1", "quarantine")
		})
	}
}

func TestARackImportedAgainTakesItsDevicesOver(t *testing.T) {
	w := newWorld(t)
	var before, after []sources.Record
	for i, r := range nodes(30) {
		r.Serial = "SN" + r.Name
		before = append(before, r)
		r.Ref = "again-" + r.Ref
		if i == 7 {
			r.Name, r.Ironic.Name = "renamed", facts.TextOf("renamed")
		}
		after = append(after, r)
	}
	w.ironic().says(before...)
	w.sweep("ironic")
	w.ironic().says(after...)
	w.sweep("ironic")
	w.wantCount(30, "select count(*) from devices where operational_status = 'available' and infrastructure_ref like 'again-%'")
	w.wantFindings("ironic")
	if mark := w.watermark("ironic"); mark.Alert != "" {
		t.Errorf("the watermark is withheld: %s", mark.Alert)
	}
}

func TestAnotherMachineUnderTheSameRefIsReported(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", serial("S1")))
	w.sweep("ironic")
	w.ironic().says(node("u1", "n1", serial("S2")))
	w.sweep("ironic")
	d := fleet.Joinable{Device: w.device("n1").ID}
	w.wantFindings("ironic", "swap "+d.MissingKey())
	w.wantDetails("ironic", fleet.FindingSwap, map[string]string{d.MissingKey(): `{"is":"S2","name":"n1","was":"S1"}`})
	w.sweep("ironic")
	w.wantFindings("ironic", "swap "+d.MissingKey())
	_, err := w.db.Exec(t.Context(), "update source_findings set since = now() - interval '25 hours'")
	must(t, err)
	w.sweep("ironic")
	w.wantFindings("ironic")
	w.wantCount(1, "select count(*) from devices")
}

func TestWhatNobodyCanJoinIsReported(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", serial("S1")), node("u2", "n1", serial("S1")), node("u3", "n3", leased))
	w.slurm().says(slurmNode("n3", facts.SlurmIdle), slurmNode("stranger", facts.SlurmIdle), slurmNode("n3.lab", facts.SlurmIdle))
	w.sweep("ironic", "slurm")
	w.wantFindings("ironic", "ambiguous u1", "ambiguous u2")
	w.wantFindings("slurm", "ambiguous n3.lab", "unjoined stranger")
	w.wantStatus("n3", "validation")
}

func TestADeviceInScopeThatIsNotListedIsSaidToBe(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", leased), node("u2", "n2"))
	w.slurm().says()
	w.sweep("ironic", "slurm")
	w.wantCondition("n1", "SlurmMember", "False NodeNotListed")
	w.wantCondition("n2", "SlurmMember", "")
	w.wantStatus("n1", "quarantine")
	w.slurm().says(slurmNode("n1", facts.SlurmIdle))
	w.sweep("slurm")
	w.wantStatus("n1", "validation")
}

func TestADeviceThatMayBeListedIsNotSaidToBeMissing(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1.a", leased), node("u2", "n1.b", leased))
	w.slurm().says(slurmNode("n1", facts.SlurmIdle)) // either of them
	w.sweep("ironic", "slurm")
	w.wantCondition("n1.a", "SlurmMember", "")
	w.wantFindings("slurm", "ambiguous n1")
}

func TestAnInventoryOfOnesOwnGivesBirthAndIronicJoins(t *testing.T) {
	w := newWorld(t, func(s *fleet.SiteSpec) {
		s.Inventory = facts.InventorySourceFile
		s.Sources.Recorded = map[string]string{"file": "x", "ironic": "x"}
	})
	machine := func(ref, name string) sources.Record {
		return sources.Record{Ref: ref, Name: name, Netbox: &facts.Netbox{
			Listed: facts.True, Name: facts.TextOf(name), Role: facts.TextOf("gpu_compute"), Status: facts.TextOf("active"),
		}}
	}
	w.source("file").says(machine("1", "n1"), machine("2", "n2"))
	w.ironic().says(node("u1", "N1"), node("u9", "stranger"))
	w.sweep("file", "ironic")
	w.wantStatus("n1", "available")
	w.wantCondition("n2", "Enrolled", "Unknown NodeNotFound")
	w.wantStatus("n2", "unknown")
	w.wantCount(2, "select count(*) from devices")
	w.wantFindings("ironic", "unjoined u9")
}

func TestANewInventoryMustKnowEveryDevice(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(20)...)
	w.sweep("ironic")
	_, err := w.db.Exec(t.Context(), `update sites set revision = revision + 1,
		spec = jsonb_set(jsonb_set(spec, '{inventory}', '"file"'), '{sources,recorded,file}', '"x"')`)
	must(t, err)
	_, err = w.db.Exec(t.Context(), "insert into sweeps (site_id, source) values ($1, 'file')", w.site.ID)
	must(t, err)
	w.source("file").says(sources.Record{Ref: "1", Name: "n000", Netbox: &facts.Netbox{Listed: facts.True, Name: facts.TextOf("n000")}})
	w.sweep("file")
	if mark := w.watermark("file"); mark.Alert == "" || !mark.At.IsZero() {
		t.Errorf("the watermark is %+v", mark)
	}
	w.wantCount(20, "select count(*) from devices where absent_since is null")
}

// Of a device that another inventory gave birth to, the new one has not said yet
// whose it is: its name is taken whatever the tenant.
func TestANewInventoryWithTenantsBearsNobodyTwice(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(3)...)
	w.sweep("ironic")
	_, err := w.db.Exec(t.Context(), `update sites set revision = revision + 1,
		spec = jsonb_set(jsonb_set(spec, '{inventory}', '"file"'), '{sources,recorded,file}', '"x"')`)
	must(t, err)
	_, err = w.db.Exec(t.Context(), "insert into sweeps (site_id, source) values ($1, 'file')", w.site.ID)
	must(t, err)
	w.source("file").says(machine("1", "n000", tenant("east")), machine("2", "N001", tenant("west")), machine("3", "n002"))
	w.sweep("file")
	w.wantFindings("file")
	w.wantCount(3, "select count(*) from devices")
	w.wantCount(3, "select count(*) from facts where source = 'file' and not ref_gone")
}
