package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	superuser   = "postgres"
	defaultPort = 5432
	// maxSocketPath is what the kernel takes for the path of a socket, in bytes.
	maxSocketPath = 107
	// maxIdentifier is where PostgreSQL would cut a name, silently.
	maxIdentifier = 63
	// startTimeout bounds a whole start: the end of an earlier server, initdb,
	// and recovery after a crash.
	startTimeout = 3 * time.Minute
	// stopTimeout bounds the ordered shutdown when a start has failed.
	stopTimeout = 10 * time.Second
)

// SQLSTATEs that are judged here.
const (
	cannotConnectNow  = "57P03"
	duplicateDatabase = "42P04"
	uniqueViolation   = "23505"
)

// PostgresOptions says where and how a private PostgreSQL runs.
type PostgresOptions struct {
	// Dir holds the cluster, its socket and its lock; made when missing. Its
	// path may be 90 bytes long at most, for the socket's sake. When this process
	// is root, each folder on the way must be open (o+x) to the server's user.
	Dir string
	// BinDir holds the programs; empty = search (see FindPostgres).
	BinDir string
	// User is whom a process of root runs the server as; empty = the owner of
	// the cluster, for a new one postgres, else nobody.
	User string
	// Port on 127.0.0.1, where roles need a password; 0 = the socket only.
	Port int
	// Params are server settings. fsync=off also creates the cluster unsynced.
	Params map[string]string
	// Log gets the server's log; nil drops it. A Log that blocks, blocks the server.
	Log io.Writer
}

// Postgres is a running server, owned by this process. Its methods may be
// called by any goroutine.
type Postgres struct {
	socket string
	port   int
	server *child
	lock   *os.File
	asked  atomic.Bool // Stop came before the server's end
}

// StartPostgres starts the server of o.Dir, creating the cluster if there is
// none, and returns when it answers. It fails with ErrInUse when the directory
// has an owner, with *MismatchError when another major version made it. ctx
// bounds the start only (and 3 minutes do); Stop ends the server.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	port := o.Port
	if port == 0 {
		port = defaultPort
	}
	if n := len(c.socket()) + len("/.s.PGSQL.") + len(strconv.Itoa(port)); n > maxSocketPath {
		return nil, fmt.Errorf("the socket in %s would have a path of %d bytes, the kernel takes %d: choose a shorter directory",
			c.socket(), n, maxSocketPath)
	}
	if err := makeOpen(c.dir); err != nil {
		return nil, err
	}
	lock, err := acquire(filepath.Join(c.dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("PostgreSQL in %s: %w", c.dir, err)
	}
	p := &Postgres{socket: c.socket(), port: port, lock: lock}
	if err := p.start(ctx, c, o); err != nil {
		return nil, errors.Join(err, release(lock))
	}
	return p, nil
}

func newCluster(ctx context.Context, o PostgresOptions) (*cluster, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, errors.Join(errors.New("PostgreSQL needs a directory"), err)
	}
	b, err := FindPostgres(ctx, o.BinDir, dir)
	if err != nil {
		return nil, err
	}
	as, err := serverAccount(o.User, filepath.Join(dir, dataName))
	if err != nil {
		return nil, err
	}
	return &cluster{dir: dir, binaries: b, as: as, fast: o.Params["fsync"] == "off"}, nil
}

// makeOpen makes a missing folder one that the server's user may pass through
// but not write to, so that it cannot exchange the lock. One that is there
// already is the caller's, and stays as it is.
func makeOpen(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	if err := os.Chmod(dir, mode); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	return nil
}

func (p *Postgres) start(ctx context.Context, c *cluster, o PostgresOptions) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	args := []string{"-D", c.data(), "-k", c.socket(), "-p", strconv.Itoa(p.port), "-c", "unix_socket_permissions=0700"}
	if o.Port == 0 {
		args = append(args, "-c", "listen_addresses=")
	} else {
		args = append(args, "-c", "listen_addresses=127.0.0.1")
	}
	for k, v := range o.Params {
		args = append(args, "-c", k+"="+v)
	}
	cmd := exec.Command(filepath.Join(c.binaries.Dir, "postgres"), args...)
	// SIGINT is PostgreSQL's fast shutdown: clients are cut off, data is written.
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", environment(), childAttributes(c.as, syscall.SIGINT)
	server, err := startChild(cmd, o.Log)
	if err != nil {
		return fmt.Errorf("start PostgreSQL: %w", c.explain(err))
	}
	p.server = server
	if err := p.await(ctx); err != nil {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		return errors.Join(err, server.stop(stopping, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL))
	}
	return nil
}

// await returns when the server answers, has ended, or ctx has.
func (p *Postgres) await(ctx context.Context) error {
	for {
		conn, err := pgx.Connect(ctx, p.URL())
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.server.done:
			return fmt.Errorf("PostgreSQL ended at its start (%v):\n%s", p.server.err, p.server.output.tail())
		default:
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != cannotConnectNow {
			return fmt.Errorf("connect to the private PostgreSQL: %w", err)
		}
		if pause(ctx) != nil {
			return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, p.server.output.tail())
		}
	}
}

// URL names the database "postgres", as superuser over the socket, for pgx.
func (p *Postgres) URL() string { return p.databaseURL("postgres") }

func (p *Postgres) databaseURL(name string) string {
	q := url.Values{"host": {p.socket}, "port": {strconv.Itoa(p.port)}}
	// A plus would be taken for itself: to pgx it is no space.
	query := strings.ReplaceAll(q.Encode(), "+", "%20")
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + name, RawQuery: query}
	return u.String()
}

// CreateDatabase creates a database if it is missing, and returns its URL.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) (string, error) {
	if name == "" || len(name) > maxIdentifier {
		return "", fmt.Errorf("create database %q: a name has 1 to %d bytes", name, maxIdentifier)
	}
	conn, err := pgx.Connect(ctx, p.URL())
	if err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	var there bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&there); err != nil {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	if !there {
		_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	}
	var refused *pgconn.PgError
	raced := errors.As(err, &refused) && slices.Contains([]string{duplicateDatabase, uniqueViolation}, refused.Code)
	if err != nil && !raced {
		return "", fmt.Errorf("create database %s: %w", name, err)
	}
	return p.databaseURL(name), nil
}

// Done is closed when the server has ended, asked or not; Stop then says why.
func (p *Postgres) Done() <-chan struct{} { return p.server.done }

// Stop ends the server in order, in a hurry once ctx ends, and frees the
// directory. It returns nil after an orderly end; it may be called again.
func (p *Postgres) Stop(ctx context.Context) error {
	select {
	case <-p.Done():
	default:
		p.asked.Store(true)
	}
	err := p.server.stop(ctx, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL)
	if err != nil {
		return fmt.Errorf("stop PostgreSQL %d: %w", p.server.cmd.Process.Pid, err)
	}
	if err := release(p.lock); err != nil {
		return err
	}
	switch {
	case p.server.err != nil:
		return fmt.Errorf("PostgreSQL ended with %w:\n%s", p.server.err, p.server.output.tail())
	case !p.asked.Load():
		return fmt.Errorf("PostgreSQL was ended by another:\n%s", p.server.output.tail())
	}
	return nil
}
