package dev

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/musterhq/muster/engine"
)

const (
	watchEvery = 250 * time.Millisecond
	settle     = 2 // looks without a change before a change is taken: an editor writes several files
)

// state is what a look at a folder sees: by path the size and the time of each
// policy file.
type state map[string]string

// watch activates what is saved in the folder of policies, until ctx ends. What
// does not load is told and changes nothing.
func (i *instance) watch(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	taken, last := i.look(), state(nil)
	quiet := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := i.look()
		if maps.Equal(now, last) {
			quiet++
		} else {
			last, quiet = now, 0
		}
		if quiet < settle || maps.Equal(now, taken) {
			continue
		}
		taken = now
		i.reload(ctx)
	}
}

// look sees the folder as it is. A file that comes and goes meanwhile shows in
// the next look.
func (i *instance) look() state {
	seen := state{}
	tree := os.DirFS(i.Policies)
	for _, root := range []string{"cue.mod", "schema", "policies"} {
		_ = fs.WalkDir(tree, root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil // what cannot be read is told when it is loaded
			}
			if info, err := entry.Info(); err == nil {
				seen[path] = fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
			}
			return nil
		})
	}
	return seen
}

// reload makes the folder the active bundle if it differs and loads.
func (i *instance) reload(ctx context.Context) {
	tree := os.DirFS(i.Policies)
	if _, err := engine.Files(tree); err != nil {
		i.policy.Rejected(err, nil)
		return
	}
	b, findings, err := i.policy.Activate(ctx, tree, actor)
	if err != nil {
		return // the policy has told it, and shows it in its status
	}
	for _, f := range findings {
		if f.Severity == engine.Warning {
			i.Log.Warn("policy warning", "finding", f.String())
		}
	}
	i.Log.Info("policy activated", "version", b.Version())
}
