package engine

import (
	"os"
	"testing"

	"cuelang.org/go/cue/cuecontext"
)

// BenchmarkLoad loads, vets and compiles the shipped bundle; BenchmarkCUEBuild
// is CUE's own part of it, loading and building the same packages.
func BenchmarkLoad(b *testing.B) {
	tree := os.DirFS("..")
	for b.Loop() {
		if _, _, err := Load(tree, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCUEBuild(b *testing.B) {
	src, err := readSource(os.DirFS(".."))
	if err != nil {
		b.Fatal(err)
	}
	lean := src.withoutTests()
	for b.Loop() {
		if _, findings := buildValues(cuecontext.New(), lean); len(findings) > 0 {
			b.Fatal(findings)
		}
	}
}
