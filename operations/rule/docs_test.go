package rule

import (
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster"
)

// The words for operators name every field, action, code and component type.
func TestTheDocumentNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/operation-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	v, err := New(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range v.names {
		names = append(names, name)
	}
	names = append(names, v.list("operationActionNames")...)
	names = append(names, v.ComponentTypes()...)
	for _, kind := range v.OperationTypes() {
		names = append(names, kind)
		names = append(names, v.Operations(kind)...)
	}
	if len(names) < 50 {
		t.Errorf("only %v are looked for", names)
	}
	for _, name := range names {
		if name != "rules" && !strings.Contains(string(data), "`"+name+"`") {
			t.Errorf("docs/operation-rules.md does not name `%s`", name)
		}
	}
}
