package reconciler

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

// details gives what one kind of finding says, by ref.
func (w *world) details(source, kind string) map[string]string {
	w.t.Helper()
	rows, err := store.Findings(w.t.Context(), w.db, w.site.ID, source, "", "", 1000)
	must(w.t, err)
	found := map[string]string{}
	for _, f := range rows {
		if f.Kind == kind {
			text, err := json.Marshal(f.Detail)
			must(w.t, err)
			found[f.Ref] = string(text)
		}
	}
	return found
}

func (w *world) wantDetails(source, kind string, want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.details(source, kind)); diff != "" {
		w.t.Errorf("findings %s of %s (-want +got):\n%s", kind, source, diff)
	}
}

func because(reason, fault string) func(*sources.Record) {
	return func(r *sources.Record) {
		maintenance(r)
		r.Ironic.MaintenanceReason, r.Ironic.Fault = facts.TextOf(reason), facts.TextOf(fault)
	}
}

// drained gives a node that is drained, by a job where the adapter tells one.
func drained(reason, mark string) func(*facts.Slurm) {
	return func(s *facts.Slurm) {
		s.States |= facts.SlurmDrain
		s.Reason, s.DrainMark, s.ReasonSetBy, s.ReasonChangedAt = facts.TextOf(reason), mark, "root", time.Unix(1700000000, 0)
	}
}

func TestWhatOthersHoldIsReported(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(
		node("u1", "n1", because("bad fan, ask Ada", "")), node("u2", "n2", because("muster:job-7 cleaning", "")),
		node("u3", "n3", because("cleaning failed", "clean failure")), node("u4", "n4"), node("u5", "n5", because("", "")))
	var listed []sources.Record
	for i, change := range []func(*facts.Slurm){
		drained("nvlink errors", ""), drained("muster:job-7", "muster:job-7"), drained("muster:job-7 : Not responding", "muster:job-7"),
		drained("", ""), drained("muster:job-7", ""), func(*facts.Slurm) {},
	} {
		r := slurmNode(fmt.Sprintf("n%d", i+1), facts.SlurmIdle)
		change(r.Slurm)
		listed = append(listed, r)
	}
	w.slurm().says(listed[:5]...)
	w.sweep("ironic", "slurm")
	w.wantDetails("ironic", fleet.FindingForeignMark, map[string]string{
		"u1": `{"mark":"maintenance","name":"n1","reason":"bad fan, ask Ada"}`, "u5": `{"mark":"maintenance","name":"n5","reason":""}`,
	})
	w.wantDetails("slurm", fleet.FindingForeignMark, map[string]string{
		"n1": `{"by":"root","mark":"drain","name":"n1","reason":"nvlink errors"}`,
		"n4": `{"by":"root","mark":"drain","name":"n4","reason":""}`,
		"n5": `{"by":"root","mark":"drain","name":"n5","reason":"muster:job-7"}`, // an old reason alone shows nothing
	})
	w.ironic().says(node("u1", "n1"), node("u2", "n2"), node("u3", "n3"), node("u4", "n4"), node("u5", "n5"))
	w.sweep("ironic")
	w.wantDetails("ironic", fleet.FindingForeignMark, map[string]string{})
}

func TestWhereInventoryAndIronicDifferIsReported(t *testing.T) {
	w := newWorld(t, fileAndIronic)
	class := func(name string) func(*sources.Record) {
		return func(r *sources.Record) {
			if r.Netbox != nil {
				r.Netbox.ResourceClass = facts.TextOf(name)
				return
			}
			r.Ironic.ResourceClass = facts.TextOf(name)
		}
	}
	w.source("file").says(machine("1", "n1", serial("S1"), class("gb200")), machine("2", "n2", serial("S2"), class("gb200")), machine("3", "n3", serial("s3")))
	w.ironic().says(node("u1", "n1"), node("u2", "n2", class("h100")), node("u3", "n3"))
	w.sweep("file", "ironic")
	w.ironic().says(node("u1", "n1", serial("S9"), class("gb200")), node("u2", "n2", class("h100"), serial("S8")), node("u3", "n3", serial("S3")))
	w.sweep("ironic", "file")
	w.wantDetails("file", fleet.FindingDifference, map[string]string{
		"n1": `{"serial":{"file":"S1","ironic":"S9"}}`,
		"n2": `{"resource_class":{"file":"gb200","ironic":"h100"},"serial":{"file":"S2","ironic":"S8"}}`,
	})
}
