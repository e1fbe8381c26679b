package component_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/sources/redfish"
)

// quiet keeps what a client logs to itself.
var quiet = hclog.NewNullLogger()

var shipped = sync.OnceValues(func() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), engine.Options{})
	return b, err
})

// policies gives the resets of the shipped policies.
func policies(t testing.TB) func(context.Context, string, string) ([]string, error) {
	t.Helper()
	b, err := shipped()
	if err != nil {
		t.Fatal(err)
	}
	return func(_ context.Context, operation, kind string) ([]string, error) {
		o, ok := b.Operation(operation)
		if !ok {
			t.Errorf("no operation %s", operation)
			return nil, nil
		}
		return o.Resets[kind], nil
	}
}

// What admission takes to be there is there.
func TestManagersHaveWhatAdmissionCountsOn(t *testing.T) {
	t.Parallel()
	have := component.Managers(&component.Systems{})
	want := rule.Managers()
	if len(have) != len(want) {
		t.Errorf("there are %d managers, %d are counted on", len(have), len(want))
	}
	for kind, capabilities := range want {
		m := have[kind]
		got := m.Capabilities()
		slices.Sort(got)
		slices.Sort(capabilities)
		if !slices.Equal(got, capabilities) {
			t.Errorf("%s can do %v, %v is counted on", kind, got, capabilities)
		}
	}
}

// Every command that a rule may give has resets for every type with a manager; a
// shelf has no warm reset of its own.
func TestEveryCommandHasResets(t *testing.T) {
	t.Parallel()
	resets := policies(t)
	for _, operation := range []string{"power_on", "force_power_on", "power_off", "force_power_off", "warm_reset"} {
		for kind := range component.Managers(&component.Systems{}) {
			types, err := resets(t.Context(), operation, kind)
			if shelf := operation == "warm_reset" && kind == "powershelf"; err != nil || (len(types) == 0) != shelf {
				t.Errorf("%s of %s has the resets %v, %v", operation, kind, types, err)
			}
		}
	}
}

// bmcs makes the systems of a site of a client of BMCs.
func bmcs(t testing.TB, client component.BMC) *component.Systems {
	t.Helper()
	return &component.Systems{
		BMC:    func(context.Context) (component.BMC, func(), error) { return client, func() {}, nil },
		Resets: policies(t), Images: component.NewImages(time.Now), Clock: time.Now, Poll: 50 * time.Millisecond,
	}
}

var _ component.BMC = (*redfish.Client)(nil)
