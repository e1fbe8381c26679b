package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/config"
	"github.com/musterhq/muster/cmd/muster/recording"
)

const repository = "../.."

// page is one file of words for users.
type page struct {
	name  string // from the repository's root
	text  string
	spans []span
}

// span is a stretch of code: a line of a block, or what stands in backquotes.
type span struct {
	line  int
	block bool
	text  string
}

func (p *page) at(s span) string { return p.name + ":" + strconv.Itoa(s.line) }

// pages reads everything that is written for users.
func pages(t *testing.T) []page {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := filepath.Glob(filepath.Join(repository, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	if len(names) < 5 {
		t.Fatalf("only %v were found", names)
	}
	var all []page
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(repository, name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page{name: filepath.ToSlash(rel), text: string(text), spans: spansOf(string(text))})
	}
	return all
}

var quotedCode = regexp.MustCompile("`([^`]+)`")

func spansOf(text string) []span {
	var spans []span
	fenced := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced
		case fenced || strings.HasPrefix(line, "    "):
			spans = append(spans, span{i + 1, true, line})
		default:
			for _, m := range quotedCode.FindAllStringSubmatch(line, -1) {
				spans = append(spans, span{i + 1, false, m[1]})
			}
		}
	}
	return spans
}

var (
	// invocation finds the command in a line: what a person types, or a step of a pipeline runs.
	invocation  = regexp.MustCompile(`(?:^|[\s=/(])muster ([a-zA-Z-][^|;&#)]*)`)
	placeholder = regexp.MustCompile(`^\[?[A-Z][A-Z|]*(…|\.\.\.)?\]?$`)
	typed       = regexp.MustCompile(`^\s*(\$ |run: |- run: |ExecStart=|[A-Za-z./]*muster |git |export )|&& muster `)
)

func TestTheCommandsOfTheDocumentsExist(t *testing.T) {
	t.Parallel()
	root := (&app{}).root()
	seen := 0
	for _, p := range pages(t) {
		for _, s := range p.spans {
			if s.block && !typed.MatchString(s.text) || !s.block && !strings.HasPrefix(s.text, "muster ") {
				continue
			}
			for _, m := range invocation.FindAllStringSubmatch(s.text, -1) {
				if strings.HasPrefix(m[1], "is ") { // what it says, not what one types
					continue
				}
				seen++
				checkCommand(t, root, p.at(s), strings.Fields(m[1]))
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d commands were found: does the test still read the documents?", seen)
	}
}

// checkCommand follows the words of a command through the tree.
func checkCommand(t *testing.T, root *cobra.Command, at string, words []string) {
	t.Helper()
	c, operand := root, false
	for i := 0; i < len(words); i++ {
		word := strings.Trim(words[i], `"',.`)
		name, _, valued := strings.Cut(word, "=")
		if strings.HasPrefix(name, "-") && name != "-" {
			flag := c.Flags().Lookup(strings.TrimLeft(name, "-"))
			if flag == nil && !strings.HasPrefix(name, "--") && len(name) == 2 {
				flag = c.Flags().ShorthandLookup(name[1:])
			}
			switch {
			case name == "--help":
			case flag == nil:
				t.Errorf("%s: `%s` has no flag %s", at, c.CommandPath(), name)
				return
			case !valued && flag.NoOptDefVal == "":
				i++ // its value
			}
			continue
		}
		if operand || placeholder.MatchString(word) || strings.HasPrefix(word, "…") {
			operand = true
			continue
		}
		next := slices.IndexFunc(c.Commands(), func(child *cobra.Command) bool { return child.Name() == word })
		switch {
		case next >= 0:
			c = c.Commands()[next]
		case c.HasSubCommands():
			t.Errorf("%s: `%s` has no command %q", at, c.CommandPath(), word)
			return
		default:
			operand = true
		}
	}
}

func TestTheFlagsThatTheDocumentsNameExist(t *testing.T) {
	t.Parallel()
	flags := map[string]bool{"help": true}
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		for _, usage := range strings.Split(c.Flags().FlagUsages(), "\n") {
			for _, word := range strings.Fields(usage) {
				if name, ok := strings.CutPrefix(word, "--"); ok {
					flags[name] = true
				}
			}
		}
		for _, child := range c.Commands() {
			collect(child)
		}
	}
	collect((&app{}).root())
	for _, p := range pages(t) {
		for _, s := range p.spans {
			if name, ok := strings.CutPrefix(s.text, "--"); ok && !s.block {
				name = strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '=' })[0]
				if !flags[name] {
					t.Errorf("%s: no command has the flag --%s", p.at(s), name)
				}
			}
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

func TestTheLinksOfTheDocumentsLead(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(p.text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.HasPrefix(target, "http") {
				continue
			}
			file := filepath.Join(repository, filepath.Dir(p.name), target)
			if target == "" {
				file = filepath.Join(repository, p.name)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s links to %s, which is not there", p.name, m[1])
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil && anchor != "" {
				t.Error(err)
			}
			if anchor != "" && !slices.Contains(anchorsOf(string(text)), anchor) {
				t.Errorf("%s links to %s, which has no such heading", p.name, m[1])
			}
		}
	}
}

// anchorsOf spells headings as hosts of repositories make links of them.
func anchorsOf(text string) []string {
	var anchors []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		anchors = append(anchors, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || 'a' <= r && r <= 'z' || '0' <= r && r <= '9':
				return r
			}
			return -1
		}, strings.ToLower(m[1])))
	}
	return anchors
}

