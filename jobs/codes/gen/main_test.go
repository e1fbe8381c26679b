package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestTheConstantsFollowThePolicies(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "codes_gen.go")
	if err := run("../../..", out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	have, err := os.ReadFile("../codes_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want) {
		t.Error("codes_gen.go is not what policies/failures says: run go generate ./jobs/codes")
	}
}
