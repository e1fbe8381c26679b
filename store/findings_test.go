package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

var kinds = []string{fleet.FindingMissing, fleet.FindingAmbiguous}

func missing(refs ...string) []fleet.Finding {
	var findings []fleet.Finding
	for _, ref := range refs {
		findings = append(findings, fleet.Finding{Kind: fleet.FindingMissing, Ref: ref, Detail: map[string]any{"name": ref}})
	}
	return findings
}

func TestFindingsAreRewrittenAndKeepTheirBeginning(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, sites := fleetOf(t, 1)
	site := sites[0].ID
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", []string{fleet.FindingFailure}, []fleet.Finding{{Kind: fleet.FindingFailure}}))
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", kinds, append(missing("a", "b"), fleet.Finding{Kind: fleet.FindingAmbiguous, Ref: "x"})))
	first, err := store.Findings(ctx, db, site, "slurm", "", "", 10)
	must(t, err)
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", kinds, missing("b", "c")))
	then, err := store.Findings(ctx, db, site, "slurm", "", "", 10)
	must(t, err)
	since := map[string]time.Time{}
	for _, f := range first {
		since[f.Kind+f.Ref] = f.Since
	}
	var got []string
	for _, f := range then {
		got = append(got, f.Kind+" "+f.Ref)
		if before, kept := since[f.Kind+f.Ref]; kept && !before.Equal(f.Since) {
			t.Errorf("%s %s began again", f.Kind, f.Ref)
		}
	}
	if diff := cmp.Diff([]string{"failure ", "missing b", "missing c"}, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	page, err := store.Findings(ctx, db, site, "slurm", "missing", "b", 1)
	if err != nil || len(page) != 1 || page[0].Ref != "c" {
		t.Errorf("the next page is %+v, %v", page, err)
	}
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", kinds, nil))
	reports, err := store.SourceReports(ctx, db, site)
	if err != nil || len(reports) != 1 || !cmp.Equal(reports[0].Findings, map[string]int{"failure": 1}) {
		t.Errorf("reports %+v, %v", reports, err)
	}
}

func TestOnlyTheSetThatWasShownIsConfirmed(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db, sites := fleetOf(t, 1)
	site := sites[0].ID
	confirm := func(hash string) (refs []string, err error) {
		err = db.Tx(ctx, func(tx pgx.Tx) error {
			refs, err = store.Confirm(ctx, tx, store.Confirmation{SiteID: site, Source: "slurm", Hash: hash, Actor: "ada"})
			return err
		})
		return refs, err
	}
	if _, err := confirm("sha256:0"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("nothing is missing: %v", err)
	}
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", kinds, missing("b", "a")))
	_, shown, err := store.MissingSet(ctx, db, site, "slurm")
	must(t, err)
	must(t, store.ReplaceFindings(ctx, db, site, "slurm", kinds, missing("b", "a", "c")))
	if _, err := confirm(shown); !errors.Is(err, store.ErrFindingChanged) {
		t.Errorf("another set is confirmed: %v", err)
	}
	_, shown, err = store.MissingSet(ctx, db, site, "slurm")
	must(t, err)
	claim(t, db, "a", 0, 0, 1)
	refs, err := confirm(shown)
	if err != nil || !cmp.Equal(refs, []string{"a", "b", "c"}) {
		t.Fatalf("confirmed %v, %v", refs, err)
	}
	if hash, err := store.Confirmed(ctx, db, site, "slurm"); err != nil || !hash[shown] || len(hash) != 1 {
		t.Errorf("confirmed are %v, %v", hash, err)
	}
	must(t, store.SpendConfirmations(ctx, db, site, "slurm", db.Now().Add(-time.Hour)))
	if hash, _ := store.Confirmed(ctx, db, site, "slurm"); len(hash) == 0 {
		t.Error("a listing from before the confirmation ended it")
	}
	must(t, store.SpendConfirmations(ctx, db, site, "slurm", db.Now().Add(time.Hour)))
	if hash, _ := store.Confirmed(ctx, db, site, "slurm"); len(hash) != 0 {
		t.Error("the confirmation outlives the listing that answered it")
	}
	var audited int
	must(t, db.QueryRow(ctx, "select count(*) from audit where principal = 'ada' and action = 'source.confirm'").Scan(&audited))
	if audited != 1 {
		t.Errorf("%d audit rows", audited)
	}
}
