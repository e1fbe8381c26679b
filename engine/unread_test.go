package engine

import (
	"fmt"
	"slices"
	"testing"

	"cuelang.org/go/cue/cuecontext"
)

// No emission judges by a fact that was not read: where a null fact leaves True
// or False, every value in its place gives the same one or NotRead. Of a
// node that is not listed nothing else is read, so only listed ones are asked
// about.
func TestEmissionsJudgeByNothingUnread(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	o := &leafOracle{} // for its walk only: nothing is asked of CUE
	for _, kind := range b.Catalogue() {
		if kind.Emission == nil {
			continue
		}
		for _, complaint := range unread(o, &kind) {
			t.Error(complaint)
		}
	}
}

func TestUnreadPropertyNoticesAMissingRung(t *testing.T) {
	t.Parallel()
	src, err := readSource(edited(t, "policies/conditions/conditions.cue",
		`				{name: "unread", #when: ironic: maintenance: null, then: {status: "NotRead", reason: "FieldNotServed"}},
`, ""))
	if err != nil {
		t.Fatal(err)
	}
	ctx := cuecontext.New()
	values, findings := buildValues(ctx, src)
	if hasErrors(findings) {
		t.Fatal(findings)
	}
	b := newCompiler(ctx, src).bundle(values, nil) // no vetting, which finds this too
	kind, _ := b.Type("Maintenance")
	if len(unread(&leafOracle{}, kind)) == 0 {
		t.Error("a ladder that calls an unread flag clear was not noticed")
	}
}

// unread lists the ways in which a type's emission judges by a null.
func unread(o *leafOracle, kind *ConditionType) []string {
	l := kind.Emission
	axes := o.axesOf(l)
	var complaints []string
	status := func(in *input) observationStatus { return kind.emits[l.first(in)].status }
	o.walk(axes, func(in *input, given map[string]string) bool {
		now := status(in)
		if now != statusTrue && now != statusFalse {
			return true
		}
		for i := range axes {
			a := &axes[i]
			listed := familyOf(a.path) + ".listed"
			if given[a.path] != "null" || !slices.Contains(sourceFamilies, familyOf(a.path)) || a.path == listed {
				continue
			}
			if value, asks := given[listed]; asks && value != "true" {
				continue
			}
			for _, literal := range a.literals {
				a.put(in, literal)
				if then := status(in); then != now && then != statusNotRead {
					complaints = append(complaints, fmt.Sprintf("%s: %s is null and gives %v, but %s there gives %v; %v", l.Name, a.path, now, literal, then, given))
				}
			}
			a.put(in, "null")
		}
		return len(complaints) < 3
	})
	return complaints
}
