package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/embedded"
)

// TestAJobOutlivesItsDatabase kills PostgreSQL in the middle of a clean.
func TestAJobOutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "muster-killed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil { // the server's user goes through it
		t.Fatal(err)
	}
	options := embedded.PostgresOptions{Dir: filepath.Join(dir, "pg")}
	server, err := embedded.StartPostgres(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	if err := migrated(server.URL()); err != nil {
		t.Fatal(err)
	}
	p := newPlant(t, server.URL())
	p.startTemporal(t)
	p.serve(t, "api,reconciler")
	p.serve(t, "worker")
	job := p.submit(t, "ironic_node_clean", "sim1-r01-c02")
	p.until(t, "the clean", "select phase = 'clean' from job_devices where job_id = $1", job)
	killPostgres(t, options.Dir)
	<-server.Done()
	_ = server.Stop(t.Context()) // tells that another ended it, and frees the directory
	if server, err = embedded.StartPostgres(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	p.connect(t)
	p.ends(t, job, "succeeded", "")
	p.until(t, "the device to be free", "select not exists (select from device_locks where holder = $1)", fmt.Sprintf("job/%d", job))
	did := p.effects(t, "sim1-r01-c02")
	for _, once := range []string{"clear maintenance", "set provision manage", "set provision provide"} {
		if n := did[once]; n != 1 {
			t.Errorf("%s was done %d times: %v", once, n, did)
		}
	}
	p.ends(t, p.submit(t, "verify_connectivity", "sim1-r01-c01"), "succeeded", "") // and all goes on
}

// killPostgres kills the server of a directory as a machine that loses its power
// does.
func killPostgres(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "postmaster.pid"))
	if err != nil || len(files) != 1 {
		t.Fatalf("no server in %s: %v, %v", dir, files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
