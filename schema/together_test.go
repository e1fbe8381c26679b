package schema_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
)

// mostTogether bounds how many mistakes one bundle gets: the more, the more hide
// each other.
const mostTogether = 6

// together plants mistakes several at a time, which costs one load for all of
// them, and gives those that were named where they stand. One that another hides
// is not among them: it has to be planted alone.
func together(t *testing.T, all map[string]mistake) map[string]bool {
	t.Helper()
	var mutex sync.Mutex
	named := map[string]bool{}
	left := slices.Sorted(maps.Keys(all))
	left = slices.DeleteFunc(left, func(name string) bool { return all[name].Vet != "" })
	t.Run("together", func(t *testing.T) {
		for len(left) > 0 {
			var batch []string
			files := shipped(t)
			for path := range files {
				if strings.HasSuffix(path, "_tests.cue") {
					delete(files, path)
				}
			}
			left = slices.DeleteFunc(left, func(name string) bool {
				if len(batch) == mostTogether || !fits(t, files, batch, all, all[name]) {
					return false
				}
				batch = append(batch, name)
				return true
			})
			t.Run(batch[0], func(t *testing.T) {
				t.Parallel()
				_, findings, _ := engine.Load(files.fs(), engine.Options{Schema: muster.Bundle()})
				mutex.Lock()
				defer mutex.Unlock()
				for _, name := range batch {
					first, last := all[name].stands(files)
					named[name] = all[name].namedIn(findings, first, last)
				}
			})
		}
	})
	t.Logf("%d of %d named together with others", len(slices.DeleteFunc(slices.Collect(maps.Values(named)), func(yes bool) bool { return !yes })), len(all))
	return named
}

// fits plants a mistake beside others if all of them can still be found.
func fits(t *testing.T, files tree, batch []string, all map[string]mistake, m mistake) bool {
	t.Helper()
	before := files[m.File]
	if m.From != nil && (before == "" || m.pattern().FindStringIndex(before) == nil) {
		return false // another one stands there; alone, it would be told
	}
	m.plant(t, files)
	found := func(m mistake) bool { return m.To == nil || strings.Count(files[m.File], *m.To) == 1 }
	if len(batch) == 0 || found(m) && !slices.ContainsFunc(batch, func(name string) bool { return !found(all[name]) }) {
		return true
	}
	files[m.File] = before
	if before == "" {
		delete(files, m.File)
	}
	return false
}

// stands gives the lines of a planted mistake.
func (m mistake) stands(files tree) (first, last int) {
	if m.To == nil {
		return 0, 0
	}
	text := strings.TrimPrefix(*m.To, "\n")
	first = 1 + strings.Count(files[m.File][:max(0, strings.Index(files[m.File], text))], "\n")
	return first, first + strings.Count(strings.TrimSpace(text), "\n")
}
