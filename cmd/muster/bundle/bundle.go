// Package bundle writes the shipped policies out for operators to edit, and
// compares folders with what the database holds. What a policy means is package
// engine's; which one is active, package devices'.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/engine"
)

// ErrNotEmpty says that the folder holds something already.
var ErrNotEmpty = errors.New("it is there already and not empty: name another folder, or renew its schema alone with --schema")

// Write writes a whole bundle, cue.mod/, schema/ and policies/, to a folder that
// is missing or empty. The folder appears whole or not at all.
func Write(shipped fs.FS, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the policies: %w", err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("write the policies to %s: %w", dir, ErrNotEmpty)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("write the policies: %w", err)
	}
	temp, err := os.MkdirTemp(parent, ".muster-policies-*")
	if err != nil {
		return fmt.Errorf("write the policies: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }() // after the rename there is none
	err = writeTree(shipped, temp, func(string) bool { return true })
	if err == nil {
		err = os.Chmod(temp, 0o755)
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err != nil {
		return fmt.Errorf("write the policies to %s: %w", dir, err)
	}
	return nil
}

// WriteSchema makes cue.mod/ and schema/ of a bundle those of the binary and
// leaves policies/ alone. It reports the files that it changed or removed.
func WriteSchema(shipped fs.FS, dir string) (changed []string, err error) {
	if _, err := os.Stat(filepath.Join(dir, "policies")); err != nil {
		return nil, fmt.Errorf("renew the schema of %s: it holds no bundle: %w", dir, err)
	}
	files, err := engine.Files(shipped)
	if err != nil {
		return nil, fmt.Errorf("renew the schema of %s: %w", dir, err)
	}
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "policies/") })
	old, err := filepath.Glob(filepath.Join(dir, "schema", "*.cue"))
	if err != nil {
		return nil, fmt.Errorf("renew the schema of %s: %w", dir, err)
	}
	for _, path := range old {
		name := "schema/" + filepath.Base(path)
		if _, shipped := files[name]; shipped {
			continue
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("renew the schema of %s: %w", dir, err)
		}
		changed = append(changed, name)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if now, err := os.ReadFile(path); err == nil && string(now) == string(files[name]) {
			continue
		}
		if err := writeFile(path, files[name]); err != nil {
			return nil, fmt.Errorf("renew the schema of %s: %w", dir, err)
		}
		changed = append(changed, name)
	}
	return changed, nil
}

// Same reports whether the policies/ of a tree are those that are stored.
func Same(tree fs.FS, stored map[string]string) bool {
	files, err := engine.Files(tree)
	if err != nil {
		return false
	}
	policies := map[string]string{}
	for name, data := range files {
		if strings.HasPrefix(name, "policies/") {
			policies[name] = string(data)
		}
	}
	return maps.Equal(policies, stored)
}

// Open gives the bundle that a folder holds. The error says what to do about a
// folder that holds none.
func Open(dir string) (fs.FS, error) {
	for _, part := range []string{"cue.mod", "schema", "policies"} {
		info, err := os.Stat(filepath.Join(dir, part))
		if err != nil || !info.IsDir() {
			return nil, fmt.Errorf("%s holds no bundle, %s/ is missing: `muster policy init DIR` writes the shipped one", dir, part)
		}
	}
	return os.DirFS(dir), nil
}

func writeTree(tree fs.FS, dir string, wanted func(name string) bool) error {
	return fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !wanted(name) {
			return err
		}
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		return writeFile(filepath.Join(dir, filepath.FromSlash(name)), data)
	})
}

func writeFile(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
