package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// queryTimeout bounds each statement here; clones queue on a busy machine.
	queryTimeout = time.Minute
	// cloneAttempts and clonePause bound the wait for a template that some
	// connection still holds.
	cloneAttempts = 20
	clonePause    = 100 * time.Millisecond
	// objectInUse is the SQLSTATE of a template that has connections.
	objectInUse = "55006"
)

// shared is the one server of this test binary. It is a package variable since
// tests have nothing else in common.
var shared binary

// binary holds what the tests of one binary share.
type binary struct {
	mu        sync.Mutex
	server    *server // nil before the first use
	failed    error   // why there is none: every later test fails with it too
	templates map[string]*template
}

// template is a database that is cloned. Its fields are final once ready runs.
type template struct {
	ready    sync.Once
	database string
	err      error
}

// Database creates an empty database for this test and returns its URL, for
// pgx. Connections still open when the test ends are cut off.
func Database(t testing.TB) string {
	t.Helper()
	s := shared.start(t)
	return s.database(t, "")
}

// Template is Database with the contents that prepare gives a database, by its
// URL. prepare runs once in a test binary for each name, whichever test comes
// first, and must close its connections.
func Template(t testing.TB, name string, prepare func(url string) error) string {
	t.Helper()
	s := shared.start(t)
	tm := shared.template(name)
	tm.ready.Do(func() { tm.database, tm.err = s.prepare(name, prepare) })
	if tm.err != nil {
		t.Fatalf("prepare the template database %q: %v", name, tm.err)
	}
	return s.database(t, tm.database)
}

// Main runs the tests, then ends the server and removes what it left. Call it
// as the last statement of TestMain; the exit status is the tests'.
func Main(m *testing.M) {
	m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
	}
}

func (b *binary) start(t testing.TB) *server {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil && b.failed == nil {
		b.server, b.failed = newServer(os.Getenv("MUSTER_TEST_POSTGRES_URL"))
	}
	if b.failed != nil {
		t.Fatalf("start a PostgreSQL for tests: %v", b.failed)
	}
	return b.server
}

func (b *binary) template(name string) *template {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.templates == nil {
		b.templates = map[string]*template{}
	}
	if b.templates[name] == nil {
		b.templates[name] = &template{}
	}
	return b.templates[name]
}

func (b *binary) stop() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server == nil {
		return nil
	}
	var errs []error
	for _, tm := range b.templates {
		if tm.database != "" {
			errs = append(errs, b.server.dropTemplate(tm.database))
		}
	}
	errs = append(errs, b.server.close())
	b.server, b.failed = nil, errors.New("the tests are over")
	return errors.Join(errs...)
}

// database creates a database as a clone of a template, of PostgreSQL's own
// when it is empty, and drops it at the end of the test.
func (s *server) database(t testing.TB, template string) string {
	t.Helper()
	name := uniqueName(t.Name())
	create := "CREATE DATABASE " + quote(name)
	if template != "" {
		create += " TEMPLATE " + quote(template)
	}
	if err := s.execRetrying(create); err != nil {
		t.Fatalf("create a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := s.exec("DROP DATABASE IF EXISTS " + quote(name) + " WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return s.urlOf(name)
}

// prepare makes a template database; on failure it leaves none.
func (s *server) prepare(name string, fill func(url string) error) (string, error) {
	database := uniqueName("template_" + name)
	if err := s.execRetrying("CREATE DATABASE " + quote(database)); err != nil {
		return "", err
	}
	err := fill(s.urlOf(database))
	if err == nil {
		// Nobody may connect any more: a connection would block every clone.
		err = s.exec("ALTER DATABASE " + quote(database) + " WITH ALLOW_CONNECTIONS false")
	}
	if err != nil {
		return "", errors.Join(err, s.dropTemplate(database))
	}
	return database, nil
}

func (s *server) dropTemplate(database string) error {
	return s.exec("DROP DATABASE IF EXISTS " + quote(database) + " WITH (FORCE)")
}

// execRetrying is exec for statements that fail while a template is in use.
func (s *server) execRetrying(sql string) (err error) {
	for range cloneAttempts {
		var refused *pgconn.PgError
		if err = s.exec(sql); !errors.As(err, &refused) || refused.Code != objectInUse {
			return err
		}
		time.Sleep(clonePause)
	}
	return err
}

// exec runs one statement on a connection of its own: tests that look for
// leaked goroutines or connections find none of ours.
func (s *server) exec(sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return fmt.Errorf("connect to the test server: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}

// urlOf names a database of the server.
func (s *server) urlOf(database string) string {
	u, err := url.Parse(s.admin)
	if err != nil {
		panic(err) // newServer has parsed it
	}
	u.Path = "/" + database
	q := u.Query()
	q.Del("dbname")                                         // would win over the path
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // to pgx a plus is no space
	return u.String()
}

// uniqueName makes a database name that says whose it is and that no other
// test binary on the same server takes.
func uniqueName(of string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, of)
	return fmt.Sprintf("mt_%s_%.34s", strings.ToLower(rand.Text()[:20]), clean)
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
