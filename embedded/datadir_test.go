package embedded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var build = Versions{Muster: Layout, Schema: 3, Postgres: "15.18", Temporal: "0.11/0.1"}

func TestDataDirRecordsAndRefusesVersions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		written string // versions.json; empty: a new directory
		want    string // in the refusal; empty: opens
		after   Versions
	}{
		{"new", "", "", build},
		{"same", `{"muster":1,"schema":3,"postgres":"15.18"}`, "", build},
		{"older schema is migrated", `{"muster":1,"schema":1,"postgres":"15.18"}`, "", build},
		{"other minor PostgreSQL", `{"muster":1,"schema":3,"postgres":"15.2"}`, "", build},
		{"had no PostgreSQL of its own", `{"muster":1,"schema":3,"postgres":""}`, "", build},
		{"newer schema", `{"muster":1,"schema":4,"postgres":"15.18"}`, "schema 4, this muster knows schemas up to 3", Versions{}},
		{"other layout", `{"muster":2,"schema":3,"postgres":"15.18"}`, "version 2, this muster reads version 1", Versions{}},
		{"older PostgreSQL", `{"muster":1,"schema":3,"postgres":"9.6.1"}`, "PostgreSQL 9.6.1, the programs found are version 15.18", Versions{}},
		{"newer PostgreSQL", `{"muster":1,"schema":3,"postgres":"19beta1"}`, "install PostgreSQL 19 ", Versions{}},
		{"other Temporal", `{"muster":1,"schema":3,"postgres":"15.18","temporal":"0.9/0.1"}`, "Temporal has schema 0.9/0.1, this muster's has 0.11/0.1", Versions{}},
		{"damaged", `{"muster":`, "damaged", Versions{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "dev")
			if tt.written != "" {
				write(t, filepath.Join(dir, versionsName), tt.written)
			}
			d, err := OpenDataDir(dir, build)
			if tt.want != "" {
				var refused *UnreadableError
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--fresh") {
					t.Fatalf("open: %v, want %q and the remedy", err, tt.want)
				}
				if text, _ := os.ReadFile(filepath.Join(dir, versionsName)); string(text) != tt.written {
					t.Errorf("the refusal changed the record to %s", text)
				}
				aside, err := MoveAside(dir, time.Now()) // the remedy works
				if err != nil || aside == "" {
					t.Errorf("move aside: %q, %v", aside, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readVersions(dir); err != nil || got != tt.after {
				t.Errorf("recorded %+v, %v, want %+v", got, err, tt.after)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestForeignServerKeepsTheRecordOfOurs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, brought := range []Versions{{Postgres: "15.18", Temporal: "0.11/0.1"}, {}} {
		d, err := OpenDataDir(dir, Versions{Muster: Layout, Schema: 1, Postgres: brought.Postgres, Temporal: brought.Temporal})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readVersions(dir); err != nil || got.Postgres != "15.18" || got.Temporal != "0.11/0.1" {
		t.Errorf("recorded %+v, %v: what is in the directory is forgotten", got, err)
	}
}

func TestSecondStartLearnsWhereTheFirstAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := OpenDataDir(dir, build)
	if err != nil {
		t.Fatal(err)
	}
	refusal := func() *RunningError {
		t.Helper()
		_, err := OpenDataDir(dir, build)
		var running *RunningError
		if !errors.As(err, &running) || !errors.Is(err, ErrInUse) {
			t.Fatalf("second start: %v, want a RunningError", err)
		}
		return running
	}
	if r := refusal(); r.Owner.URL != "" || !strings.Contains(r.Error(), "still starting") {
		t.Errorf("before the announcement: %+v: %v", r, r)
	}
	if err := d.Announce("http://127.0.0.1:8480"); err != nil {
		t.Fatal(err)
	}
	if r := refusal(); r.Owner.URL != "http://127.0.0.1:8480" || r.Owner.PID != os.Getpid() {
		t.Errorf("after the announcement: %+v", r)
	}
	if info, err := os.Stat(d.Path(runningName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the announcement: %v, %v, want mode 0600", info, err)
	}
	if _, err := MoveAside(dir, time.Now()); !errors.Is(err, ErrInUse) {
		t.Errorf("move aside under an owner: %v, want ErrInUse", err)
	}
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d, err = OpenDataDir(dir, build)
	if err != nil {
		t.Fatal(err)
	}
	if r := refusal(); r.Owner.URL != "" {
		t.Errorf("the first owner's address outlives it: %+v", r)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestKilledOwnerFreesTheDataDir(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	write(t, filepath.Join(dir, versionsName), `{"muster":1,"schema":1}`)
	withCluster(t, filepath.Join(dir, "p"))
	owner := startOwner(t, dir, nil, self)
	owner.announced(t)
	var running *RunningError
	if _, err := OpenDataDir(dir, build); !errors.As(err, &running) || running.Owner.PID != owner.cmd.Process.Pid {
		t.Fatalf("beside another process: %v, want its number %d", err, owner.cmd.Process.Pid)
	}
	kill(t, owner.cmd.Process.Pid)
	_ = owner.cmd.Wait()
	d, err := OpenDataDir(dir, build)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := readRunning(dir); err != nil || r != (Running{}) {
		t.Errorf("the killed owner's address is still there: %+v, %v", r, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

func TestDirectoryOfSomebodyElseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "photo"), "x")
	var refused *UnreadableError
	if _, err := OpenDataDir(dir, build); !errors.As(err, &refused) {
		t.Errorf("open: %v, want an UnreadableError", err)
	}
	if _, err := MoveAside(dir, time.Now()); !errors.As(err, &refused) {
		t.Errorf("move aside: %v, want an UnreadableError", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the refusals left %v, %v", entries, err)
	}
}

func TestMoveAsideKeepsEverything(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dev")
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	if name, err := MoveAside(dir, now); name != "" || err != nil {
		t.Errorf("with no directory: %q, %v", name, err)
	}
	for _, want := range []string{dir + ".aside-20300102T030405Z", dir + ".aside-20300102T030405Z-2"} {
		d, err := OpenDataDir(dir, build)
		if err != nil {
			t.Fatal(err)
		}
		write(t, d.Path("postgres/data/rows"), want)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		name, err := MoveAside(dir, now)
		if err != nil || name != want {
			t.Fatalf("moved to %q, %v, want %q", name, err, want)
		}
		if text, err := os.ReadFile(filepath.Join(name, "postgres/data/rows")); err != nil || string(text) != want {
			t.Errorf("aside holds %q, %v", text, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Error("the directory is still there")
		}
	}
}

// A start that waited on the lock while the directory went aside must not own
// what went aside.
func TestLockFollowsItsName(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dev")
	d, err := OpenDataDir(dir, build)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".aside"); err != nil {
		t.Fatal(err)
	}
	if leadsTo(filepath.Join(dir, lockName), d.lock) {
		t.Error("a lock on what went aside counts for the name it had")
	}
	fresh, err := OpenDataDir(dir, build)
	if err != nil {
		t.Fatalf("a new directory of the old name is in use: %v", err)
	}
	if leadsTo(filepath.Join(dir, lockName), d.lock) || !leadsTo(filepath.Join(dir, lockName), fresh.lock) {
		t.Error("the name leads to the wrong lock")
	}
	if err := errors.Join(fresh.Close(), release(d.lock)); err != nil {
		t.Error(err)
	}
}
