package redfish

import (
	"context"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

var update = flag.Bool("update", false, "write the goldens anew")

func fixed(targets ...Target) func(context.Context) ([]Target, error) {
	return func(context.Context) ([]Target, error) { return targets, nil }
}

func round1(t testing.TB, c *Client) (records []sources.Record, end sources.End) {
	t.Helper()
	end, err := c.List(t.Context(), func(page []sources.Record) error {
		records = append(records, page...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records, end
}

// classes of the captured machines.
var treeClass = map[string]facts.DeviceClass{
	"dell": facts.DeviceClassCpuBaremetal, "supermicro": facts.DeviceClassGpuCompute, "nvidia_gb200": facts.DeviceClassGpuCompute,
	"nvidia_gbswitch": facts.DeviceClassNvswitch, "nvidia_dpu": facts.DeviceClassOther,
}

// Requests of one poll of a captured machine, with and without $expand, once its
// firmware is known.
var treeCost = map[string][2]int{
	"dell": {9, 17}, "supermicro": {11, 33}, "nvidia_gb200": {21, 39}, "nvidia_gbswitch": {19, 19}, "nvidia_dpu": {12, 14},
}

func TestCapturedMachinesGiveTheirFacts(t *testing.T) {
	t.Parallel()
	trees := captured(t)
	if trees == nil {
		t.Skip("MUSTER_PEER_REDFISH_TREES is not set: it names the directory of captured trees of real machines, which are not part of the repository")
	}
	for name, tree := range trees {
		class, known := treeClass[name]
		if !known {
			t.Logf("%s: a tree without a golden is not judged", name)
			continue
		}
		for i, mode := range []string{"expand", "plain"} {
			t.Run(name+" "+mode, func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, maps.Clone(tree))
				m.noExpand = mode == "plain"
				c, _ := m.client(t, class)
				records, end := round1(t, c)
				if len(records) != 1 || !end.Complete || records[0].BMC == nil {
					t.Fatalf("%+v %+v", records, end)
				}
				first := len(m.requests(""))
				records, _ = round1(t, c)
				cost := len(m.requests("")) - first
				if want := treeCost[name][i]; cost > want {
					t.Errorf("a poll makes %d requests, want at most %d:\n%v", cost, want, m.requests("")[first:])
				}
				t.Logf("first round %d requests, the next %d", first, cost)
				golden(t, filepath.Join("testdata", name+".json"), records[0].BMC)
			})
		}
	}
}

func golden(t *testing.T, path string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s differs (run with -update after looking):\n%s", path, got)
	}
}
