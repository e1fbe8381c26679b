package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/migrations"
)

// update writes what commands print into the scripts.
var update = flag.Bool("update", false, "update the scripts")

// TestMain is the command itself where it is called by that name: scripts and
// sandboxed children call this test binary as muster.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "muster" {
		main()
	}
	pgtest.Main(m)
}

// musterBinary gives a file called muster that is this test binary.
func musterBinary(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "muster")
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
	return path
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
