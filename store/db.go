package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Querier runs statements: a pool, a connection or a transaction.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Options bound what one connection may cost. Zero values take the defaults.
type Options struct {
	Application       string        // application_name, default "muster"
	MaxConns          int32         // default 16
	ConnectTimeout    time.Duration // default 5 s
	AcquireTimeout    time.Duration // how long a transaction waits for a connection, default 10 s
	StatementTimeout  time.Duration // default 30 s
	LockTimeout       time.Duration // default 10 s
	IdleInTransaction time.Duration // a transaction that idles this long is ended by the server, default 30 s
}

// DB is the pool of connections of one process.
type DB struct {
	*pgxpool.Pool
	acquire time.Duration
	offset  atomic.Int64 // nanoseconds that the database's clock is ahead of ours
}

const (
	txAttempts      = 5
	rollbackTimeout = 5 * time.Second
	clockTries      = 3
	clockInterval   = time.Minute
)

// Open connects to the database at url and measures how far its clock is ahead.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	o = o.withDefaults()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	config.MaxConns = o.MaxConns
	config.ConnConfig.ConnectTimeout = o.ConnectTimeout
	for name, value := range map[string]string{
		"application_name":                    o.Application,
		"statement_timeout":                   millis(o.StatementTimeout),
		"lock_timeout":                        millis(o.LockTimeout),
		"idle_in_transaction_session_timeout": millis(o.IdleInTransaction),
		"timezone":                            "UTC",
		"jit":                                 "off", // it costs more than any statement here
		"random_page_cost":                    "1.1", // one site's rows are found by an index, not by reading all sites
	} {
		config.ConnConfig.RuntimeParams[name] = value
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db := &DB{Pool: pool, acquire: o.AcquireTimeout}
	if err := db.MeasureClock(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

func (o Options) withDefaults() Options {
	if o.Application == "" {
		o.Application = "muster"
	}
	if o.MaxConns == 0 {
		o.MaxConns = 16
	}
	for _, d := range []struct {
		value    *time.Duration
		fallback time.Duration
	}{
		{&o.ConnectTimeout, 5 * time.Second}, {&o.AcquireTimeout, 10 * time.Second}, {&o.StatementTimeout, 30 * time.Second},
		{&o.LockTimeout, 10 * time.Second}, {&o.IdleInTransaction, 30 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.fallback
		}
	}
	return o
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// Tx runs f in a transaction. It commits when f returns nil, else rolls back.
// A serialization failure, a deadlock and a plan that a migration made stale
// run f again, a few times: f must have no effect outside tx.
func (db *DB) Tx(ctx context.Context, f func(pgx.Tx) error) error {
	var err error
	for attempt := range txAttempts {
		if err = db.once(ctx, f); !retryable(err) || ctx.Err() != nil {
			return err
		}
		pause := time.NewTimer(time.Duration(1+rand.IntN(10<<attempt)) * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
	return fmt.Errorf("gave up after %d attempts: %w", txAttempts, err)
}

func (db *DB) once(ctx context.Context, f func(pgx.Tx) error) error {
	waiting, cancel := context.WithTimeout(ctx, db.acquire)
	conn, err := db.Acquire(waiting)
	cancel()
	if err != nil {
		return fmt.Errorf("wait for a database connection: %w", err)
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	// The caller's context may be over by then, and the locks must go all the same.
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		_ = tx.Rollback(ending) // after a commit, or on a closed connection, there is nothing to undo
	}()
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// retryable tells the failures after which the same transaction may succeed.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return true
	case "0A000": // a statement prepared before a migration
		return pg.Routine == "RevalidateCachedQuery"
	}
	return false
}

// DataError reports whether the database refused the data itself (its form, a
// constraint), so that the same rows will be refused again.
func DataError(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	return pg.Code[:2] == "22" || pg.Code[:2] == "23"
}

// LockTimedOut reports whether a statement waited too long for what another
// transaction holds.
func LockTimedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// Clock gives the present instant.
type Clock func() time.Time

// Now gives the present instant by the database's clock, as measured last.
// All instants that order or age facts are this clock's. Microseconds, as the
// database keeps them.
func (db *DB) Now() time.Time {
	return time.Now().Add(db.ClockOffset()).UTC().Truncate(time.Microsecond)
}

// ClockOffset is how far the database's clock is ahead of this process's.
func (db *DB) ClockOffset() time.Duration { return time.Duration(db.offset.Load()) }

// MeasureClock compares the clocks: of a few tries the one with the shortest
// round trip counts.
func (db *DB) MeasureClock(ctx context.Context) error {
	shortest := time.Duration(-1)
	for range clockTries {
		before := time.Now()
		var there time.Time
		if err := db.QueryRow(ctx, "select clock_timestamp()").Scan(&there); err != nil {
			return fmt.Errorf("read the database's clock: %w", err)
		}
		if trip := time.Since(before); shortest < 0 || trip < shortest {
			shortest = trip
			db.offset.Store(int64(there.Sub(before.Add(trip / 2))))
		}
	}
	return nil
}

// FollowClock measures the clock every minute until ctx ends. A measurement
// that fails leaves the last one.
func (db *DB) FollowClock(ctx context.Context) {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = db.MeasureClock(ctx)
		}
	}
}
