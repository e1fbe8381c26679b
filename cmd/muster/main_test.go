package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/migrations"
)

// update writes what commands print into the scripts.
var update = flag.Bool("update", false, "update the scripts")

// The command is built as it is shipped: under the race detector it loads
// policies so slowly that these tests would take the better part of an hour.
// What runs in it side by side has tests with the detector of its own.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "muster-built-")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "muster")
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build muster: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	// Most tests wait for processes of their own: more run at a time than there are
	// processors, unless the command line says otherwise.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	pgtest.Main(m)
	if dir, _ := built(); dir != "" {
		_ = os.RemoveAll(dir)
	}
}

// musterBinary gives the built command.
func musterBinary(t testing.TB) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "muster")
}

// TestScripts runs testdata/script: what a person types and sees. A script whose
// name begins with db_ has a migrated database of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	binary := musterBinary(t)
	fleet, err := filepath.Abs("../../testdata/fleet")
	if err != nil {
		t.Fatal(err)
	}
	migrate := func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("FLEET", fleet)
			env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
			script := env.T().(testing.TB)
			if strings.HasPrefix(filepath.Base(script.Name()), "db_") {
				env.Setenv("MUSTER_DATABASE_URL", pgtest.Template(script, "migrated", migrate))
			}
			if filepath.Base(script.Name()) == "db_migrate" {
				env.Setenv("MUSTER_DATABASE_URL", pgtest.Database(script))
			}
			return nil
		},
	})
}
