package workflows

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
)

// What ran before goes on with this code as it began. The histories are those of
// the tests in cmd/muster that run jobs on a real Temporal, which write them with
// -update; those of a release stay.
func TestHistoriesAreReplayed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/histories/*.json")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("there are no histories")
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			r := worker.NewWorkflowReplayer()
			for slug, do := range works() {
				r.RegisterWorkflowWithOptions(deviceWorkflow("", do), workflow.RegisterOptions{Name: slug})
			}
			quiet := log.NewStructuredLogger(slog.New(slog.DiscardHandler))
			must(t, r.ReplayWorkflowHistoryFromJSONFile(quiet, file))
		})
	}
	if _, err := os.Stat("testdata/histories/ironic_node_clean.json"); err != nil {
		t.Error(err)
	}
}
