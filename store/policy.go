package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// BundleLock is the advisory lock of what everybody judges by, the active bundle
// and the sites: shared by whoever judges, exclusive for the statement that
// changes one of them.
const BundleLock = 0x6d757374657201

// PolicyChannel is notified with the version at each activation.
const PolicyChannel = "muster_policy"

// ActivePolicy is the row that says by which bundle decisions are made.
type ActivePolicy struct {
	Version     string
	ActivatedAt time.Time
	ActivatedBy string
}

// PolicyBundle is a stored bundle: policies/ alone.
type PolicyBundle struct {
	Version   string
	Semantics int
	Files     map[string]string
	StoredAt  time.Time
	StoredBy  string
}

// ErrNotFound says that there is no such row.
var ErrNotFound = errors.New("not found")

// Active reads the active bundle's row; ErrNotFound before the first activation.
func Active(ctx context.Context, q Querier) (ActivePolicy, error) {
	var a ActivePolicy
	err := q.QueryRow(ctx, "select version, activated_at, activated_by from active_policy").Scan(&a.Version, &a.ActivatedAt, &a.ActivatedBy)
	return a, found(err, "read the active policy")
}

// Bundle reads one stored bundle.
func Bundle(ctx context.Context, q Querier, version string) (PolicyBundle, error) {
	b := PolicyBundle{Version: version}
	err := q.QueryRow(ctx, "select semantics, files, stored_at, stored_by from policy_bundles where version = $1", version).
		Scan(&b.Semantics, &b.Files, &b.StoredAt, &b.StoredBy)
	return b, found(err, "read policy bundle "+version)
}

// StoreBundle keeps a bundle; one that is there already stays as it is.
func StoreBundle(ctx context.Context, q Querier, b PolicyBundle) error {
	_, err := q.Exec(ctx, `insert into policy_bundles (version, semantics, files, stored_by) values ($1, $2, $3, $4)
		on conflict (version) do nothing`, b.Version, b.Semantics, b.Files, b.StoredBy)
	if err != nil {
		return fmt.Errorf("store policy bundle: %w", err)
	}
	return nil
}

// Activate makes a stored bundle the active one. The exclusive lock is held
// from this statement to the end of the transaction: call it last.
func Activate(ctx context.Context, tx pgx.Tx, version, actor string) error {
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock($1)", int64(BundleLock)); err != nil {
		return fmt.Errorf("lock the active policy: %w", err)
	}
	_, err := tx.Exec(ctx, `insert into active_policy (version, activated_by) values ($1, $2)
		on conflict (one) do update set version = excluded.version, activated_by = excluded.activated_by, activated_at = now()`, version, actor)
	if err != nil {
		return fmt.Errorf("activate policy: %w", err)
	}
	if _, err := tx.Exec(ctx, `insert into projections (site_id) select id from sites
		on conflict (site_id) do update set due_at = now()`); err != nil {
		return fmt.Errorf("ask for the projection of every site: %w", err)
	}
	if _, err := tx.Exec(ctx, "select pg_notify($1, $2)", PolicyChannel, version); err != nil {
		return fmt.Errorf("tell the other replicas: %w", err)
	}
	return nil
}

// ConditionBits reads which bit each condition type has in stored masks.
func ConditionBits(ctx context.Context, q Querier) (map[string]uint8, error) {
	rows, err := q.Query(ctx, "select type, bit from condition_types")
	if err != nil {
		return nil, fmt.Errorf("read condition types: %w", err)
	}
	bits := map[string]uint8{}
	var name string
	var bit int16
	if _, err := pgx.ForEachRow(rows, []any{&name, &bit}, func() error {
		bits[name] = uint8(bit)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read condition types: %w", err)
	}
	return bits, nil
}

// GiveBits gives each new type the next free bit, in the order given, and
// returns all of them. Two activations at once wait for each other.
func GiveBits(ctx context.Context, tx pgx.Tx, types []string, version string) (map[string]uint8, error) {
	if _, err := tx.Exec(ctx, "lock table condition_types in share row exclusive mode"); err != nil {
		return nil, fmt.Errorf("lock condition types: %w", err)
	}
	bits, err := ConditionBits(ctx, tx)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, bit := range bits {
		next = max(next, int(bit)+1)
	}
	for _, name := range types {
		if _, known := bits[name]; known {
			continue
		}
		if next > 63 {
			return nil, fmt.Errorf("condition type %s: all 64 bits are given, and a bit is never reused", name)
		}
		if _, err := tx.Exec(ctx, "insert into condition_types (type, bit, first_version) values ($1, $2, $3)", name, next, version); err != nil {
			return nil, fmt.Errorf("give condition type %s its bit: %w", name, err)
		}
		bits[name] = uint8(next)
		next++
	}
	return bits, nil
}

func found(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("%s: %w", doing, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
