package engine

import (
	"testing"
	"testing/fstest"
)

func TestSourceIsAFileSystem(t *testing.T) {
	t.Parallel()
	src, err := readSource(miniFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(src, "cue.mod/module.cue", "schema/schema.cue", "policies/status/status.cue"); err != nil {
		t.Error(err)
	}
}

func TestSourceKeepsToABundlesFiles(t *testing.T) {
	t.Parallel()
	tree := miniFiles(t)
	for _, name := range []string{"secret.cue", "policies/notes.md", "policies/_draft/x.cue", "policies/.git/x.cue", "schema/testdata/x.cue", "other/x.cue"} {
		tree[name] = &fstest.MapFile{Data: []byte("not CUE at all {")}
	}
	if _, _, err := Load(tree, Options{}); err != nil {
		t.Errorf("a file beside the bundle was read: %v", err)
	}
}
