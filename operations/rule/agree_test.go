package rule

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster"
)

// The walk only words what the schema refuses: of every odd rule of the messages
// that is data at all, both think the same.
func TestTheWalkRefusesWhatTheSchemaRefuses(t *testing.T) {
	t.Parallel()
	v, err := New(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("testdata/messages/*.txt")
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range strings.Split("\n"+string(data), "\n=== ")[1:] {
			head, rest, _ := strings.Cut(entry, "\n")
			name, form, _ := strings.Cut(head, " | ")
			text, _, _ := strings.Cut("\n"+rest, "\n--- says\n")
			words := strings.Fields(form)
			r := &reader{}
			tree := r.read(&Document{Name: "rule." + words[0], Data: []byte(text)})
			if tree == nil || len(r.problems) > 0 || odd(tree) {
				continue
			}
			definition := map[string]string{"batch": "#OperationRuleBatch"}[words[1]]
			if definition == "" {
				definition = "#OperationRule"
			}
			if words[1] == "steps" {
				if r.behead(tree); len(r.problems) > 0 {
					continue
				}
				(&Head{Name: "a rule", OperationType: words[2], Operation: words[3]}).put(tree)
			}
			seen++
			w := &walker{validator: v, bad: map[*node]bool{}}
			w.walk(v.schema.LookupPath(cue.ParsePath(definition)), "an object", tree, nil, "")
			said := w.problems
			whole := v.schema.LookupPath(cue.ParsePath(definition)).Unify(v.value(tree, nil))
			refused := whole.Validate(cue.Concrete(true), cue.All())
			if (refused != nil) != (len(said) > 0) {
				t.Errorf("%s: the walk says %v, the schema %v", name, said, refused)
			}
		}
	}
	if seen < 80 {
		t.Errorf("only %d rules were compared", seen)
	}
}

func odd(n *node) bool {
	for _, m := range n.fields {
		if odd(m.value) {
			return true
		}
	}
	for _, item := range n.items {
		if odd(item) {
			return true
		}
	}
	return n.kind == anOddity
}
