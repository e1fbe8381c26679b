package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/cuecontext"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/format"
	cuejson "cuelang.org/go/encoding/json"
)

// How large the parameters of a submission may be.
const (
	maxParameterBytes = 64 << 10
	maxParameterDepth = 16
)

// Problem is one reason why parameters are refused.
type Problem struct {
	Path       string // such as tests.0.slug, "" for the parameters as a whole
	Constraint string // what is asked there, as CUE spells it
	Actual     string // what was given, as JSON; "" for nothing
	Message    string
}

// parameters is what a workflow's submission may say, as the text of one CUE
// struct that needs nothing else. A context keeps every name that it is asked
// about for as long as it lives, and the names come from callers, so each
// validation has a context of its own.
type parameters struct {
	text string
}

const parametersDef = "#parameters"

func parametersOf(v cue.Value) (*parameters, error) {
	if !v.Exists() || v.Err() == nil && v.IncompleteKind() != cue.StructKind {
		return nil, errors.New("is missing: write {} for a workflow without parameters")
	}
	if err := v.Err(); err != nil {
		return nil, errors.New(brief(err))
	}
	file := &ast.File{}
	definition := &ast.Field{Label: ast.NewIdent(parametersDef)}
	switch node := v.Syntax(cue.All(), cue.Raw(), cue.InlineImports(true), cue.Docs(true)).(type) {
	case *ast.File:
		rest := &ast.StructLit{}
		for _, decl := range node.Decls {
			if _, ok := decl.(*ast.ImportDecl); ok {
				file.Decls = append(file.Decls, decl)
			} else {
				rest.Elts = append(rest.Elts, decl)
			}
		}
		definition.Value = rest
	case ast.Expr:
		definition.Value = node
	default:
		return nil, fmt.Errorf("cannot be read on its own: CUE writes it as %T", node)
	}
	file.Decls = append(file.Decls, definition)
	text, err := format.Node(file)
	if err != nil {
		return nil, fmt.Errorf("cannot be read on its own: %s", brief(err))
	}
	p := &parameters{text: string(text)}
	if _, err := p.definition(cuecontext.New()); err != nil {
		return nil, fmt.Errorf("cannot be read on its own: %w", err)
	}
	return p, nil
}

func (p *parameters) definition(ctx *cue.Context) (cue.Value, error) {
	v := ctx.CompileString(p.text, cue.Filename("parameters"))
	if err := v.Err(); err != nil {
		return v, errors.New(brief(err))
	}
	found := v.LookupPath(cue.ParsePath(parametersDef))
	return found, found.Err()
}

// ValidateParameters checks what a submission says to a workflow, one JSON
// object, and gives it with the defaults filled in, or every problem in the order
// of paths. Nothing at all counts as {}. It asks CUE and takes about a
// millisecond: once a submission, not once a device.
func (b *Bundle) ValidateParameters(slug string, body []byte) (map[string]any, []Problem) {
	w, ok := b.Workflow(slug)
	if !ok {
		return nil, []Problem{{Message: "there is no workflow " + slug}}
	}
	if body = bytes.TrimSpace(body); len(body) == 0 || string(body) == "null" {
		body = []byte("{}")
	}
	if problem := readable(body); problem != "" {
		return nil, []Problem{{Message: problem}}
	}
	ctx := cuecontext.New()
	definition, err := w.parameters.definition(ctx)
	if err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	expr, err := cuejson.Extract("parameters", body)
	if err != nil {
		return nil, []Problem{{Message: brief(err)}}
	}
	given := ctx.BuildExpr(expr)
	whole := definition.Unify(given)
	if err := whole.Validate(cue.Concrete(true), cue.All()); err != nil {
		return nil, problemsOf(ctx, definition, expr, given, err)
	}
	text, err := whole.MarshalJSON()
	if err != nil {
		return nil, problemsOf(ctx, definition, expr, given, err)
	}
	var normalised map[string]any
	if err := json.Unmarshal(text, &normalised); err != nil {
		return nil, []Problem{{Message: err.Error()}}
	}
	return normalised, nil
}

