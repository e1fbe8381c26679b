package engine

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/encoding/yaml"
)

// Decode checks one CUE, JSON or YAML document against a definition of
// schema/ (such as "#Site") and decodes it, defaults filled in. The file's
// name tells the form by its ending and stands in every error with line and
// column; all errors are reported at once.
func Decode(tree fs.FS, definition, name string, data []byte, into any) error {
	ctx := cuecontext.New()
	schema, err := buildSchema(ctx, tree)
	if err != nil {
		return err
	}
	want := schema.LookupPath(cue.ParsePath(definition))
	if !want.Exists() {
		return fmt.Errorf("schema/ has no definition %s", definition)
	}
	document, err := document(ctx, name, data)
	if err != nil {
		return decodeError(name, err)
	}
	value := want.Unify(document)
	if err := value.Validate(cue.Concrete(true), cue.All()); err != nil {
		return decodeError(name, err)
	}
	body, err := value.MarshalJSON()
	if err != nil {
		return decodeError(name, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// document compiles the text; a CUE file may begin with a package clause.
func document(ctx *cue.Context, name string, data []byte) (cue.Value, error) {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml":
		file, err := yaml.Extract(name, data)
		if err != nil {
			return cue.Value{}, err
		}
		v := ctx.BuildFile(file)
		return v, v.Err()
	default: // JSON is CUE
		v := ctx.CompileBytes(data, cue.Filename(name))
		return v, v.Err()
	}
}

// buildSchema builds schema/ alone: it imports nothing of ours.
func buildSchema(ctx *cue.Context, tree fs.FS) (cue.Value, error) {
	names, err := fs.Glob(tree, "schema/*.cue")
	if err != nil || len(names) == 0 {
		return cue.Value{}, fmt.Errorf("no schema/*.cue in the bundle: %w", err)
	}
	instance := newInstance("schema")
	for _, name := range names {
		data, err := fs.ReadFile(tree, name)
		if err != nil {
			return cue.Value{}, fmt.Errorf("read the schema: %w", err)
		}
		file, err := parser.ParseFile(name, data, parser.ParseComments)
		if err != nil {
			return cue.Value{}, fmt.Errorf("read the schema: %w", err)
		}
		if err := instance.AddSyntax(file); err != nil {
			return cue.Value{}, fmt.Errorf("read the schema: %w", err)
		}
	}
	if err := instance.Complete(); err != nil {
		return cue.Value{}, fmt.Errorf("read the schema: %w", err)
	}
	v := ctx.BuildInstance(instance)
	return v, v.Err()
}

// decodeError tells each error in one line, with the position in the document
// first and the schema's only where the document has none. What CUE says of
// each member of a disjunction becomes one line that lists them.
func decodeError(name string, err error) error {
	var lines []string
	allowed := map[string][]string{}
	for _, one := range errors.Errors(err) {
		where := strings.Join(one.Path(), ".")
		prefix := place(name, one) + ": " + where + ": "
		if where == "" {
			prefix = place(name, one) + ": "
		}
		format, args := one.Msg()
		text := fmt.Sprintf(format, args...)
		switch {
		case strings.HasSuffix(text, "errors in empty disjunction:"):
			continue
		case format == "conflicting values %s and %s" && len(args) == 2:
			prefix += fmt.Sprintf("%v is not allowed", args[1])
			allowed[prefix] = append(allowed[prefix], fmt.Sprint(args[0]))
			lines = append(lines, prefix)
		default:
			lines = append(lines, prefix+text)
		}
	}
	lines = dedupe(lines)
	for i, line := range lines {
		if members := allowed[line]; len(members) > 0 {
			lines[i] += ": " + strings.Join(dedupe(members), ", ")
		}
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

func place(name string, err errors.Error) string {
	for _, p := range errors.Positions(err) {
		if p.Filename() == name {
			return fmt.Sprintf("%s:%d:%d", name, p.Line(), p.Column())
		}
	}
	return name
}

func dedupe(lines []string) []string {
	seen := map[string]bool{}
	kept := lines[:0]
	for _, line := range lines {
		if !seen[line] {
			seen[line] = true
			kept = append(kept, line)
		}
	}
	return kept
}

func newInstance(name string) *build.Instance { return build.NewContext().NewInstance(name, nil) }
