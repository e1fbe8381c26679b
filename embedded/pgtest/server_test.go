package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/embedded"
)

func TestSweepRemovesOnlyWhatIsLeftOver(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		dir  string
		lock bool // a server was started in it
		held bool
		more string // a file besides
		age  time.Duration
		gone bool
	}{
		{"left over", dirPrefix + "1", true, false, "data/PG_VERSION", time.Hour, true},
		{"left before its server started", dirPrefix + "2", false, false, "", time.Hour, true},
		{"in use", dirPrefix + "3", true, true, "data/PG_VERSION", time.Hour, false},
		{"about to be used", dirPrefix + "4", true, false, "", time.Second, false},
		{"no server's", dirPrefix + "5", false, false, "photo", time.Hour, false},
		{"another's", "other-1", true, false, "data/PG_VERSION", time.Hour, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			parent := t.TempDir()
			dir := filepath.Join(parent, tt.dir)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.more != "" {
				create(t, filepath.Join(dir, tt.more))
			}
			if tt.lock {
				f := create(t, filepath.Join(dir, "lock"))
				if tt.held {
					if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
						t.Fatal(err)
					}
				}
			}
			info, err := os.Stat(dir)
			if err != nil {
				t.Fatal(err)
			}
			sweep(parent, info.ModTime().Add(tt.age))
			if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) != tt.gone {
				t.Errorf("after the sweep: %v, want it gone: %v", err, tt.gone)
			}
		})
	}
}

func create(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestGivenServerIsUsedAndLeftRunning(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp(diskParent, "me-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	pg, err := embedded.StartPostgres(t.Context(), embedded.PostgresOptions{Dir: filepath.Join(dir, "a b"), Params: params()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pg.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s, err := newServer(pg.URL() + "&dbname=postgres")
	if err != nil {
		t.Fatal(err)
	}
	other := &server{admin: s.database(t, "")}
	if err := other.exec("SELECT 1 / (current_database() LIKE 'mt%testgivenserver%')::int"); err != nil {
		t.Errorf("the URL does not lead to the test's database: %v", err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	if err := s.exec("SELECT 1"); err != nil {
		t.Errorf("the given server was ended: %v", err)
	}
}

func TestGivenServerMustBeAURL(t *testing.T) {
	t.Parallel()
	if _, err := newServer("host=/tmp dbname=postgres"); err == nil || !strings.Contains(err.Error(), "MUSTER_TEST_POSTGRES_URL must be a URL") {
		t.Errorf("a DSN of key words: %v", err)
	}
}

func TestFailedTemplateLeavesNothing(t *testing.T) {
	t.Parallel()
	s := shared.start(t)
	broken := errors.New("broken migration")
	var url string
	if _, err := s.prepare("failing", func(u string) error { url = u; return broken }); !errors.Is(err, broken) {
		t.Errorf("prepare: %v, want the error of the filling", err)
	}
	if err := (&server{admin: url}).exec("SELECT 1"); err == nil {
		t.Error("the half-filled template is still there")
	}
}
