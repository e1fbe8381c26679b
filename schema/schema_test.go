// Package schema_test plants mistakes in the shipped bundle, one at a time, and
// asks `cue vet` and the engine what they say: an operator's pull request must
// not pass with one of them.
package schema_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
)

// mistake is one entry of testdata/mistakes.cue.
type mistake struct {
	File     string   `json:"file"`
	From     *string  `json:"from"`
	To       *string  `json:"to"`
	Remove   []string `json:"remove"`
	Vet      string   `json:"vet"`
	Line     bool     `json:"line"`
	Lint     string   `json:"lint"`
	At       string   `json:"at"`
	Severity string   `json:"severity"`
}

func mistakes(t *testing.T) map[string]mistake {
	t.Helper()
	data, err := os.ReadFile("testdata/mistakes.cue")
	if err != nil {
		t.Fatal(err)
	}
	value := cuecontext.New().CompileBytes(data, cue.Filename("mistakes.cue"))
	var all map[string]mistake
	if err := value.LookupPath(cue.ParsePath("mistakes")).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// tree is a bundle as path → text.
type tree map[string]string

func shipped(t *testing.T) tree {
	t.Helper()
	files := tree{}
	err := fs.WalkDir(muster.Bundle(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(muster.Bundle(), path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var spaces = regexp.MustCompile(`(\\? )+`)

// plant makes the mistake and gives the lines it stands on, none if it is no
// edit of a file. Values may be aligned otherwise than the mistake writes them.
func (m mistake) plant(t *testing.T, files tree) (first, last int) {
	t.Helper()
	for _, path := range m.Remove {
		delete(files, path)
	}
	switch {
	case m.From == nil && m.To == nil:
		delete(files, m.File)
		return 0, 0
	case m.From == nil:
		files[m.File] = *m.To
		return 1, 1 + strings.Count(*m.To, "\n")
	}
	text := files[m.File]
	at := m.pattern().FindStringIndex(text)
	if at == nil {
		t.Fatalf("%s does not hold %q any more: the mistake cannot be planted", m.File, *m.From)
	}
	files[m.File] = text[:at[0]] + *m.To + text[at[1]:]
	if len(*m.To) > 0 && (*m.To)[0] == '\n' {
		at[0]++
	}
	first = 1 + strings.Count(text[:at[0]], "\n")
	return first, first + strings.Count(strings.TrimSpace(*m.To), "\n")
}

// pattern finds the text that the mistake replaces.
func (m mistake) pattern() *regexp.Regexp {
	return regexp.MustCompile(spaces.ReplaceAllString(regexp.QuoteMeta(*m.From), " +"))
}

// dropOtherTests removes the policy tests of every family but the one that the
// file belongs to and, of eligibility, of every other workflow: they cost most of
// the time and say nothing of it.
func (files tree) dropOtherTests(file string) {
	const eligibility = "policies/eligibility"
	own := strings.TrimSuffix(strings.TrimSuffix(file, ".cue"), "_tests") + "_tests.cue"
	for path := range files {
		switch {
		case !strings.HasSuffix(path, "_tests.cue"), path == own, path == eligibility+"/eligibility_tests.cue":
		case filepath.Dir(path) != filepath.Dir(file), filepath.Dir(path) == eligibility:
			delete(files, path)
		}
	}
}

func (files tree) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		to := filepath.Join(dir, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// cueTool finds the module's own cue command, building it if need be.
func cueTool(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "tool", "-n", "cue").Output()
	if err != nil {
		t.Fatalf("go tool -n cue: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// vet runs cue vet in a folder and gives what it wrote to stderr.
func vet(t *testing.T, tool, dir string, args ...string) (passed bool, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool, append([]string{"vet"}, args...)...)
	cmd.Dir, cmd.WaitDelay = dir, 10*time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	if _, failed := err.(*exec.ExitError); err != nil && !failed {
		t.Fatal(err)
	}
	return err == nil, stderr.String()
}

func TestShippedBundlePassesVet(t *testing.T) {
	t.Parallel()
	tool, dir := cueTool(t), shipped(t).write(t)
	for _, args := range [][]string{{"./..."}, {"-c", "./..."}} {
		if passed, said := vet(t, tool, dir, args...); !passed || said != "" {
			t.Errorf("cue vet %s:\n%s", strings.Join(args, " "), said)
		}
	}
}

// Every mistake that CUE can see fails `cue vet -c ./...` with a message that
// names it, and with the line it stands on; what CUE cannot see is marked so
// that nobody relies on it.
func TestCueVetNamesEachMistake(t *testing.T) {
	t.Parallel()
	tool := cueTool(t)
	for name, m := range mistakes(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := shipped(t)
			first, last := m.plant(t, files)
			files.dropOtherTests(m.File)
			passed, said := vet(t, tool, files.write(t), "-c", m.packages())
			if m.Vet == "" {
				if !passed {
					t.Fatalf("cue vet sees it now: move it to the others and say what it says:\n%s", said)
				}
				if m.Lint == "" {
					t.Fatal("neither CUE nor our own vetting is said to see it")
				}
				return
			}
			if passed {
				t.Fatal("cue vet accepts it")
			}
			if !strings.Contains(said, m.Vet) {
				t.Errorf("cue vet does not say %q:\n%s", m.Vet, said)
			}
			if m.Line && !namesLine(said, m.File, first, last) {
				t.Errorf("cue vet names no line of %s:%d-%d:\n%s", m.File, first, last, said)
			}
		})
	}
}

// packages names what a mistake can be seen in: its own package and, of one that
// others import, those.
func (m mistake) packages() string {
	switch dir := filepath.Dir(m.File); dir {
	case "policies/status", "policies/inventory", "policies/limits", "policies/eligibility", "policies/hardware", "policies/operations":
		return "./" + dir
	}
	return "./..."
}

func namesLine(said, file string, first, last int) bool {
	for line := first; line <= last; line++ {
		if strings.Contains(said, fmt.Sprintf("./%s:%d:", file, line)) {
			return true
		}
	}
	return false
}

// What CUE says of a mistake, the engine says too, in a policy and on the line
// of the mistake; what CUE accepts, the engine finds.
func TestEngineNamesEachMistake(t *testing.T) {
	t.Parallel()
	all := mistakes(t)
	var named map[string]bool
	if underRace {
		maps.DeleteFunc(all, func(_ string, m mistake) bool { return m.Lint == "" })
		named = together(t, all)
	}
	for name, m := range all {
		if named[name] {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := shipped(t)
			first, last := m.plant(t, files)
			files.dropOtherTests(m.File)
			_, findings, err := engine.Load(files.fs(), engine.Options{
				Tests:  strings.HasSuffix(m.File, "_tests.cue"),
				Schema: muster.Bundle(),
			})
			if m.Lint == "" {
				if err == nil {
					t.Fatal("the engine accepts what cue vet refuses")
				}
				if m.Line && !strings.HasPrefix(m.File, "schema/") && !onLine(findings, m.File, first, last) {
					t.Errorf("no error is at %s:%d-%d:\n%s", m.File, first, last, told(findings))
				}
				return
			}
			if m.namedIn(findings, first, last) {
				return
			}
			t.Errorf("no %s at %s:%d-%d says %q:\n%s", m.Severity, m.File, first, last, m.Lint, told(findings))
		})
	}
}

// namedIn reports whether our own vetting names the mistake where it stands.
func (m mistake) namedIn(findings []engine.Finding, first, last int) bool {
	return slices.ContainsFunc(findings, func(f engine.Finding) bool {
		if !strings.Contains(f.Message, m.Lint) || f.Severity.String() != m.Severity {
			return false
		}
		return m.From == nil || f.File == m.At || f.File == m.File && f.Line >= first-head && f.Line <= last
	})
}

// head is how many lines above a test the head of its rung or gate may stand.
const head = 4

func (files tree) fs() fs.FS {
	fsys := fstest.MapFS{}
	for path, text := range files {
		fsys[path] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func onLine(findings []engine.Finding, file string, first, last int) bool {
	return slices.ContainsFunc(findings, func(f engine.Finding) bool {
		return f.Severity == engine.Error && f.File == file && f.Line >= first && f.Line <= last
	})
}

func told(findings []engine.Finding) string {
	var lines []string
	for _, f := range findings {
		if f.Severity != engine.Note {
			lines = append(lines, f.String())
		}
	}
	return strings.Join(lines, "\n")
}
