package engine

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// What loading the mini bundle takes, in counts: a measure of cost that no busy
// machine moves. A change is either meant, and updated, or a regression.
func TestLoadCostIsTheGoldens(t *testing.T) {
	t.Parallel()
	b, _, err := Load(miniFiles(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	cost := b.Cost()
	got := fmt.Sprintf("files read       %d\nfield tests      %d\nasked of CUE     %d\nalternatives     %d\nbytes of tables  %d\n", cost.Files, cost.Leaves, cost.Asked, cost.Cubes, cost.TableSize)
	const golden = "testdata/mini_cost.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s(go test ./engine -run TestLoadCost -update)", got, want)
	}
}

// The shipped bundle may grow, but not out of its bounds.
func TestShippedBundleKeepsWithinItsCost(t *testing.T) {
	t.Parallel()
	cost := shippedBundle(t).Cost()
	if perLeaf := float64(cost.Asked) / float64(cost.Leaves); perLeaf > 6 {
		t.Errorf("CUE is asked %.1f times for each field test", perLeaf)
	}
	if cost.TableSize > 4<<20 {
		t.Errorf("the tables take %d bytes", cost.TableSize)
	}
	if cost.Cubes > 2*cost.Leaves {
		t.Errorf("%d field tests expand to %d alternatives", cost.Leaves, cost.Cubes)
	}
}
