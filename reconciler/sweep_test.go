package reconciler

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

func TestNodesBecomeDevicesAndTheirFactsAStatus(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1"), node("u2", "n2", maintenance), node("u3", "n3", leased))
	w.slurm().says(slurmNode("n3", facts.SlurmIdle))
	w.sweep("ironic", "slurm")
	w.wantStatus("n1", "available")
	w.wantStatus("n2", "quarantine")
	w.wantStatus("n3", "validation")
	w.wantFindings("ironic")
	w.wantFindings("slurm")
	if mark := w.watermark("slurm"); mark.At.IsZero() || !mark.FailingSince.IsZero() {
		t.Errorf("the watermark is %+v", mark)
	}
	w.slurm().says(slurmNode("N3", facts.SlurmIdle|facts.SlurmDrain))
	w.sweep("slurm")
	w.wantStatus("n3", "quarantine") // another spelling is another ref: the old one is asked for and gone, the new one joins
}

func TestAFailedListingChangesNoDevice(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(node("u1", "n1", leased))
	w.slurm().says(slurmNode("n1", facts.SlurmIdle|facts.SlurmDrain))
	w.sweep("ironic", "slurm")
	w.wantStatus("n1", "quarantine")
	before, mark := w.device("n1"), w.watermark("slurm")
	for name, fault := range map[string]func(*script){
		"an error at once":         func(s *script) { s.pages, s.fail = nil, errDown },
		"an error after a page":    func(s *script) { s.pages, s.fail = [][]sources.Record{{}}, errDown },
		"an end before the end":    func(s *script) { s.pages, s.partial = [][]sources.Record{{}}, true },
		"a panic in the adapter":   func(s *script) { s.fault = true },
		"an answer without a cure": func(s *script) { s.fail = &sources.Error{Kind: sources.KindForbidden, Op: "list", Message: "401"} },
	} {
		w.slurm().set(fault)
		w.sweep("slurm")
		failed := w.watermark("slurm")
		if failed.FailingSince.IsZero() || failed.Reason != "SchedulerUnreachable" || !failed.At.Equal(mark.At) {
			t.Errorf("%s: the watermark is %+v", name, failed)
		}
		if after := w.device("n1"); !after.UpdatedAt.Equal(before.UpdatedAt) || after.SlurmStates != before.SlurmStates {
			t.Errorf("%s changed the device: %+v", name, after)
		}
		w.wantFindings("slurm", "failure")
		w.slurm().says(slurmNode("n1", facts.SlurmIdle|facts.SlurmDrain))
		w.sweep("slurm")
		if mark = w.watermark("slurm"); !mark.FailingSince.IsZero() {
			t.Errorf("%s: still failing after a good listing: %+v", name, mark)
		}
		w.wantFindings("slurm")
	}
}

func TestWhatAListingGaveIsAppliedEvenIfItFailsLater(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(3)...)
	w.sweep("ironic")
	w.ironic().set(func(s *script) {
		s.pages, s.fail = [][]sources.Record{{node("u001", "n001", maintenance), node("new", "newcomer")}}, errDown
	})
	w.sweep("ironic")
	w.wantStatus("n001", "quarantine")
	w.wantStatus("n002", "available")
	w.wantCount(3, "select count(*) from devices")
}

func TestAChangedDeviceWaitsForNoOtherPage(t *testing.T) {
	w := newWorld(t)
	all := nodes(40)
	w.ironic().says(all...)
	w.sweep("ironic")
	gate := make(chan struct{})
	all[0] = node("u000", "n000", maintenance)
	w.ironic().set(func(s *script) { s.pages, s.gate = [][]sources.Record{all[:20], all[20:]}, gate })
	r := w.replica("a")
	lease := w.claim(r, "ironic", time.Minute)
	done := make(chan struct{})
	go func() { defer close(done); r.sweep(t.Context(), lease) }()
	eventually(t, "the changed device of the first page has its status", func() bool { return w.device("n000").Operational == facts.OperationalStatusQuarantine })
	close(gate)
	receive(t, "the sweep's end", done)
}

