package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// What CUE would read otherwise than it is written, or not at all, is told.
func TestOddFilesAreTold(t *testing.T) {
	t.Parallel()
	const status, limits = "policies/status/status.cue", "policies/limits/limits.cue"
	for name, test := range map[string]struct {
		edit func(files fstest.MapFS)
		want string // "" where the bundle loads
	}{
		"Latin-1 in a comment": {
			func(files fstest.MapFS) { files[limits].Data = append(files[limits].Data, "\n// caf\xe9\n"...) },
			limits + ":14:7: the file is not written in UTF-8",
		},
		"UTF-16": {
			func(files fstest.MapFS) { files[limits].Data = []byte("\xff\xfep\x00a\x00") },
			limits + ":1:1: the file is not written in UTF-8",
		},
		"a byte order mark": {
			func(files fstest.MapFS) { files[limits].Data = append([]byte("\xef\xbb\xbf"), files[limits].Data...) }, "",
		},
		"the ends of lines of another system": {
			func(files fstest.MapFS) {
				files[status].Data = []byte(strings.ReplaceAll(string(files[status].Data), "\n", "\r\n"))
			}, "",
		},
		"a package that policies import": {
			func(files fstest.MapFS) {
				files["policies/shared/shared.cue"] = &fstest.MapFile{Data: []byte("package shared\n\nfailed: \"failed\"\n")}
				text := strings.Replace(string(files[status].Data), `then: "failed"`, "then: shared.failed", 1)
				files[status].Data = []byte(strings.Replace(text, `"mini.example/bundle/schema"`, "\"mini.example/bundle/schema\"\n\t\"mini.example/bundle/policies/shared\"", 1))
			}, "",
		},
		"a package that nobody imports": {
			func(files fstest.MapFS) {
				files["policies/shared/shared.cue"] = &fstest.MapFile{Data: []byte("package shared\n\nfailed: \"failed\"\n")}
			}, "policies/shared/shared.cue:1:1: warning: nothing reads the package",
		},
		"a module of a language to come": {
			func(files fstest.MapFS) {
				files["cue.mod/module.cue"].Data = []byte("module: \"mini.example/bundle\"\nlanguage: version: \"v0.99.0\"\n")
			}, "cue.mod/module.cue: language version \"v0.99.0\"",
		},
		"an import cycle": {
			func(files fstest.MapFS) {
				file := files["policies/conditions/conditions.cue"]
				file.Data = []byte(strings.Replace(string(file.Data), `"mini.example/bundle/schema"`, "(\n\t\"mini.example/bundle/schema\"\n\t\"mini.example/bundle/policies/status\"\n)", 1))
			}, "package import cycle not allowed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := miniFiles(t)
			test.edit(files)
			_, findings, err := Load(files, Options{})
			if test.want == "" {
				for _, f := range findings {
					if f.Severity == Error {
						t.Error(f)
					}
				}
				return
			}
			var said []string
			for _, f := range findings {
				said = append(said, f.String())
			}
			if !strings.Contains(strings.Join(said, "\n"), test.want) {
				t.Errorf("want %q, got %v, %q", test.want, err, said)
			}
		})
	}
}

// What a link points to is hashed by nobody and stored nowhere.
func TestSymbolicLinksAreRefused(t *testing.T) {
	t.Parallel()
	for name, link := range map[string][2]string{
		"to a file":           {"policies/status/more.cue", "../../cue.mod/module.cue"},
		"to nothing":          {"policies/status/more.cue", "nowhere.cue"},
		"to a folder":         {"policies/other", "status"},
		"of a tree to itself": {"policies/status/loop", ".."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for path, file := range miniFiles(t) {
				at := filepath.Join(dir, filepath.FromSlash(path))
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, file.Data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(link[1], filepath.Join(dir, filepath.FromSlash(link[0]))); err != nil {
				t.Fatal(err)
			}
			_, _, err := Load(os.DirFS(dir), Options{})
			var vet *VetError
			if !errors.As(err, &vet) || vet.Findings[0].File != link[0] || !strings.Contains(err.Error(), "symbolic link") {
				t.Errorf("got %v", err)
			}
		})
	}
}
