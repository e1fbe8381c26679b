package store_test

import (
	"context"
	"database/sql"
	"errors"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/store"
)

// Jobs come to a fleet that is there already: nobody who works on it waits.
func TestJobsCanBeAddedToAFilledDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	config, err := pgx.ParseConfig(url)
	must(t, err)
	old := stdlib.OpenDB(*config)
	defer old.Close()
	provider, err := goose.NewProvider(goose.DialectPostgres, old, migrations.FS())
	must(t, err)
	_, err = provider.UpTo(t.Context(), 2)
	must(t, err)
	for _, sql := range []string{
		"insert into sites (name, revision, spec, applied_by) select 's' || n, 1, '{}', 'test' from generate_series(1, 4) n",
		"insert into devices (site_id, name, name_key) select 1 + n % 4, 'd' || n, 'd' || n from generate_series(1, 20000) n",
		`insert into facts (device_id, source, site_id, ref, hash, body, seen_at) select id, 'ironic', site_id, name, '\x00', '{}', now() from devices`,
		"insert into conditions (device_id, type, status, reason, writer, last_transition_at) select id, t, 'True', 'R', 'openstack', now() from devices, unnest(array['A', 'B', 'C', 'D', 'E']) t",
	} {
		_, err := old.ExecContext(t.Context(), sql)
		must(t, err)
	}
	worst := make(chan time.Duration, 1)
	working, stop := context.WithCancel(t.Context())
	go func() { worst <- longestUpdate(working, old) }()
	_, err = migrations.Up(t.Context(), url)
	stop()
	must(t, err)
	if waited := <-worst; waited > time.Second {
		t.Errorf("whoever changed a device waited %v", waited)
	}
	db, err := store.Open(t.Context(), url, store.Options{MaxConns: 2})
	must(t, err)
	t.Cleanup(db.Close)
	var n int
	must(t, db.QueryRow(t.Context(), "select count(*) from devices d join facts f on f.device_id = d.id").Scan(&n))
	if n != 20000 {
		t.Errorf("%d devices are left", n)
	}
	if _, err := migrations.Up(t.Context(), url); err != nil {
		t.Errorf("a second time: %v", err)
	}
	_, err = provider.DownTo(t.Context(), 2)
	must(t, err)
	_, err = migrations.Up(t.Context(), url)
	must(t, err)
}

// longestUpdate changes devices until ctx ends, and gives how long the slowest
// change took.
func longestUpdate(ctx context.Context, db *sql.DB) (worst time.Duration) {
	for id := 1; ctx.Err() == nil; id++ {
		began := time.Now()
		if _, err := db.ExecContext(ctx, "update devices set updated_at = now() where id = $1", 1+id%20000); err != nil {
			return worst
		}
		worst = max(worst, time.Since(began))
	}
	return worst
}

func TestMigrateSaysWhatToInstallWhereLocksCannotBe(t *testing.T) {
	t.Parallel()
	sql, err := migrations.FS().Open("00003_jobs.sql")
	must(t, err)
	defer sql.Close()
	body := make([]byte, 4096)
	n, _ := sql.Read(body)
	block := string(body[:n])
	block = block[strings.Index(block, "do $$"):]
	block = block[:strings.Index(block, "end $$;")+len("end $$;")]
	for name, c := range map[string]struct{ from, to, want string }{
		"not installed": {"'btree_gist'", "'btree_gist_that_nobody_has'", "postgresql-contrib"},
	} {
		db, err := store.Open(t.Context(), pgtest.Database(t), store.Options{MaxConns: 1})
		must(t, err)
		_, err = db.Exec(t.Context(), strings.Replace(block, c.from, c.to, 1))
		db.Close()
		if hint := hintOf(err); !strings.Contains(hint, c.want) {
			t.Errorf("%s: %v (%s)", name, err, hint)
		}
	}
}

func TestMigrateSaysWhatToGrantWhereLocksMayNotBe(t *testing.T) {
	t.Parallel()
	owner := pgtest.Database(t)
	db, err := store.Open(t.Context(), owner, store.Options{MaxConns: 1})
	must(t, err)
	t.Cleanup(db.Close)
	config := db.Config().ConnConfig
	role := "plain_" + config.Database[:min(len(config.Database), 40)]
	for _, sql := range []string{"create role " + role + " login password 'x'", "grant create on schema public to " + role} {
		_, err := db.Exec(t.Context(), sql)
		must(t, err)
	}
	t.Cleanup(func() {
		_, err := db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role)
		if err != nil {
			t.Error(err)
		}
	})
	u, err := neturl.Parse(owner)
	must(t, err)
	u.User = neturl.UserPassword(role, "x")
	if _, err := migrations.Up(t.Context(), u.String()); err == nil || !strings.Contains(err.Error(), "may not be created by "+role) || !strings.Contains(err.Error(), "grant CREATE on the database") {
		t.Errorf("%v", err)
	}
	_, err = db.Exec(t.Context(), "grant create on database "+config.Database+" to "+role)
	must(t, err)
	_, err = migrations.Up(t.Context(), u.String())
	must(t, err)
}

func hintOf(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Hint
	}
	return ""
}