func TestAPausedReplicaWritesNothingWhenItComesBack(t *testing.T) {
	for name, at := range map[string]int{"between two pages": 0, "at the listing's end": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.ironic().says(node("u1", "n1"), node("u2", "n2"))
			w.sweep("ironic")
			w.wantStatus("n2", "available")

			// The old replica reads the world as it is now and is paused.
			gate, entered := make(chan struct{}), make(chan int, 8)
			stopped := &script{clock: w.db.Now, gate: gate, entered: entered, pages: [][]sources.Record{{node("u1", "n1")}, {node("u2", "n2")}, {}}}
			old := w.replica("old", func(o *Options) { o.Clients = &only{stopped} })
			oldLease := w.claim(old, "ironic", 0) // it has run out by the time the pause is over
			ended := make(chan error, 1)
			s := &sweep{Reconciler: old, lease: oldLease, bundle: w.bundle(), began: w.db.Now()}
			go func() { ended <- s.run(t.Context()) }() // no heartbeat: a paused process has none
			for range at {
				receive(t, "a page", entered)
				gate <- struct{}{}
			}
			receive(t, "the page before the pause", entered)

			// Meanwhile another one sees the world change.
			w.ironic().says(node("u1", "n1", maintenance), node("u2", "n2", maintenance), node("u3", "n3"))
			w.sweep("ironic")
			w.wantStatus("n1", "quarantine")
			mark, history := w.watermark("ironic"), w.count("select count(*) from lifecycle_events")

			close(gate)
			if err := receive(t, "the old sweep's end", ended); err == nil {
				t.Error("the old sweep ended well")
			}
			w.wantStatus("n1", "quarantine")
			w.wantStatus("n2", "quarantine")
			w.wantStatus("n3", "available")
			w.wantCount(history, "select count(*) from lifecycle_events")
			if got := w.watermark("ironic"); got != mark {
				t.Errorf("the watermark went from %+v to %+v", mark, got)
			}
		})
	}
}

// only gives one client, whatever is asked for.
type only struct{ source sources.Source }

func (o *only) Use(*fleet.Site, string) (sources.Source, func(), error) {
	return o.source, func() {}, nil
}
func (o *only) Drop(int64, string) {}
func (o *only) Keep([]fleet.Site)  {}

func TestTheHeartbeatKeepsALongSweepAndEndsALostOne(t *testing.T) {
	w := newWorld(t)
	gate, entered := make(chan struct{}), make(chan int, 8)
	w.ironic().set(func(s *script) { s.gate, s.entered, s.pages = gate, entered, [][]sources.Record{nodes(1), {}} })
	r := w.replica("a", func(o *Options) { o.Lease = 300 * time.Millisecond })
	lease := w.claim(r, "ironic", r.Lease)
	done := make(chan struct{})
	go func() { defer close(done); r.sweep(t.Context(), lease) }()
	receive(t, "the first page", entered)
	until := func() (at time.Time) {
		must(t, w.db.QueryRow(t.Context(), "select leased_until from sweeps where source = 'ironic'").Scan(&at))
		return at
	}
	eventually(t, "the lease outlives its first term", func() bool { return until().After(lease.Until.Add(time.Second)) })
	_, err := w.db.Exec(t.Context(), "update sweeps set owner = 'b', epoch = epoch + 1 where source = 'ironic'")
	must(t, err)
	receive(t, "the end of the sweep that was lost", done) // the gate stays shut: the heartbeat has ended it
	if mark := w.watermark("ironic"); !mark.At.IsZero() || !mark.FailingSince.IsZero() {
		t.Errorf("the lost sweep wrote %+v", mark)
	}
	var owner string
	must(t, w.db.QueryRow(t.Context(), "select owner from sweeps where source = 'ironic'").Scan(&owner))
	if owner != "b" {
		t.Errorf("the lost sweep was given back by %s", owner)
	}
}

