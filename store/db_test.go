package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/store"
)

func open(t *testing.T, o store.Options) *store.DB {
	t.Helper()
	t.Parallel()
	db, err := store.Open(t.Context(), pgtest.Database(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if _, err := db.Exec(t.Context(), "create table counters (id int primary key, n int not null)"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), "insert into counters values (1, 0), (2, 0)"); err != nil {
		t.Fatal(err)
	}
	return db
}

func TestADeadlockIsTriedAgain(t *testing.T) {
	db := open(t, store.Options{})
	var wait sync.WaitGroup
	both := make(chan struct{})
	var arrived atomic.Int32
	failed := make(chan error, 2)
	for first := 1; first <= 2; first++ {
		wait.Go(func() {
			tries := 0
			failed <- db.Tx(t.Context(), func(tx pgx.Tx) error {
				tries++
				if _, err := tx.Exec(t.Context(), "update counters set n = n + 1 where id = $1", first); err != nil {
					return err
				}
				if tries == 1 { // each holds one row before either asks for the other's
					if arrived.Add(1) == 2 {
						close(both)
					}
					<-both
				}
				_, err := tx.Exec(t.Context(), "update counters set n = n + 1 where id = $1", 3-first)
				return err
			})
		})
	}
	wait.Wait()
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	var sum int
	if err := db.QueryRow(t.Context(), "select sum(n) from counters").Scan(&sum); err != nil || sum != 4 {
		t.Fatalf("sum is %d, %v", sum, err)
	}
}

func TestAFailureIsTriedOnlyAFewTimes(t *testing.T) {
	db := open(t, store.Options{})
	tries := 0
	err := db.Tx(t.Context(), func(tx pgx.Tx) error {
		tries++
		_, err := tx.Exec(t.Context(), "do $$ begin raise exception 'no' using errcode = 'serialization_failure'; end $$")
		return err
	})
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || tries < 2 || tries > 10 {
		t.Fatalf("%d tries, %v", tries, err)
	}
	tries = 0
	if err := db.Tx(t.Context(), func(pgx.Tx) error { tries++; return store.ErrNotFound }); !errors.Is(err, store.ErrNotFound) || tries != 1 {
		t.Fatalf("another error: %d tries, %v", tries, err)
	}
}

func TestALivePoolOutlivesAMigration(t *testing.T) {
	db := open(t, store.Options{MaxConns: 2})
	read := func() error {
		return db.Tx(t.Context(), func(tx pgx.Tx) error {
			var n int
			return tx.QueryRow(t.Context(), "select n from counters where id = $1", 1).Scan(&n)
		})
	}
	for range 8 { // prepared, and planned once and for all
		if err := read(); err != nil {
			t.Fatal(err)
		}
	}
	for _, change := range []string{"alter table counters add column more text", "alter table counters alter column n type bigint"} {
		if _, err := db.Exec(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := read(); err != nil {
				t.Fatalf("after %q: %v", change, err)
			}
		}
	}
}

func TestACancelledTransactionLeavesNoLockAndNoConnection(t *testing.T) {
	db := open(t, store.Options{MaxConns: 1, AcquireTimeout: time.Minute})
	for range 5 {
		ctx, cancel := context.WithCancel(t.Context())
		err := db.Tx(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update counters set n = n + 1"); err != nil {
				return err
			}
			cancel()
			_, err := tx.Exec(ctx, "select 1")
			return err
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	var n, idle int
	if err := db.QueryRow(t.Context(), "select n from counters where id = 1 for update nowait").Scan(&n); err != nil || n != 0 {
		t.Fatalf("n is %d, %v", n, err)
	}
	if err := db.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'").Scan(&idle); err != nil || idle != 0 {
		t.Fatalf("%d connections idle in a transaction, %v", idle, err)
	}
}

func TestAPanicGivesTheConnectionBack(t *testing.T) {
	db := open(t, store.Options{MaxConns: 1})
	func() {
		defer func() { _ = recover() }()
		_ = db.Tx(t.Context(), func(pgx.Tx) error { panic("a bug") })
	}()
	if err := db.Tx(t.Context(), func(pgx.Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestWaitingForAConnectionHasAnEnd(t *testing.T) {
	db := open(t, store.Options{MaxConns: 1, AcquireTimeout: 50 * time.Millisecond})
	err := db.Tx(t.Context(), func(pgx.Tx) error {
		return db.Tx(t.Context(), func(pgx.Tx) error { return nil })
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	db := open(t, store.Options{StatementTimeout: 7 * time.Second, IdleInTransaction: 9 * time.Second, Application: "muster test"})
	for name, want := range map[string]string{
		"statement_timeout": "7s", "idle_in_transaction_session_timeout": "9s", "application_name": "muster test", "timezone": "UTC",
	} {
		var got string
		if err := db.QueryRow(t.Context(), fmt.Sprintf("show %s", name)).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q, %v", name, got, want, err)
		}
	}
	if off := db.ClockOffset(); off.Abs() > time.Second {
		t.Errorf("the clock of a server on this machine is off by %v", off)
	}
}
