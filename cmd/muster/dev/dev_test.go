package dev_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/dev"
	"github.com/musterhq/muster/cmd/muster/recording"
)

// TestADevelopmentServerStartsAndEndsInOrder runs one in this process, under
// whatever detector watches it.
func TestADevelopmentServerStartsAndEndsInOrder(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "muster-dev-") // the database's user must come to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sites, err := recording.Sites("../../../testdata/fleet")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	data := filepath.Join(dir, "data")
	ready := false
	err = dev.Run(ctx, dev.Options{
		DataDir: data, Listen: "127.0.0.1:0", Sites: sites, Log: hclog.NewNullLogger(), Now: time.Now,
		Ready: func(_ context.Context, r dev.Running) {
			defer cancel()
			ready = true
			left, err := client.ReadCredentials(data)
			if err != nil || left != r.Credentials || left.Token == "" {
				t.Errorf("left behind is %+v, %v; told was %+v", left, err, r.Credentials)
			}
			response, err := http.Get(r.URL + "/readyz")
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				t.Errorf("it is told to be ready and answers %s", response.Status)
			}
		},
	})
	if err != nil || !ready {
		t.Errorf("it ended with %v, ready: %v", err, ready)
	}
	if left, err := filepath.Glob(filepath.Join(data, "postgres", "*", "postmaster.pid")); err != nil || len(left) > 0 {
		t.Errorf("PostgreSQL left %v, %v", left, err)
	}
}
