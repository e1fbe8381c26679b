package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/embedded"
)

const (
	startTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
)

// server is a private PostgreSQL with its default settings: durable, with
// 128 MB of shared buffers.
type server struct {
	pg      *embedded.Postgres
	dir     string
	version string
}

func startServer(ctx context.Context) (*server, error) {
	dir, err := os.MkdirTemp("/tmp", "muster-bench-") // a socket's path must be short
	if err != nil {
		return nil, fmt.Errorf("make the server's directory: %w", err)
	}
	// Open to pass through: as root, the server runs as another user.
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, errors.Join(fmt.Errorf("open the server's directory: %w", err), os.RemoveAll(dir))
	}
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	pg, err := embedded.StartPostgres(starting, embedded.PostgresOptions{Dir: dir})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{pg: pg, dir: dir}
	conn, err := pgx.Connect(starting, pg.URL())
	if err == nil {
		err = conn.QueryRow(starting, "show server_version").Scan(&s.version)
		err = errors.Join(err, conn.Close(starting))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ask the server for its version: %w", err), s.stop())
	}
	return s, nil
}

// stop ends the server and removes what it kept.
func (s *server) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return errors.Join(s.pg.Stop(ctx), os.RemoveAll(s.dir))
}
