package main

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
)

// benchLoad races muster's load, vet and compilation of the shipped bundle
// with CUE's own part of it.
func benchLoad(r *report, e effort) error {
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		return err
	}
	for name := range files {
		if strings.HasSuffix(name, "_tests.cue") {
			delete(files, name) // muster leaves them out too: they decide nothing
		}
	}
	tree := engine.Tree(files)
	folders := map[string]bool{}
	for name := range files {
		if folder := path.Dir(name); folder != "cue.mod" {
			folders["./"+folder] = true
		}
	}
	packages := slices.Sorted(maps.Keys(folders))
	byCUE := func(validate bool) error {
		ctx := cuecontext.New()
		for _, instance := range load.Instances(packages, &load.Config{FS: tree, Dir: "/", Env: []string{}}) {
			if instance.Err != nil {
				return instance.Err
			}
			v := ctx.BuildInstance(instance)
			if v.Err() != nil {
				return v.Err()
			}
			if validate {
				if err := v.Validate(cue.Attributes(true), cue.Optional(true), cue.Hidden(true), cue.Concrete(true)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := byCUE(true); err != nil {
		return fmt.Errorf("build the shipped bundle with CUE: %w", err)
	}
	repeat := func(f func() error) func(n int) {
		return func(n int) {
			for range n {
				if err := f(); err != nil {
					panic(err) // it loaded before
				}
			}
		}
	}
	f := race(effort{rounds: max(3, e.rounds/2), slice: 1},
		contender{"CUE: load, build, validate", repeat(func() error { return byCUE(true) })},
		contender{"CUE: load and build", repeat(func() error { return byCUE(false) })},
		contender{"muster: load, vet, compile", repeat(func() error {
			_, _, err := engine.Load(muster.Bundle(), engine.Options{})
			return err
		})},
	)
	t := r.table("Load the shipped bundle", "tests of the policies left out; CPU time of the process, garbage collection with it")
	t.figures(f...)
	t.target("muster / CUE's load, build and validate", f[2].ratio, atMost, 1.5)
	t.target("muster / CUE's load and build", f[2].ns/f[1].ns, atMost, 1.5)
	return nil
}
