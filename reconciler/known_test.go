package reconciler

import (
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// midway runs a sweep of Ironic and calls f when its first page is applied and
// the second is not read yet.
func (w *world) midway(pages [][]sources.Record, f func()) {
	w.t.Helper()
	gate, entered := make(chan struct{}), make(chan int, len(pages))
	w.ironic().set(func(s *script) { s.pages, s.gate, s.entered = pages, gate, entered })
	r := w.replica("midway")
	lease := w.claim(r, "ironic", time.Minute)
	done := make(chan struct{})
	go func() { defer close(done); r.sweep(w.t.Context(), lease) }()
	receive(w.t, "the first page", entered)
	f()
	close(gate)
	receive(w.t, "the sweep's end", done)
	w.ironic().set(func(s *script) { s.gate, s.entered = nil, nil })
}

// alone writes what a single reading of a node says, now.
func (w *world) alone(r sources.Record) {
	w.t.Helper()
	r.At = w.db.Now()
	_, err := w.svc.Apply(w.t.Context(), fleet.Batch{SiteID: w.site.ID, Source: "ironic", Readings: []fleet.Reading{reading(&r)}})
	must(w.t, err)
}

func TestTheNewestWordCountsThoughTheListingOnlyRepeats(t *testing.T) {
	w := newWorld(t)
	all := nodes(3)
	w.ironic().says(all...)
	w.sweep("ironic")
	for name, said := range map[string]sources.Record{
		"somebody else wrote another word in between": node("u002", "n002", maintenance),
		"somebody else wrote the same":                node("u002", "n002"),
	} {
		w.midway([][]sources.Record{all[:2], all[2:]}, func() { w.alone(said) })
		if d := w.device("n002"); d.Operational != facts.OperationalStatusAvailable {
			t.Errorf("%s: it is %s", name, d.Operational)
		}
	}
	// A word that is newer than the listing's stands.
	w.midway([][]sources.Record{all, {}}, func() { w.alone(node("u002", "n002", maintenance)) })
	w.wantStatus("n002", "quarantine")
	w.sweep("ironic")
	w.wantStatus("n002", "available")
}

// A listing that has exactly what it had before may skip its joins, but nothing
// that others made of the devices meanwhile.
func TestAListingWithoutNewsStillMinds(t *testing.T) {
	t.Run("a device that came into the scope", func(t *testing.T) {
		w := newWorld(t)
		w.ironic().says(node("u1", "n1", leased), node("u2", "n2"))
		w.slurm().says(slurmNode("n1", facts.SlurmIdle))
		w.sweep("ironic", "slurm", "slurm")
		w.ironic().says(node("u1", "n1"), node("u2", "n2", leased)) // one goes out, one comes in
		w.sweep("ironic", "slurm")
		w.wantCondition("n2", "SlurmMember", "False NodeNotListed")
		w.wantStatus("n2", "quarantine")
		w.wantStatus("n1", "available")
	})
	t.Run("findings of the listing before", func(t *testing.T) {
		w := newWorld(t)
		w.ironic().says(node("u1", "n1", leased))
		w.slurm().says(slurmNode("n1", facts.SlurmIdle), slurmNode("stranger", facts.SlurmIdle))
		w.sweep("ironic", "slurm")
		w.wantFindings("slurm", "unjoined stranger")
		w.slurm().says(slurmNode("n1", facts.SlurmIdle))
		w.sweep("slurm")
		w.wantFindings("slurm")
	})
	t.Run("a device of another inventory", func(t *testing.T) {
		w := newWorld(t, fileAndIronic)
		w.source("file").says(machine("1", "n1"), machine("2", "n2"))
		w.sweep("file")
		_, err := w.db.Exec(t.Context(), "delete from facts where source = 'file' and device_id = (select id from devices where name = 'n2')")
		must(t, err)
		w.source("file").says(machine("1", "n1"))
		w.sweep("file")
		w.wantFindings("file", "missing device:2")
	})
	t.Run("a device that was missing and is listed again", func(t *testing.T) {
		w := newWorld(t)
		w.ironic().says(nodes(2)...)
		w.sweep("ironic")
		w.ironic().set(func(s *script) {
			s.pages, s.unsure = [][]sources.Record{nodes(1)}, map[string]error{"u001": errDown}
		})
		w.sweep("ironic")
		w.wantFindings("ironic", "missing u001")
		w.ironic().says(nodes(2)...)
		w.sweep("ironic", "ironic")
		w.wantFindings("ironic")
		w.wantCount(0, "select count(*) from facts where unread_reason <> ''")
	})
	t.Run("rules that changed before", func(t *testing.T) {
		w := newWorld(t)
		other := node("u1", "n1")
		other.Ironic.Traits = []string{"CUSTOM_OTHER"}
		w.ironic().says(other)
		w.sweep("ironic")
		w.wantStatus("n1", "quarantine")
		_, err := w.db.Exec(t.Context(), `update sites set revision = revision + 1, spec = jsonb_set(spec, '{customer_ready_trait}', '"CUSTOM_OTHER"')`)
		must(t, err)
		w.sweep("ironic") // nothing is projected: the record itself is observed again
		w.wantStatus("n1", "available")
	})
	t.Run("rules that changed in the middle", func(t *testing.T) {
		w := newWorld(t)
		all := nodes(4)
		for i := range all {
			all[i].Ironic.Traits = []string{"CUSTOM_OTHER"}
		}
		w.ironic().says(all...)
		w.sweep("ironic")
		w.midway([][]sources.Record{all[:2], all[2:]}, func() {
			_, err := w.db.Exec(t.Context(), `update sites set revision = revision + 1, spec = jsonb_set(spec, '{customer_ready_trait}', '"CUSTOM_OTHER"')`)
			must(t, err)
		})
		w.later(0)
		w.wantCount(4, "select count(*) from devices where operational_status = 'available'")
	})
}

func TestASiteIsProjectedAfterEveryListing(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(2)...)
	for range 2 { // with news and without
		_, err := w.db.Exec(t.Context(), "update projections set due_at = now() + interval '1 hour'")
		must(t, err)
		w.sweep("ironic")
		w.wantCount(1, "select count(*) from projections where due_at <= clock_timestamp()")
	}
}
