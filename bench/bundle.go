package main

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
)

// options load the shipped bundle with the bits of ladder.go.
func options() engine.Options {
	o := engine.Options{Bits: map[string]uint8{}}
	for _, c := range conditions {
		o.Bits[c.name] = c.bit
	}
	return o
}

func loadShipped() (*engine.Bundle, error) {
	b, _, err := engine.Load(muster.Bundle(), options())
	if err != nil {
		return nil, fmt.Errorf("load the shipped bundle: %w", err)
	}
	return b, nil
}

// gains finds the test that the rungs which promote have in common: they must
// test each of the new conditions too, or vetting refuses them.
var gains = regexp.MustCompile(`Maintenance: +"False"`)

// loadWide loads the shipped bundle with four more conditions in its
// operational ladder, each with a rung of its own: together they are too many
// for a table.
func loadWide() (*engine.Bundle, error) {
	tree, err := edited(map[string]func(string) string{
		"policies/status/operational.cue": func(text string) string {
			const before = `{name: "no-infrastructure"`
			var rungs strings.Builder
			for i := range 4 {
				fmt.Fprintf(&rungs, "{name: \"wide-%d\", #when: conditions: Wide%d: \"True\", then: \"quarantine\"},\n\t\t", i+1, i+1)
			}
			return gains.ReplaceAllString(strings.Replace(text, before, rungs.String()+before, 1),
				`Maintenance: "False", Wide1: "False", Wide2: "False", Wide3: "False", Wide4: "False"`)
		},
		"policies/conditions/latches.cue": func(text string) string {
			for i := range 4 {
				text += fmt.Sprintf("\nconditions: Wide%d: {writer: \"custody\", feeds: \"operational\", meaning: \"One more.\"}\n", i+1)
			}
			return text
		},
	})
	if err != nil {
		return nil, err
	}
	o := options()
	for i := range 4 {
		o.Bits[fmt.Sprintf("Wide%d", i+1)] = uint8(30 + i)
	}
	b, _, err := engine.Load(tree, o)
	if err != nil {
		return nil, fmt.Errorf("load the widened bundle: %w", err)
	}
	return b, nil
}

// edited is the shipped bundle with some files changed.
func edited(edits map[string]func(string) string) (fs.FS, error) {
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		return nil, err
	}
	for name, edit := range edits {
		text := edit(string(files[name]))
		if text == string(files[name]) {
			return nil, fmt.Errorf("%s has nothing to edit: bring bench/bundle.go up to date", name)
		}
		files[name] = []byte(text)
	}
	return engine.Tree(files), nil
}
