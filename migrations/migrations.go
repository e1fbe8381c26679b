// Package migrations holds the numbered SQL of the schema, embedded, and runs
// it. Migrations are forward and small; a file that was released is never
// edited.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

//go:embed *.sql
var files embed.FS

// FS gives the numbered files.
func FS() fs.FS { return files }

// Up brings the database at url to the newest version and returns it. Running
// it again changes nothing. Two runs at once wait for each other.
func Up(ctx context.Context, url string) (version int64, err error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return 0, fmt.Errorf("read the database URL: %w", err)
	}
	db := stdlib.OpenDB(*config)
	defer func() { err = closeAfter(db, err) }()
	// One session holds the lock from the first look to the last statement.
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { err = closeAfter(conn, err) }()
	if _, err := conn.ExecContext(ctx, "select pg_advisory_lock(hashtext('muster migrations'))"); err != nil {
		return 0, fmt.Errorf("lock the schema: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files)
	if err != nil {
		return 0, fmt.Errorf("read the migrations: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return 0, fmt.Errorf("migrate: %w", withHint(err))
	}
	return provider.GetDBVersion(ctx)
}

// withHint adds what the database, or a migration, says to do about an error.
func withHint(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Hint == "" {
		return err
	}
	return fmt.Errorf("%w. %s", err, pg.Hint)
}

// Newest is the version that this build brings a database to.
func Newest() int64 {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return 0
	}
	newest, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		return 0
	}
	return newest
}

type closer interface{ Close() error }

func closeAfter(c closer, err error) error {
	if cerr := c.Close(); err == nil && cerr != nil && cerr != sql.ErrConnDone {
		return fmt.Errorf("close the database: %w", cerr)
	}
	return err
}
