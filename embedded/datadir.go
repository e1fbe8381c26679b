package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Layout is the arrangement of files in a data directory that this build
// reads and writes: Versions.Muster of a build.
const Layout = 1

const (
	versionsName = "versions.json"
	runningName  = "running.json"
	lockName     = "lock"
	// asideAttempts bounds the search for a free name beside the directory.
	asideAttempts = 100
)

// fresh is the remedy for what this build cannot read.
const fresh = "or start afresh with `muster dev --fresh` (moves the directory aside, deletes nothing)"

// Versions says what wrote a data directory, or what a build reads.
type Versions struct {
	Muster   int    `json:"muster"`   // arrangement of the directory, see Layout
	Schema   int    `json:"schema"`   // newest migration of the database
	Postgres string `json:"postgres"` // as in Binaries.Version; empty = another's server
	Temporal string `json:"temporal"` // as TemporalSchema; empty = another's server
}

// Running is how others reach the owner of a data directory.
type Running struct {
	URL string `json:"url"` // empty while the owner is still starting
	PID int    `json:"pid"`
}

// DataDir is a data directory that this process owns until Close.
type DataDir struct {
	dir  string
	lock *os.File
}

// RunningError refuses a data directory that another process owns. It is an
// ErrInUse.
type RunningError struct {
	Dir   string
	Owner Running // zero while the owner has announced nothing
}

func (e *RunningError) Error() string {
	if e.Owner.URL == "" {
		return fmt.Sprintf("%s is in use by another muster, which is still starting", e.Dir)
	}
	return fmt.Sprintf("%s is in use by the muster (process %d) that answers at %s", e.Dir, e.Owner.PID, e.Owner.URL)
}

func (e *RunningError) Unwrap() error { return ErrInUse }

// UnreadableError refuses a data directory that this build cannot read.
type UnreadableError struct{ Dir, Reason string }

func (e *UnreadableError) Error() string { return e.Dir + " cannot be used: " + e.Reason }

// OpenDataDir takes a data directory, made when missing, and records in it
// what this build is, before anything else is written. It fails with
// *RunningError when the directory has an owner and with *UnreadableError when
// this build cannot read it. A database schema older than the build's is fine:
// it is migrated.
func OpenDataDir(dir string, build Versions) (*DataDir, error) {
	if !supported {
		return nil, ErrUnsupported
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	if err := makeOpen(abs); err != nil {
		return nil, err
	}
	if err := checkOurs(abs); err != nil {
		return nil, err
	}
	d, err := takeDataDir(abs)
	if err != nil {
		return nil, err
	}
	if err := d.record(build); err != nil {
		return nil, errors.Join(err, release(d.lock))
	}
	return d, nil
}

// takeDataDir locks a data directory, which exists.
func takeDataDir(dir string) (*DataDir, error) {
	lock, err := acquire(filepath.Join(dir, lockName))
	if errors.Is(err, ErrInUse) {
		owner, rerr := readRunning(dir)
		if rerr != nil {
			return nil, errors.Join(&RunningError{Dir: dir}, rerr)
		}
		return nil, &RunningError{Dir: dir, Owner: owner}
	}
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	d := &DataDir{dir: dir, lock: lock}
	if err := d.retract(); err != nil { // of an owner that was killed
		return nil, errors.Join(err, release(lock))
	}
	return d, nil
}

// Path returns the path of a thing in the directory; PostgreSQL's is "postgres".
func (d *DataDir) Path(name string) string { return filepath.Join(d.dir, name) }

// Announce tells later starts where this one answers.
func (d *DataDir) Announce(url string) error {
	return writeJSON(d.Path(runningName), Running{URL: url, PID: os.Getpid()})
}

// Close gives the directory up. It may be called again.
func (d *DataDir) Close() error {
	if err := d.retract(); err != nil {
		return err
	}
	return release(d.lock)
}

func (d *DataDir) retract() error {
	if err := os.Remove(d.Path(runningName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop the running address: %w", err)
	}
	return nil
}

// record compares what is written with the build, then writes the build.
func (d *DataDir) record(build Versions) error {
	have, err := readVersions(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if reason := unreadable(have, build); reason != "" {
			return &UnreadableError{Dir: d.dir, Reason: reason}
		}
		if build.Postgres == "" {
			build.Postgres = have.Postgres
		}
		if build.Temporal == "" {
			build.Temporal = have.Temporal
		}
	}
	if have == build {
		return nil
	}
	return writeJSON(d.Path(versionsName), build)
}

// unreadable says why the build cannot read what have wrote, "" when it can.
func unreadable(have, build Versions) string {
	switch {
	case have.Muster != build.Muster:
		return fmt.Sprintf("its files are arranged in version %d, this muster reads version %d: run the muster that wrote them, %s",
			have.Muster, build.Muster, fresh)
	case have.Schema > build.Schema:
		return fmt.Sprintf("its database has schema %d, this muster knows schemas up to %d: run the newer muster that wrote it, %s",
			have.Schema, build.Schema, fresh)
	case have.Postgres != "" && build.Postgres != "" && major(have.Postgres) != major(build.Postgres):
		return fmt.Sprintf("its database was made by PostgreSQL %s, the programs found are version %s:"+
			" install PostgreSQL %s or name its programs with --postgres-bin, convert the data with pg_upgrade, %s",
			have.Postgres, build.Postgres, major(have.Postgres), fresh)
	case have.Temporal != "" && build.Temporal != "" && have.Temporal != build.Temporal:
		return fmt.Sprintf("its Temporal has schema %s, this muster's has %s: run the muster that wrote it, %s", have.Temporal, build.Temporal, fresh)
	}
	return ""
}

// major returns the digits that a version starts with.
func major(version string) string {
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return version
	}
	return version[:end]
}

func readVersions(dir string) (Versions, error) {
	text, err := os.ReadFile(filepath.Join(dir, versionsName))
	if err != nil {
		return Versions{}, fmt.Errorf("read the directory's versions: %w", err)
	}
	var v Versions
	if err := json.Unmarshal(text, &v); err != nil {
		return Versions{}, &UnreadableError{Dir: dir, Reason: fmt.Sprintf("%s is damaged (%v): restore it, %s", versionsName, err, fresh)}
	}
	return v, nil
}

// checkOurs refuses a directory with files of somebody else.
func checkOurs(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, versionsName)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("open the data directory: %w", err)
	}
	for _, e := range entries {
		// A start that was killed early leaves these and no versions.
		if e.Name() != lockName && !strings.HasPrefix(e.Name(), versionsName) {
			return &UnreadableError{Dir: dir, Reason: "it holds files but no " + versionsName + ", so it is no data directory of muster: name another"}
		}
	}
	return nil
}

