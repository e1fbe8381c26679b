package engine

import (
	"os"
	"testing"
)

func TestShippedPolicyTestsPass(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	results, err := RunTests(os.DirFS(".."), b)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) < 50 {
		t.Errorf("only %d policy tests were found", len(results))
	}
	for _, r := range results {
		if !r.Passed {
			t.Errorf("%s: %s %q: got %s, want %s", r.Pos, r.Policy, r.Name, r.Got, r.Want)
		}
	}
	for _, u := range b.Uncovered(results) {
		t.Logf("%s: %s: no test reaches %s", u.Pos, u.Policy, u.Part)
	}
}
