package reconciler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
)

func TestWhatASiteWouldComeToIsForeseen(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "n1", serial("S1")), in("a1", "2", "n2"), in("b1", "3", "n3"))
	n.read(&n.site)
	n.read(&n.annex)
	n.ironic().says(node("u1", "n1"), node("u4", "n4"), node("u9", "stranger"))
	n.slurm().set(func(s *script) { s.fail = errDown })
	n.puts(in("a1", "1", "n1", serial("S1")), in("a1", "4", "n4"), in("a2", "3", "n3"), in("a1", "5", "n2", serial("S2")), in("a1", "6", "n1", serial("other")), in("c1", "7", "n7"))
	n.takes("2")
	clients := registry.New(registry.Options{Clock: n.db.Now, Build: func(spec *fleet.SiteSpec, source string) (sources.Source, error) {
		if source != "netbox" {
			return n.source(source), nil
		}
		return view{n, spec.NetBox.Sites}, nil
	}})
	t.Cleanup(clients.Close)
	before := n.count("select count(*) from facts")
	got := Foresee(t.Context(), n.db, clients, &n.site)
	want := []Foreseen{
		{Source: "netbox", Records: 5, Known: 1, Moved: 1, Born: 1, Ambiguous: 2, Missing: 1, Examples: []string{"n2 (RefHeld)", "n1 (SerialsDiffer)"}},
		{Source: "ironic", Records: 3, Joined: 2, Unmatched: 1, Examples: []string{"stranger"}},
		{Source: "slurm", Examples: []string{}, Error: errDown.Error()},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("foreseen (-want +got):\n%s", diff)
	}
	n.wantCount(before, "select count(*) from facts")

	site := n.site // one that is not stored yet
	site.ID, site.Spec.Name, site.Spec.NetBox = 0, "new", &fleet.NetBoxSites{Instance: "other", Sites: []string{"a1"}}
	if got := Foresee(t.Context(), n.db, clients, &site)[0]; got.Born != 2 || got.Ambiguous != 2 || got.Known != 0 {
		t.Errorf("a new site foresees %+v", got)
	}
}
