package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/store"
)

// fleetOf opens a migrated database with n sites that read SLURM.
func fleetOf(t *testing.T, n int) (*store.DB, []fleet.Site) {
	t.Helper()
	ctx := context.Background()
	url := pgtest.Template(t, "migrated", func(url string) error {
		_, err := migrations.Up(ctx, url)
		return err
	})
	db, err := store.Open(ctx, url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	var sites []fleet.Site
	err = db.Tx(ctx, func(tx pgx.Tx) error {
		for i := range n {
			s, err := store.PutSite(ctx, tx, fleet.Site{Spec: fleet.SiteSpec{
				Name: fmt.Sprintf("s%d", i), Sources: fleet.Sources{Recorded: map[string]string{"slurm": "x"}},
			}})
			if err != nil {
				return err
			}
			sites = append(sites, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return db, sites
}

const long = time.Hour

func claim(t *testing.T, db *store.DB, owner string, lease, patience time.Duration, most int) []store.SweepLease {
	t.Helper()
	leases, err := store.ClaimSweeps(context.Background(), db, owner, lease, time.Minute, patience, most)
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestASweepIsClaimedByOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	db, sites := fleetOf(t, 20)
	var mu sync.Mutex
	held := map[int64]string{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			owner := fmt.Sprintf("replica-%d", i)
			for range 5 {
				leases, err := store.ClaimSweeps(context.Background(), db, owner, long, time.Minute, 0, 3)
				mu.Lock()
				for _, l := range leases {
					if other := held[l.SiteID]; other != "" || l.Epoch != 1 {
						err = errors.Join(err, fmt.Errorf("site %d with epoch %d is %s's too", l.SiteID, l.Epoch, other))
					}
					held[l.SiteID] = owner
				}
				mu.Unlock()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for len(held) < len(sites) { // who was locked out meanwhile left some
		leases := claim(t, db, "last", long, 0, 100)
		if len(leases) == 0 {
			t.Fatalf("only %d of %d sweeps were claimed", len(held), len(sites))
		}
		for _, l := range leases {
			held[l.SiteID] = "last"
		}
	}
}

func TestOwnersTakeAShareEach(t *testing.T) {
	t.Parallel()
	db, _ := fleetOf(t, 10)
	a := claim(t, db, "a", long, long, 1) // alone, it is known as an owner
	if b := claim(t, db, "b", long, long, 100); len(b) != 5 {
		t.Errorf("the second of two owners took %d of 10", len(b))
	}
	if more := claim(t, db, "a", long, long, 100); len(a)+len(more) != 5 {
		t.Errorf("the first of two owners took %d of 10", len(a)+len(more))
	}
}

func TestWhatIsOverdueIsTakenBeyondTheShare(t *testing.T) {
	t.Parallel()
	db, _ := fleetOf(t, 10)
	claim(t, db, "dead", long, long, 1)
	if taken := claim(t, db, "a", long, 0, 100); len(taken) != 9 {
		t.Errorf("%d of 9 overdue sweeps were taken", len(taken))
	}
}

func TestAnExpiredLeasePassesOnAndTheOldOwnerLosesIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, _ := fleetOf(t, 1)
	old := claim(t, db, "a", 0, 0, 1)[0]
	fresh := claim(t, db, "b", long, 0, 1)[0]
	if fresh.Epoch != old.Epoch+1 || !fresh.Due.Equal(old.Due) {
		t.Errorf("claimed %+v after %+v", fresh, old)
	}
	if held, err := store.RenewSweep(ctx, db, old, long); err != nil || held {
		t.Errorf("the old owner renews: %v, %v", held, err)
	}
	if held, err := store.RenewSweep(ctx, db, fresh, long); err != nil || !held {
		t.Errorf("the owner cannot renew: %v, %v", held, err)
	}
	must(t, store.ReleaseSweep(ctx, db, old, db.Now().Add(-long)))
	if taken := claim(t, db, "c", long, 0, 1); len(taken) != 0 {
		t.Errorf("what the old owner released was claimed: %+v", taken)
	}
	if held, err := store.HoldsSweep(ctx, db, fresh.SiteID, fresh.Source, "b", fresh.Epoch); err != nil || !held {
		t.Errorf("the owner does not hold its sweep: %v, %v", held, err)
	}
}

func TestASweepThatIsAskedForWhileItRunsIsDueAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, _ := fleetOf(t, 1)
	l := claim(t, db, "a", long, 0, 1)[0]
	must(t, store.ReleaseSweep(ctx, db, l, db.Now().Add(long)))
	if again := claim(t, db, "a", long, 0, 1); len(again) != 0 {
		t.Fatalf("due before its time: %+v", again)
	}
	must(t, store.RequestSweep(ctx, db, l.SiteID, l.Source))
	l = claim(t, db, "a", long, 0, 1)[0]
	must(t, store.RequestSweep(ctx, db, l.SiteID, l.Source))
	must(t, store.ReleaseSweep(ctx, db, l, db.Now().Add(long)))
	if again := claim(t, db, "a", long, 0, 1); len(again) != 1 {
		t.Error("the request that was made during the sweep is lost")
	}
}

func TestAProjectionThatIsAskedForWhileItRunsIsDueAgain(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, sites := fleetOf(t, 1)
	take := func() []store.ProjectionLease {
		leases, err := store.ClaimProjections(ctx, db, "a", long, 10)
		must(t, err)
		return leases
	}
	l := take()
	if len(l) != 1 || len(take()) != 0 {
		t.Fatalf("claimed %+v", l)
	}
	must(t, store.DeferProjection(ctx, db, sites[0].ID, l[0].Due, db.Now().Add(long)))
	must(t, store.ReleaseProjection(ctx, db, l[0], time.Time{}))
	if len(take()) != 0 {
		t.Fatal("due before its time")
	}
	must(t, store.RequestProjection(ctx, db, sites[0].ID))
	l = take()
	must(t, store.RequestProjection(ctx, db, sites[0].ID))
	must(t, store.DeferProjection(ctx, db, sites[0].ID, l[0].Due, db.Now().Add(long)))
	if held, err := store.RenewProjection(ctx, db, &l[0], long); err != nil || !held {
		t.Fatalf("the owner cannot renew: %v, %v", held, err)
	}
	must(t, store.ReleaseProjection(ctx, db, l[0], time.Time{}))
	if l = take(); len(l) != 1 {
		t.Fatal("the request that was made during the projection is lost")
	}
	must(t, store.ReleaseProjection(ctx, db, l[0], db.Now().Add(long)))
	if len(take()) != 0 {
		t.Error("a failed projection is not put off")
	}
}

func TestSweepsFollowTheSites(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, sites := fleetOf(t, 2)
	sites[0].Spec.Sources.Recorded = map[string]string{"ironic": "x"}
	must(t, store.EnsureSweeps(ctx, db, sites))
	var got []string
	rows, err := db.Query(ctx, "select site_id || ' ' || source from sweeps order by 1")
	must(t, err)
	got, err = pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	want := []string{fmt.Sprintf("%d ironic", sites[0].ID), fmt.Sprintf("%d slurm", sites[1].ID)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sweeps (-want +got):\n%s", diff)
	}
}

func TestTheBacklogIsWhatNobodyWorksOn(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, _ := fleetOf(t, 1)
	sweep, projection, err := store.Backlog(ctx, db)
	must(t, err)
	if sweep <= 0 || projection <= 0 {
		t.Errorf("the backlog is %s and %s", sweep, projection)
	}
	claim(t, db, "a", long, 0, 1)
	_, err = store.ClaimProjections(ctx, db, "a", long, 1)
	must(t, err)
	if sweep, projection, err = store.Backlog(ctx, db); err != nil || sweep != 0 || projection != 0 {
		t.Errorf("the backlog is %s and %s, %v", sweep, projection, err)
	}
}
