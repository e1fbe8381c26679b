package reconciler

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/recorded"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// A site of recordings lives: editing a file is the world changing.
func TestARecordedFleetLives(t *testing.T) {
	dir := t.TempDir()
	ironic, slurm := recorded.Path(dir, "lab", "ironic"), recorded.Path(dir, "lab", "slurm")
	w := newWorld(t, func(s *fleet.SiteSpec) {
		s.PlacementEnabled = true // no client for it in this build: said, and in nobody's way
		s.Sources.Recorded = map[string]string{"ironic": ironic, "slurm": slurm}
	})
	write := func(source string, records ...sources.Record) {
		must(t, recorded.Write(dir, "lab", source, time.Unix(1, 0), records))
		w.often(source)
	}
	write("ironic", node("u1", "n1", leased))
	write("slurm", slurmNode("n1", facts.SlurmIdle))
	clients := registry.New(registry.Options{Clock: w.db.Now})
	t.Cleanup(clients.Close)
	run(t, w.replica("a", func(o *Options) { o.Clients = clients }))
	status := func(want facts.OperationalStatus) func() bool {
		return func() bool {
			return w.count("select count(*) from devices where name = 'n1' and operational_status = $1", want.String()) == 1
		}
	}
	eventually(t, "the device is judged", status(facts.OperationalStatusValidation))
	write("slurm", slurmNode("n1", facts.SlurmIdle|facts.SlurmDrain))
	eventually(t, "the drain is seen", status(facts.OperationalStatusQuarantine))
	write("slurm", slurmNode("n1", facts.SlurmIdle))
	eventually(t, "the node is resumed", status(facts.OperationalStatusValidation))

	must(t, os.WriteFile(slurm, []byte("{\"source\": \"slurm\",\n\"records\": [\n"), 0o600))
	w.often("slurm")
	text := func(source string) string {
		rows, err := store.Findings(t.Context(), w.db, w.site.ID, source, "", "", 10)
		must(t, err)
		for _, f := range rows {
			if f.Kind == fleet.FindingFailure {
				return f.Detail["error"].(string)
			}
		}
		return ""
	}
	eventually(t, "the broken file is a failed listing", func() bool { return strings.Contains(text("slurm"), "slurm.json:3: ") })
	eventually(t, "the missing client is said", func() bool { return strings.Contains(text("placement"), "no client") })
	w.wantStatus("n1", "validation")
	if mark := w.watermark("placement"); mark.Reason != "PlacementUnread" {
		t.Errorf("the watermark of placement is %+v", mark)
	}
}
