package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/config"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

var (
	errInUse = errors.New("in use by another muster-temporal")
	errUnfit = errors.New("unfit")
)

// schemaVersion is what a database file must have been made with: the server
// migrates no SQLite file.
const schemaVersion = sqliteschema.Version + "/" + sqliteschema.VisibilityVersion

const (
	databaseName = "temporal.db"
	schemaName   = "schema"
	newSuffix    = ".new"
	// retention is how long closed workflows are kept.
	retention = 7 * 24 * time.Hour
	lockPause = 50 * time.Millisecond
)

// lock makes the directory and takes it. A predecessor that is ending holds it
// a moment longer than its parent lives: it is waited for until ctx ends.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "server.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", dir, err), f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s is %w: end that one, or name another --dir", dir, errInUse), f.Close())
		case <-time.After(lockPause):
		}
	}
}

// openStore returns the database of dir, made when missing, with the namespace
// in it. The directory is locked.
func openStore(dir, namespace string) (*config.SQL, error) {
	file := filepath.Join(dir, databaseName)
	_, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = create(dir, file)
	case err == nil:
		err = checkSchema(dir)
	}
	if err != nil {
		return nil, err
	}
	// Without the log, the rate is a quarter. Commits in it outlive any end of
	// the process; the newest are lost with the machine's power.
	store := sqlite(file, map[string]string{"journal_mode": "wal", "synchronous": "normal", "busy_timeout": "10000"})
	ns, err := sqliteschema.NewNamespaceConfig(clusterName, namespace, false, nil)
	if err != nil {
		return nil, fmt.Errorf("make the namespace %s: %w", namespace, err)
	}
	ns.Detail.Config.Retention = durationpb.New(retention)
	if err := sqliteschema.CreateNamespaces(store, ns); err != nil {
		return nil, fmt.Errorf("make the namespace %s: %w", namespace, err)
	}
	return store, nil
}

func sqlite(file string, attributes map[string]string) *config.SQL {
	attributes["mode"] = "rwc"
	return &config.SQL{PluginName: sqliteplugin.PluginName, DatabaseName: file, ConnectAttributes: attributes}
}

// create makes the database under another name first: one that is there is
// whole, whenever the process is killed.
func create(dir, file string) error {
	left, err := filepath.Glob(file + newSuffix + "*")
	if err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	for _, f := range left {
		if err := os.Remove(f); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	if err := sqliteschema.SetupSchema(sqlite(file+newSuffix, map[string]string{})); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, schemaName), []byte(schemaVersion+"\n"), 0o600); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := os.Chmod(file+newSuffix, 0o600); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	if err := os.Rename(file+newSuffix, file); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	return nil
}

// checkSchema refuses a database that another schema made.
func checkSchema(dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, schemaName))
	if err != nil {
		return fmt.Errorf("%w: what made the database in %s is not known: %w", errUnfit, dir, err)
	}
	if have := strings.TrimSpace(string(text)); have != schemaVersion {
		return fmt.Errorf("%w: the database in %s has schema %s, this program needs %s: run the program that made it, or move the directory aside",
			errUnfit, dir, have, schemaVersion)
	}
	return nil
}