// readable says why a body is no object that may be looked at, "" if it is one.
func readable(body []byte) string {
	if len(body) > maxParameterBytes {
		return fmt.Sprintf("the parameters take more than %d bytes", maxParameterBytes)
	}
	if body[0] != '{' {
		return "the parameters are a JSON object"
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // a number too large for a float is still JSON
	for depth := 0; ; {
		token, err := decoder.Token()
		switch {
		case errors.Is(err, io.EOF) && depth == 0:
			return ""
		case err != nil:
			return "the parameters are no JSON: " + err.Error()
		case token == json.Delim('{') || token == json.Delim('['):
			depth++
		case token == json.Delim('}') || token == json.Delim(']'):
			if depth--; depth == 0 && decoder.More() {
				return "the parameters are one JSON object"
			}
		}
		if depth > maxParameterDepth {
			return fmt.Sprintf("the parameters nest deeper than %d", maxParameterDepth)
		}
	}
}

func problemAt(ctx *cue.Context, definition, given cue.Value, labels []string, one cueerrors.Error) Problem {
	if len(labels) == 0 {
		return Problem{Message: reworded(one)}
	}
	if name, ok := strings.CutPrefix(labels[0], "_"); ok {
		return hiddenProblem(definition, name)
	}
	p := Problem{Path: strings.Join(labels, ".")}
	at := pathOf(labels)
	if value := given.LookupPath(at); value.Exists() {
		if text, err := value.MarshalJSON(); err == nil {
			p.Actual = clipped(string(text))
		}
	}
	if unknownName(one) {
		p.Constraint = "no such parameter"
		p.Message = fmt.Sprintf("%s: there is no such parameter%s", p.Path, nearest(labels[len(labels)-1], namesAt(definition, pathOf(labels[:len(labels)-1]))))
		return p
	}
	if want := expected(ctx, definition, given, labels); want.Exists() {
		p.Constraint = constraintOf(want)
	}
	switch {
	case p.Constraint == "":
		p.Message = fmt.Sprintf("%s: %s", p.Path, reworded(one))
	case p.Actual == "":
		p.Message = fmt.Sprintf("%s is missing: %s", p.Path, p.Constraint)
	default:
		p.Message = fmt.Sprintf("%s: %s is not %s", p.Path, p.Actual, p.Constraint)
	}
	return p
}

// hiddenProblem is of a hidden field: it is named like the parameter that it
// constrains, and its comment says how. CUE may have put a hash behind the name.
func hiddenProblem(definition cue.Value, name string) Problem {
	p := Problem{Path: name}
	fields, err := definition.Fields(cue.All())
	for err == nil && fields.Next() {
		hidden, ok := strings.CutPrefix(fields.Selector().String(), "_")
		if base := baseOf(hidden); ok && (hidden == name || base == baseOf(name)) {
			p.Path = base
			p.Constraint = commentOf(fields.Value())
		}
	}
	p.Message = fmt.Sprintf("%s: %s", p.Path, p.Constraint)
	return p
}

// baseOf is a hidden name without the hash that CUE puts behind it where it
// writes a package's field elsewhere.
func baseOf(name string) string {
	i := strings.LastIndexByte(name, '_')
	if i < 0 || len(name)-i != len("_054E2263") || strings.Trim(name[i+1:], "0123456789ABCDEF") != "" {
		return name
	}
	return name[:i]
}

// commentOf is the comment over a field, as one line.
func commentOf(v cue.Value) string {
	var lines []string
	for _, group := range v.Doc() {
		lines = append(lines, strings.Fields(group.Text())...)
	}
	return strings.Join(lines, " ")
}

// expected is what the definition asks at a place, given everything but the
// parameter that the place lies in: what it asks may depend on the others.
func expected(ctx *cue.Context, definition, given cue.Value, labels []string) cue.Value {
	others := definition
	fields, err := given.Fields()
	for err == nil && fields.Next() {
		if name := fields.Selector(); name.Unquoted() != labels[0] && definition.LookupPath(cue.MakePath(name)).Exists() {
			others = others.FillPath(cue.MakePath(name), fields.Value())
		}
	}
	for depth := len(labels); depth > 0; depth-- {
		if found := anyAt(others, labels[:depth]); found.Exists() {
			return found
		}
	}
	return ctx.CompileString("_|_")
}

// constraintOf spells what a value may be, without what it is by default.
func constraintOf(v cue.Value) string {
	if v.IncompleteKind() == cue.BoolKind && len(typesOf(v.IncompleteKind())) == 1 && !v.Eval().IsConcrete() {
		return "bool"
	}
	return strings.ReplaceAll(strings.TrimPrefix(spelled(v), "*"), " | *", " | ")
}

// anyAt follows labels through a definition, any element standing for each.
func anyAt(v cue.Value, labels []string) cue.Value {
	for _, label := range labels {
		next := v.LookupPath(pathOf([]string{label}))
		if !next.Exists() && isIndex(label) {
			next = elementOf(v)
		}
		if v = next; !v.Exists() {
			return v
		}
	}
	return v
}

func pathOf(labels []string) cue.Path {
	var selectors []cue.Selector
	for _, label := range labels {
		if isIndex(label) {
			n := 0
			for _, digit := range label {
				n = n*10 + int(digit-'0')
			}
			selectors = append(selectors, cue.Index(n))
			continue
		}
		if text, err := literalText(label); err == nil {
			label = text
		}
		selectors = append(selectors, cue.Str(label))
	}
	return cue.MakePath(selectors...)
}

func isIndex(label string) bool {
	return label != "" && len(label) < 9 && strings.Trim(label, "0123456789") == ""
}

// namesAt lists the fields of a struct of the definition.
func namesAt(definition cue.Value, at cue.Path) []string {
	var names []string
	v := definition
	if len(at.Selectors()) > 0 {
		v = definition.LookupPath(at)
	}
	fields, err := v.Fields(cue.Optional(true))
	for err == nil && fields.Next() {
		names = append(names, fields.Selector().Unquoted())
	}
	return names
}

func clipped(text string) string {
	if runes := []rune(text); len(runes) > 160 {
		return string(runes[:159]) + "…"
	}
	return text
}
