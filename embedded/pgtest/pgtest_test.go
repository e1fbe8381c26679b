package pgtest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func exec(t testing.TB, url, sql string) {
	t.Helper()
	if err := run(t.Context(), url, sql); err != nil {
		t.Fatal(err)
	}
}

func run(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func value[T any](t testing.TB, url, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one", "two", "a name that is longer than PostgreSQL's sixty-three bytes, with \"quotes\" and ümläuts"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.Database(t)
			exec(t, url, "CREATE TABLE a (v int)") // fails if shared
			if n := value[int](t, url, "SELECT count(*) FROM a"); n != 0 {
				t.Errorf("the new table holds %d rows", n)
			}
		})
	}
}

func TestDatabaseIsDroppedWithItsTestAndOpenConnections(t *testing.T) {
	t.Parallel()
	outer := pgtest.Database(t)
	var name string
	t.Run("inner", func(t *testing.T) {
		url := pgtest.Database(t)
		name = value[string](t, url, "SELECT current_database()")
		// Held past the end of the test on purpose.
		if _, err := pgx.Connect(context.Background(), url); err != nil {
			t.Fatal(err)
		}
	})
	if value[bool](t, outer, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = '"+name+"')") {
		t.Errorf("database %s outlives its test", name)
	}
}

func TestTemplateIsPreparedOnceAndClonesAreSeparate(t *testing.T) {
	t.Parallel()
	prepared := 0
	for _, name := range []string{"first", "second", "third"} {
		t.Run(name, func(t *testing.T) {
			url := pgtest.Template(t, "once", func(url string) error {
				prepared++
				return run(context.Background(), url, "CREATE TABLE a (v int); INSERT INTO a VALUES (7)")
			})
			if v := value[int](t, url, "SELECT sum(v) FROM a"); v != 7 {
				t.Errorf("the clone's sum is %d, want 7 as prepared", v)
			}
			exec(t, url, "INSERT INTO a VALUES (1)")
		})
	}
	if prepared != 1 {
		t.Errorf("prepared %d times, want once", prepared)
	}
}

func TestTestsInParallelShareATemplate(t *testing.T) {
	t.Parallel()
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			url := pgtest.Template(t, "parallel", func(url string) error {
				return run(context.Background(), url, "CREATE TABLE b (v int)")
			})
			exec(t, url, "INSERT INTO b VALUES (1)")
		})
	}
}

func BenchmarkClone(b *testing.B) {
	for b.Loop() {
		pgtest.Template(b, "benchmark", func(url string) error {
			return run(context.Background(), url, "CREATE TABLE c (v int)")
		})
	}
}
