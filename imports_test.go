package muster_test

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/musterhq/muster"

// mayImport is the table of the house: which folders of ours each folder may
// import. What is not in it has no room yet.
var mayImport = map[string][]string{
	"":           {},
	"facts":      {},
	"facts/gen":  {},
	"schema":     {}, // CUE only; its tests are Go
	"migrations": {},
	"embedded":   {"embedded"},
	"engine":     {"facts"},
	"fleet":      {"facts"},
	"sources":    {"facts", "sources", "fleet"},
	"store":      {"fleet", "facts", "migrations"},
	"devices":    {"engine", "fleet", "facts", "store"},
	"reconciler": {"devices", "engine", "fleet", "facts", "sources", "store"},
	"jobs":       {"devices", "engine", "fleet", "facts", "store"},
	"workflows":  {"devices", "jobs", "engine", "fleet", "facts", "sources", "store"},
	"operations": {"devices", "jobs", "engine", "fleet", "facts", "sources", "store", "workflows"},
	"httpapi":    {"devices", "jobs", "operations", "engine", "fleet", "facts", "store"},
	"simulator":  {"facts"},
	"cmd/muster": {"*"},
}

// room gives the folder of the table that a package lives in.
func room(path string) string {
	rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
	for name := rel; ; {
		if _, known := mayImport[name]; known {
			return name
		}
		i := strings.LastIndex(name, "/")
		if i < 0 {
			return rel
		}
		name = name[:i]
	}
}

func TestImportsGoTheWayOfTheTable(t *testing.T) {
	t.Parallel()
	all, err := packages.Load(&packages.Config{Mode: packages.NeedName | packages.NeedImports}, module+"/...")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 5 {
		t.Fatalf("only %d packages were found", len(all))
	}
	for _, p := range all {
		from := room(p.PkgPath)
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s has no room in the table: give it one, or put it where it belongs", p.PkgPath)
			continue
		}
		for path := range p.Imports {
			if !strings.HasPrefix(path, module+"/") && path != module {
				continue
			}
			if to := room(path); to != from && !slices.Contains(allowed, to) && !slices.Contains(allowed, "*") {
				t.Errorf("%s may not import %s", p.PkgPath, path)
			}
		}
	}
}
