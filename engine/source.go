package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"cuelang.org/go/mod/modfile"
	"cuelang.org/go/mod/module"
)

// How large a bundle may be. Policies under review are untrusted.
const (
	maxFiles     = 2000
	maxFileBytes = 1 << 20
	maxTreeBytes = 16 << 20
	maxDepth     = 8
)

// source is the tree of a bundle, read once: what is hashed is what is loaded.
type source struct {
	files map[string][]byte // by slash-separated path, cue.mod/, schema/ and policies/ only
	paths []string          // sorted
}

// readSource reads the tree. It fails on what is too large to be a bundle and
// on a tree without policies.
func readSource(fsys fs.FS) (*source, error) {
	src := &source{files: map[string][]byte{}}
	total := 0
	for _, root := range []string{"cue.mod", "schema", "policies"} {
		err := fs.WalkDir(fsys, root, func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				if strings.Count(name, "/") >= maxDepth {
					return &refusal{name, fmt.Sprintf("folders nest deeper than %d", maxDepth)}
				}
				if base := path.Base(name); name != root && (base == "testdata" || strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".")) {
					return fs.SkipDir
				}
				return nil
			}
			if entry.Type()&fs.ModeSymlink != 0 {
				return linked(fsys, name)
			}
			if !strings.HasSuffix(name, ".cue") || !entry.Type().IsRegular() {
				return nil
			}
			if len(src.files) >= maxFiles {
				return &refusal{name, fmt.Sprintf("a bundle has at most %d files", maxFiles)}
			}
			data, err := readBounded(fsys, name)
			if err != nil {
				return err
			}
			if total += len(data); total > maxTreeBytes {
				return &refusal{name, fmt.Sprintf("a bundle has at most %d bytes in all", maxTreeBytes)}
			}
			src.files[name] = data
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read bundle: %w", err)
		}
	}
	for name := range src.files {
		src.paths = append(src.paths, name)
	}
	slices.Sort(src.paths)
	return src, nil
}

// refusal says why a tree is not read, and at which of its files.
type refusal struct{ name, why string }

func (r *refusal) Error() string { return r.name + ": " + r.why }

// linked refuses a symbolic link to what CUE would read: what is hashed, stored
// and judged by is what lies in the tree.
func linked(fsys fs.FS, name string) error {
	if info, err := fs.Stat(fsys, name); strings.HasSuffix(name, ".cue") || err == nil && info.IsDir() {
		return &refusal{name, "a bundle holds no symbolic links: put what it points to in its place"}
	}
	return nil
}

func readBounded(fsys fs.FS, name string) ([]byte, error) {
	file, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileBytes {
		return nil, &refusal{name, fmt.Sprintf("a file has at most %d bytes", maxFileBytes)}
	}
	return data, nil
}

// decides reports whether a file takes part in decisions: one of policies/ that
// is no test. These are hashed into the version.
func decides(name string) bool {
	return strings.HasPrefix(name, "policies/") && !strings.HasSuffix(name, "_tests.cue") && !strings.HasSuffix(name, "_test.cue")
}

// version is the hash of every file that decides.
func (s *source) version() string { return s.hash(decides) }

// schema is the hash of what the policies are unified with.
func (s *source) schema() string {
	return s.hash(func(name string) bool { return strings.HasPrefix(name, "schema/") && strings.HasSuffix(name, ".cue") })
}

// hash is over path and bytes, each with its length before it, of the files that
// are chosen, in the order of paths.
func (s *source) hash(chosen func(name string) bool) string {
	hash := sha256.New()
	part := func(data []byte) {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(data)))
		hash.Write(length[:])
		hash.Write(data)
	}
	for _, name := range s.paths {
		if chosen(name) {
			part([]byte(name))
			part(s.files[name])
		}
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

// withoutTests is the tree as production loads it.
func (s *source) withoutTests() *source {
	lean := &source{files: make(map[string][]byte, len(s.files))}
	for _, name := range s.paths {
		if !strings.HasPrefix(name, "policies/") || decides(name) {
			lean.files[name] = s.files[name]
			lean.paths = append(lean.paths, name)
		}
	}
	return lean
}

// packages lists the folders that hold CUE files, as the loader wants them
// named: it knows no "./..." on a file system of ours.
func (s *source) packages() []string {
	var dirs []string
	for _, name := range s.paths {
		if dir := "./" + path.Dir(name); !strings.HasPrefix(name, "cue.mod/") && !strings.HasSuffix(name, "_test.cue") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Open makes a source an fs.FS.
func (s *source) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if data, ok := s.files[name]; ok {
		return &openFile{Reader: bytes.NewReader(data), entry: treeEntry{name: path.Base(name), size: len(data)}}, nil
	}
	entries := s.list(name)
	if entries == nil && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &openDir{entry: treeEntry{name: path.Base(name), dir: true}, entries: entries}, nil
}

// list gives the entries of a folder in the order of names.
func (s *source) list(dir string) []fs.DirEntry {
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	var entries []fs.DirEntry
	seen := map[string]bool{}
	for _, name := range s.paths {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		first, _, deeper := strings.Cut(rest, "/")
		if seen[first] {
			continue
		}
		seen[first] = true
		entry := treeEntry{name: first, dir: deeper}
		if !deeper {
			entry.size = len(s.files[name])
		}
		entries = append(entries, entry)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries
}

// treeEntry describes a file or folder of a source.
type treeEntry struct {
	name string
	dir  bool
	size int
}

func (e treeEntry) Name() string               { return e.name }
func (e treeEntry) IsDir() bool                { return e.dir }
func (e treeEntry) Size() int64                { return int64(e.size) }
func (e treeEntry) ModTime() time.Time         { return time.Time{} }
func (e treeEntry) Sys() any                   { return nil }
func (e treeEntry) Info() (fs.FileInfo, error) { return e, nil }
func (e treeEntry) Type() fs.FileMode          { return e.Mode().Type() }
func (e treeEntry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type openFile struct {
	*bytes.Reader
	entry treeEntry
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.entry, nil }
func (f *openFile) Close() error               { return nil }

type openDir struct {
	entry   treeEntry
	entries []fs.DirEntry
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.entry, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.entry.name, Err: errors.New("is a folder")}
}

func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		rest := d.entries
		d.entries = nil
		return rest, nil
	}
	if len(d.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.entries))
	rest := d.entries[:n]
	d.entries = d.entries[n:]
	return rest, nil
}

// refuseModules is the registry of a bundle: it has none, a bundle is whole.
type refuseModules struct{}

var errNoModules = errors.New("a bundle may not depend on other CUE modules: copy what it needs into schema/ or policies/")

func (refuseModules) ModFile(context.Context, module.Version) (*modfile.File, error) {
	return nil, errNoModules
}

func (refuseModules) Fetch(context.Context, module.Version) (module.SourceLoc, error) {
	return module.SourceLoc{}, errNoModules
}

func (refuseModules) ModuleVersions(context.Context, string) ([]string, error) {
	return nil, errNoModules
}
