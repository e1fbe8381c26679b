package engine

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// miniFiles reads testdata/mini.txtar.
func miniFiles(t testing.TB) fstest.MapFS {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/mini.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tree := fstest.MapFS{}
	for _, file := range archive.Files {
		tree[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	return tree
}

// edited is the mini bundle with one text of one file replaced.
func edited(t testing.TB, file, from, to string) fs.FS {
	t.Helper()
	tree := miniFiles(t)
	text := string(tree[file].Data)
	if strings.Count(text, from) != 1 {
		t.Fatalf("%s has %q %d times, not once", file, from, strings.Count(text, from))
	}
	tree[file] = &fstest.MapFile{Data: []byte(strings.Replace(text, from, to, 1))}
	return tree
}

func miniBundle(t testing.TB) *Bundle {
	t.Helper()
	b, findings, err := Load(miniFiles(t), Options{Tests: true})
	if err != nil {
		t.Fatalf("load the mini bundle:\n%v", err)
	}
	for _, f := range findings {
		if f.Severity == Error {
			t.Errorf("%v", f)
		}
	}
	return b
}

// casesOf scales a test by MUSTER_PROPERTY_CASES, 2000 unless it says more.
func casesOf() int {
	n := 0
	for _, r := range os.Getenv("MUSTER_PROPERTY_CASES") {
		if r < '0' || r > '9' || n > 1e8 {
			return 2000
		}
		n = n*10 + int(r-'0')
	}
	return max(n, 2000)
}