// examples are files that the documents tell a person to write.
var examples = []string{"policies/conditions/overdue.cue", "policies/conditions/overdue_tests.cue", ".github/workflows/policies.yml"}

var sourceFile = regexp.MustCompile(`^[\w./*-]+\.(go|cue|sh)$`)

func TestTheFilesThatTheDocumentsNameAreThere(t *testing.T) {
	t.Parallel()
	var files []string
	if err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return fs.SkipDir
		}
		files = append(files, filepath.ToSlash(path))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pages(t) {
		for _, s := range p.spans {
			if s.block || !sourceFile.MatchString(s.text) || slices.Contains(examples, s.text) || strings.HasPrefix(s.text, "_") {
				continue
			}
			named := regexp.MustCompile("/" + strings.ReplaceAll(regexp.QuoteMeta(s.text), `\*`, `[^/]*`) + "$")
			if !slices.ContainsFunc(files, named.MatchString) && !slices.Contains([]string{"ams1.cue", "site.cue"}, s.text) {
				t.Errorf("%s: there is no file %s", p.at(s), s.text)
			}
		}
	}
}

var metricName = regexp.MustCompile(`\bmuster_[a-z_]*[a-z]\b`)

func TestTheMetricsOfTheDocumentsAreRegistered(t *testing.T) {
	t.Parallel()
	registered := metricsOfTheCode(t)
	documented := map[string]bool{}
	for _, p := range pages(t) {
		for _, name := range metricName.FindAllString(p.text, -1) {
			documented[name] = true
			if !slices.Contains(registered, name) {
				t.Errorf("%s names the metric %s, which nothing registers", p.name, name)
			}
		}
	}
	for _, name := range registered {
		if !documented[name] {
			t.Errorf("no document names the metric %s: say in docs/run-in-production.md what it is for", name)
		}
	}
}

// metricsOfTheCode collects the names out of every file that makes metrics.
func metricsOfTheCode(t *testing.T) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(file.Imports, func(i *ast.ImportSpec) bool { return strings.HasSuffix(i.Path.Value, `/prometheus"`) }) {
			return nil
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if name := strings.Trim(l.Value, `"`); metricName.FindString(name) == name && name != "" {
					names = append(names, name)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 10 {
		t.Fatalf("only the metrics %v were found in the code", names)
	}
	return names
}

var variable = regexp.MustCompile(`\bMUSTER_[A-Z_]+\b`)

func TestTheVariablesOfTheDocumentsAreRead(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		for _, name := range variable.FindAllString(p.text, -1) {
			if slices.ContainsFunc(config.Keys(), func(key string) bool { return config.Variable(key) == name }) {
				continue
			}
			r, err := config.Load(config.Input{Schema: muster.Bundle(), Environ: []string{"MUSTER_DATABASE_URL=postgres://db/muster", name + "=x"}})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Unknown) > 0 {
				t.Errorf("%s names the variable %s, which nothing reads", p.name, name)
			}
		}
	}
}

var cueBlock = regexp.MustCompile("(?s)```cue\n(.*?)```")

func TestTheSitesAndConfigurationsOfTheDocumentsAreGood(t *testing.T) {
	t.Parallel()
	sites, configurations := 0, 0
	for _, p := range pages(t) {
		for _, m := range cueBlock.FindAllStringSubmatch(p.text, -1) {
			file := filepath.Join(t.TempDir(), "block.cue")
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			switch {
			case strings.HasPrefix(m[1], "name: "):
				sites++
				_, err = recording.ReadSite(file)
			case strings.HasPrefix(m[1], "database: "):
				configurations++
				_, err = config.Load(config.Input{Schema: muster.Bundle(), File: file})
			}
			if err != nil {
				t.Errorf("%s: %v in\n%s", p.name, err, m[1])
			}
		}
	}
	if sites == 0 || configurations == 0 {
		t.Errorf("%d sites and %d configurations were found", sites, configurations)
	}
}
