package server

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/store"
)

const undefinedTable = "42P01" // PostgreSQL's code

// Open connects to a database and refuses one whose schema is older than this
// build's. A newer one is served: replicas of two versions run side by side
// while they are replaced.
func Open(ctx context.Context, url string, o store.Options) (*store.DB, error) {
	db, err := store.Open(ctx, url, o)
	if err != nil {
		return nil, err
	}
	version, err := schemaVersion(ctx, db)
	if newest := migrations.Newest(); err == nil && version < newest {
		err = fmt.Errorf("the database has schema %d, this build needs %d: run `muster migrate` with the same database first", version, newest)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// schemaVersion reads the newest migration that the database has, 0 for none.
func schemaVersion(ctx context.Context, db *store.DB) (int64, error) {
	var version int64
	err := db.QueryRow(ctx, "select coalesce(max(version_id), 0) from goose_db_version where is_applied").Scan(&version)
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == undefinedTable:
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read the version of the schema: %w", err)
	}
	return version, nil
}

// Unreachable reports whether an error says that the database, or another
// system, did not answer at all.
func Unreachable(err error) bool {
	var connect *pgconn.ConnectError
	var network *net.OpError
	return errors.As(err, &connect) || errors.As(err, &network) && network.Op == "dial"
}