// MoveAside renames a data directory to dir.aside-TIME, nothing in it changed,
// and returns the new name; "" when there is no such directory. It refuses one
// that has an owner (*RunningError) or is not muster's (*UnreadableError).
func MoveAside(dir string, now time.Time) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("move the data directory aside: %w", err)
	}
	if _, err := os.Stat(abs); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err := checkOurs(abs); err != nil {
		return "", err
	}
	d, err := takeDataDir(abs)
	if err != nil {
		return "", err
	}
	moved, err := d.rename(now)
	return moved, errors.Join(err, release(d.lock))
}

// rename gives the directory the first free name for the instant.
func (d *DataDir) rename(now time.Time) (string, error) {
	name := d.dir + ".aside-" + now.UTC().Format("20060102T150405Z")
	for n := 1; n <= asideAttempts; n++ {
		free := name
		if n > 1 {
			free = fmt.Sprintf("%s-%d", name, n)
		}
		if _, err := os.Lstat(free); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Rename(d.dir, free); err != nil {
			return "", fmt.Errorf("move the data directory aside: %w", err)
		}
		return free, syncDir(filepath.Dir(d.dir))
	}
	return "", fmt.Errorf("move the data directory aside: %s and %d more names are taken: remove some", name, asideAttempts-1)
}

// readRunning returns what the owner announced, zero when nothing.
func readRunning(dir string) (Running, error) {
	text, err := os.ReadFile(filepath.Join(dir, runningName))
	if errors.Is(err, fs.ErrNotExist) {
		return Running{}, nil
	}
	if err != nil {
		return Running{}, fmt.Errorf("read the running address: %w", err)
	}
	var r Running
	if err := json.Unmarshal(text, &r); err != nil {
		return Running{}, fmt.Errorf("read the running address: %w", err)
	}
	return r, nil
}

// writeJSON replaces a file as a whole, readable by its owner alone.
func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, werr := tmp.Write(append(text, '\n'))
	if err := errors.Join(werr, tmp.Sync(), tmp.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(tmp.Name()))
	}
	return syncDir(filepath.Dir(path))
}
