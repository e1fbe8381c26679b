package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/embedded"
)

const (
	// dirPrefix marks our directories. They lie in memory where there is room,
	// else in /tmp whatever TMPDIR says: a socket's path must be short.
	diskParent = "/tmp"
	dirPrefix  = "muster-pgtest-"
	// fresh is the age under which a directory without an owner may be one
	// that is about to get it.
	fresh = time.Minute
	// startTimeout covers initdb on a machine that compiles at the same time.
	startTimeout = 2 * time.Minute
	stopTimeout  = 20 * time.Second
)

// server is where the databases are made.
type server struct {
	admin string // URL of a database to create and drop others from
	owned *embedded.Postgres
	dir   string
}

// newServer uses the server of given, a URL, or starts a private one.
func newServer(given string) (*server, error) {
	if given != "" {
		if u, err := url.Parse(given); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			return nil, errors.Join(errors.New("MUSTER_TEST_POSTGRES_URL must be a URL: postgres://user@host:port/database"), err)
		}
		return &server{admin: given}, nil
	}
	parent := diskParent
	sweep(diskParent, time.Now())
	if m := memoryParent(); m != "" {
		parent = m
		sweep(m, time.Now())
	}
	dir, err := os.MkdirTemp(parent, dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("make the server's directory: %w", err)
	}
	// Open to pass through: as root, the server runs as another user.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, fmt.Errorf("open the server's directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	pg, err := embedded.StartPostgres(ctx, embedded.PostgresOptions{Dir: dir, Params: params()})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &server{admin: pg.URL(), owned: pg, dir: dir}, nil
}

// params trade durability for speed. Several such servers run side by side
// when packages are tested together, so memory is small.
func params() map[string]string {
	return map[string]string{
		"fsync":              "off",
		"synchronous_commit": "off",
		"full_page_writes":   "off",
		"max_connections":    "200",
		"shared_buffers":     "32MB",
		"max_wal_size":       "1GB",
		"checkpoint_timeout": "1h",
		"jit":                "off",
	}
}

// close ends a private server and removes its directory.
func (s *server) close() error {
	if s.owned == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := s.owned.Stop(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return fmt.Errorf("remove the server's directory: %w", err)
	}
	return nil
}

// sweep removes the directories that test binaries without Main, or killed
// ones, left in parent. What is in use, another user's or no server's stays: no
// test fails for what an earlier one left.
func sweep(parent string, now time.Time) {
	left, err := filepath.Glob(filepath.Join(parent, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || now.Sub(info.ModTime()) < fresh {
			continue
		}
		_ = embedded.Discard(dir)
	}
}
