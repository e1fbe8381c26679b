package dev_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/cmd/muster/dev"
)

// TestTemporalIsStartedWhenItIsBuilt begins without its program, which all else
// does not wait for, and puts it there.
func TestTemporalIsStartedWhenItIsBuilt(t *testing.T) {
	t.Parallel()
	built := os.Getenv("MUSTER_TEMPORAL_BIN")
	if built == "" {
		built = "../../../bin/muster-temporal"
	}
	built, err := filepath.Abs(built)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(built); err != nil {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN:", err)
	}
	dir, err := os.MkdirTemp("", "muster-dev-") // the database's user must come to it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "muster-temporal")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	done := false
	err = dev.Run(ctx, dev.Options{
		DataDir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0", TemporalProgram: program, Log: hclog.NewNullLogger(), Now: time.Now,
		Ready: func(ctx context.Context, r dev.Running) {
			defer cancel()
			if r.Temporal.Waits != program {
				t.Errorf("it tells of Temporal: %s", r.Temporal)
			}
			if err := os.Symlink(built, program); err != nil {
				t.Error(err)
				return
			}
			for ctx.Err() == nil && !done {
				done = strings.Contains(metrics(ctx, r.URL), "\nmuster_temporal_up 1\n")
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		},
	})
	if err != nil || !done {
		t.Errorf("it ended with %v, Temporal was seen: %v", err, done)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "temporal", "temporal.db")); err != nil {
		t.Error(err)
	}
}

// metrics reads what a server measures, "" when it does not answer.
func metrics(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return ""
	}
	return string(body)
}
