package engine

import (
	"os"
	"testing"
)

func TestShippedBundleHasNothingToWarnOf(t *testing.T) {
	t.Parallel()
	_, findings, err := Load(os.DirFS(".."), Options{Tests: true, Schema: os.DirFS("..")})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Severity != Note {
			t.Error(f)
		} else {
			t.Log(f)
		}
	}
}
