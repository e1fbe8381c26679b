package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/format"
)

// Format formats the CUE files at the paths, those of folders too, as `cue fmt`
// does, and gives the names of those that were not formatted. It writes them
// only where asked to. Hidden folders, testdata and cue.mod are left alone.
func Format(paths []string, write bool) (changed []string, err error) {
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if name := entry.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "cue.mod") {
					return fs.SkipDir
				}
				return nil
			}
			if path != root && filepath.Ext(path) != ".cue" {
				return nil
			}
			other, err := formatFile(path, write)
			if other {
				changed = append(changed, path)
			}
			return err
		})
		if err != nil {
			return changed, fmt.Errorf("format: %w", err)
		}
	}
	return changed, nil
}

func formatFile(path string, write bool) (changed bool, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	formatted, err := format.Source(data)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	if string(formatted) == string(data) {
		return false, nil
	}
	if !write {
		return true, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return true, err
	}
	return true, os.WriteFile(path, formatted, info.Mode().Perm())
}