func TestRetriesSlowDownToTheInterval(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		failing string
		asked   time.Duration // by the source
		want    time.Duration
	}{{"0", 0, time.Second}, {"10s", 0, 10 * time.Second}, {"1h", 0, 30 * time.Second}, {"0", 2 * time.Minute, 133 * time.Second}, {"0", 24 * time.Hour, 333 * time.Second}} {
		w.slurm().set(func(s *script) {
			s.fail = &sources.Error{Kind: sources.KindTransient, Op: "list", Message: "too many requests", RetryAfter: c.asked}
		})
		_, err := w.db.Exec(t.Context(), `insert into watermarks (site_id, source, failing_since) values ($1, 'slurm', now() - $2::interval)
			on conflict (site_id, source) do update set failing_since = excluded.failing_since`, w.site.ID, c.failing)
		must(t, err)
		w.sweep("slurm")
		var due time.Time
		must(t, w.db.QueryRow(t.Context(), "select due_at from sweeps where source = 'slurm'").Scan(&due))
		if wait := due.Sub(w.db.Now()); wait > c.want+2*time.Second || wait < c.want-5*time.Second {
			t.Errorf("failing for %s and asked for %s, the next try is in %s, want %s", c.failing, c.asked, wait, c.want)
		}
	}
}

func TestARefusedCredentialIsReadAgain(t *testing.T) {
	w := newWorld(t)
	r := w.replica("a")
	w.slurm().set(func(s *script) { s.fail = &sources.Error{Kind: sources.KindForbidden, Op: "list", Message: "401"} })
	r.sweep(t.Context(), w.claim(r, "slurm", time.Minute))
	w.slurm().set(func(s *script) {
		if s.closed != 1 {
			t.Errorf("the client whose credential was refused was closed %d times", s.closed)
		}
	})
}

func TestARepeatedRecordCountsOnce(t *testing.T) {
	w := newWorld(t)
	w.ironic().set(func(s *script) {
		s.pages = [][]sources.Record{{node("u1", "n1"), node("u1", "n1")}, {node("u1", "n1", maintenance)}}
	})
	w.sweep("ironic")
	w.wantCount(1, "select count(*) from devices")
	w.wantStatus("n1", "available")
}

func TestMoreRecordsThanABatchTakes(t *testing.T) {
	w := newWorld(t)
	w.ironic().says(nodes(1203)...)
	w.sweep("ironic")
	w.sweep("ironic")
	w.wantCount(1203, "select count(*) from devices where operational_status = 'available'")
}

func TestStoppingGivesTheSweepBackAtOnce(t *testing.T) {
	w := newWorld(t)
	entered := make(chan int, 8)
	w.ironic().set(func(s *script) {
		s.gate, s.entered, s.pages = make(chan struct{}), entered, [][]sources.Record{nodes(1), {}}
	})
	ctx, stop := context.WithCancel(t.Context())
	r := w.replica("a")
	lease := w.claim(r, "ironic", time.Hour)
	done := make(chan struct{})
	go func() { defer close(done); r.sweep(ctx, lease) }()
	receive(t, "the first page", entered)
	stop()
	receive(t, "the sweep's end", done)
	if mark := w.watermark("ironic"); !mark.FailingSince.IsZero() {
		t.Errorf("stopping counts as a failure of the source: %+v", mark)
	}
	leases, err := store.ClaimSweeps(t.Context(), w.db, "b", time.Minute, time.Minute, 0, 10)
	must(t, err)
	if !slices.ContainsFunc(leases, func(l store.SweepLease) bool { return l.Source == "ironic" && l.Epoch == lease.Epoch+1 }) {
		t.Errorf("another replica gets %+v", leases)
	}
}

func confirm(w *world, source string) {
	w.t.Helper()
	_, hash, err := store.MissingSet(w.t.Context(), w.db, w.site.ID, source)
	must(w.t, err)
	must(w.t, w.db.Tx(w.t.Context(), func(tx pgx.Tx) error {
		_, err := store.Confirm(w.t.Context(), tx, store.Confirmation{SiteID: w.site.ID, Source: source, Hash: hash, Actor: "ada"})
		return err
	}))
}

func refs(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("missing u%03d", i))
	}
	return all
}
