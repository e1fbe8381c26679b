package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// waiting reports whether a session of the database waits for a lock.
func waiting(t *testing.T, db *store.DB) bool {
	t.Helper()
	var n int
	must(t, db.QueryRow(t.Context(), "select count(*) from pg_locks where not granted and (database is null or database = (select oid from pg_database where datname = current_database()))").Scan(&n))
	return n > 0
}

// What the owner of a lease writes, it writes before the next owner reads.
func TestALeaseStaysWithItsOwnerUntilItsBatchIsWritten(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, sites := fleetOf(t, 1)
	site := sites[0].ID
	mine := claim(t, db, "a", 0, 0, 1)[0] // it has run out at once
	must(t, db.Tx(ctx, func(tx pgx.Tx) error {
		held, err := store.KeepSweep(ctx, tx, site, "slurm", "a", mine.Epoch)
		if err != nil || !held {
			t.Errorf("held %v, %v", held, err)
		}
		if got := claim(t, db, "b", long, 0, 1); len(got) != 0 {
			t.Errorf("another took it in the middle: %+v", got)
		}
		if renewed, err := store.RenewSweep(ctx, db, mine, 0); err != nil || !renewed {
			t.Errorf("the owner's heartbeat: %v, %v", renewed, err)
		}
		return store.AdvanceWatermark(ctx, tx, site, "slurm", db.Now(), "")
	}))
	taken := claim(t, db, "b", long, 0, 1)
	if len(taken) != 1 {
		t.Fatalf("afterwards nobody gets it: %+v", taken)
	}
	must(t, db.Tx(ctx, func(tx pgx.Tx) error {
		if held, err := store.KeepSweep(ctx, tx, site, "slurm", "a", mine.Epoch); err != nil || held {
			t.Errorf("the old owner still has it: %v, %v", held, err)
		}
		return nil
	}))
}

// Nobody judges by the old site once the new one is there, and a change of the
// site never waits for a device, nor a device's row for it.
func TestAChangeOfASiteWaitsForThoseWhoJudgeByTheOldOne(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, sites := fleetOf(t, 1)
	changed := make(chan error, 1)
	must(t, db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock_shared($1)", int64(store.BundleLock)); err != nil {
			return err
		}
		go func() {
			changed <- db.Tx(context.WithoutCancel(ctx), func(tx pgx.Tx) error {
				s, err := store.LockSite(ctx, tx, "s0")
				if err != nil {
					return err
				}
				_, err = store.PutSite(ctx, tx, s)
				return err
			})
		}()
		for deadline := time.Now().Add(10 * time.Second); !waiting(t, db); {
			if time.Now().After(deadline) {
				t.Fatal("the change does not wait")
			}
			<-time.After(5 * time.Millisecond)
		}
		ids, err := store.NewDeviceIDs(ctx, tx, 1)
		if err != nil {
			return err
		}
		if err := store.InsertDevices(ctx, tx, sites[0].ID, []*fleet.Device{{ID: ids[0], SiteID: sites[0].ID, Name: "n", UpdatedAt: db.Now()}}); err != nil {
			return err
		}
		now, err := store.SiteByID(ctx, tx, sites[0].ID)
		if err != nil || now.Revision != 1 {
			t.Errorf("revision %d is seen before its time, %v", now.Revision, err)
		}
		return nil
	}))
	must(t, <-changed)
	if now, err := store.SiteByID(ctx, db, sites[0].ID); err != nil || now.Revision != 2 {
		t.Errorf("revision %d, %v", now.Revision, err)
	}
}

func TestFindingsTakeAnyText(t *testing.T) {
	t.Parallel()
	db, sites := fleetOf(t, 1)
	must(t, store.ReplaceFindings(t.Context(), db, sites[0].ID, "slurm", []string{"unjoined"}, []fleet.Finding{{
		Kind: "unjoined", Ref: "n\x00\xff", Detail: map[string]any{"na\x00me": "a\x00b", "list": []any{"\x00", map[string]any{"x": "\xff"}}, "said": `\u0000`},
	}}))
	rows, err := store.Findings(t.Context(), db, sites[0].ID, "slurm", "", "", 10)
	must(t, err)
	if len(rows) != 1 || rows[0].Ref != "n\uFFFD" || rows[0].Detail["name"] != "ab" || rows[0].Detail["said"] != `\u0000` {
		t.Errorf("%+v", rows)
	}
}

func TestStoredWordsOfAnotherBuildReadAsUnknown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db, sites := fleetOf(t, 1)
	var id int64
	must(t, db.QueryRow(ctx, `insert into devices (site_id, name, name_key, device_class, inventory_status, operational_status, health_status,
			ironic_provision_state, slurm_states, chassis_health, enrollment_proof_source, annotations)
		values ($1, 'n', 'n', 'toaster', 'lent', 'exploded', 'feverish', 'levitating', '{IDLE,SINGING}', 'Meh', 'rumour', '{"impairment-event-id": 7}') returning id`, sites[0].ID).Scan(&id))
	found, err := store.DevicesByID(ctx, db, []int64{id})
	must(t, err)
	d := found[0]
	got := []string{d.Class.String(), d.Inventory.String(), d.Operational.String(), d.Health.String(), d.IronicProvisionState.String(), d.ChassisHealth.String()}
	for i, want := range []string{"other", "unknown", "unknown", "unknown", "", ""} {
		if got[i] != want {
			t.Errorf("column %d reads %q, want %q", i, got[i], want)
		}
	}
	if tokens := d.SlurmStates.Tokens(); len(tokens) != 1 || tokens[0] != "IDLE" || !d.ImpairmentHold() {
		t.Errorf("SLURM's states read %v, held %v", tokens, d.ImpairmentHold())
	}
	_, err = db.Exec(ctx, "alter table conditions drop constraint conditions_status_check")
	must(t, err)
	_, err = db.Exec(ctx, "insert into conditions (device_id, type, status, reason, writer, last_transition_at) values ($1, 'Old', 'Perhaps', 'X', 'y', now())", id)
	must(t, err)
	conditions, err := store.ConditionsOf(ctx, db, []int64{id})
	must(t, err)
	if len(conditions) != 1 || conditions[0].Status != fleet.Unknown {
		t.Errorf("%+v", conditions)
	}
}
