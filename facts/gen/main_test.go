package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestGeneratedTypesFollowTheSchema(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "facts_gen.go")
	if err := run("../..", out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../facts_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("facts_gen.go is not what schema/facts.cue says: run go generate ./facts")
	}
}
