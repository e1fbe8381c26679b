package httpapi

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"go.yaml.in/yaml/v3"
)

//go:embed openapi/*.yaml
var documentFiles embed.FS

// contract is the OpenAPI document, ready to check requests.
type contract struct {
	doc  *openapi3.T
	json []byte // as it is served
}

// operation is one operation of the document.
type operation struct {
	route routers.Route
	query map[string]*openapi3.Parameter // by name
}

// loadContract joins the parts of the document and checks the whole.
func loadContract() (*contract, error) {
	whole, err := joined(documentFiles)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	data, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("read the OpenAPI document: %w", err)
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("the OpenAPI document is not valid: %w", err)
	}
	return &contract{doc: doc, json: data}, nil
}

// joined merges the files of the document: each holds some of the paths and
// components, one the rest.
func joined(files fs.FS) (map[string]any, error) {
	names, err := fs.Glob(files, "openapi/*.yaml")
	if err != nil {
		return nil, err
	}
	whole := map[string]any{}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		var part map[string]any
		if err := yaml.Unmarshal(data, &part); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if err := merge(whole, part, 0); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return whole, nil
}

// merge adds the fields of part, those of paths and components one level
// deeper each. Nothing may be said twice.
func merge(whole, part map[string]any, depth int) error {
	for key, value := range part {
		old, there := whole[key]
		into, isMap := old.(map[string]any)
		more, areMaps := value.(map[string]any)
		switch {
		case !there:
			whole[key] = value
		case isMap && areMaps && depth < 2:
			if err := merge(into, more, depth+1); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		default:
			return fmt.Errorf("%s is there twice", key)
		}
	}
	return nil
}

// operation finds what the document says of a route.
func (c *contract) operation(method, path string) (*operation, error) {
	item := c.doc.Paths.Value(path)
	if item == nil || item.GetOperation(method) == nil {
		return nil, fmt.Errorf("%s %s is not in the OpenAPI document", method, path)
	}
	// The library checks a 3.1 document by compiling each schema at each request,
	// and tells only the first thing that is wrong. Its own checker, which it keeps
	// for 3.0, does neither; openapi/ uses nothing that it does not know.
	spec := *c.doc
	spec.OpenAPI = "3.0.3"
	op := &operation{query: map[string]*openapi3.Parameter{}, route: routers.Route{
		Spec: &spec, Path: path, PathItem: item, Method: method, Operation: item.GetOperation(method),
	}}
	for _, list := range []openapi3.Parameters{item.Parameters, op.route.Operation.Parameters} {
		for _, p := range list {
			if p.Value.In == openapi3.ParameterInQuery {
				op.query[p.Value.Name] = p.Value
			}
		}
	}
	return op, nil
}

// check refuses a request that does not fit the operation, telling everything
// that is wrong with it, and completes r.
func (c *contract) check(r *request, op *operation) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refuse(http.StatusBadRequest, "request_invalid", "the query is not readable: %v", err)
	}
	var faults []fault
	r.query, faults = op.known(query)
	if op.route.Operation.RequestBody != nil && r.form == nil {
		if r.body, err = readJSON(r.Request); err != nil {
			return err
		}
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r.Request, PathParams: r.vars, QueryParams: r.query, Route: &op.route,
		Options: &openapi3filter.Options{MultiError: true, SkipSettingDefaults: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	faults = append(faults, faultsOf(openapi3filter.ValidateRequest(r.Context(), input), "")...)
	if len(faults) > 0 {
		return refuse(http.StatusBadRequest, "request_invalid", "the request does not fit the API's description: see errors and %s", documentPath).with(faults...)
	}
	return nil
}

// known drops blank values, which are the same as none, and refuses what the
// operation does not know: a filter that is not applied must not look as if it
// were.
func (op *operation) known(query url.Values) (url.Values, []fault) {
	kept := url.Values{}
	var faults []fault
	for _, name := range slices.Sorted(maps.Keys(query)) {
		values := slices.DeleteFunc(query[name], func(v string) bool { return strings.TrimSpace(v) == "" })
		parameter, ok := op.query[name]
		switch {
		case !ok:
			faults = append(faults, fault{Parameter: name, Detail: "unknown parameter: this operation takes " + op.names()})
		case len(values) > 1 && !parameter.Schema.Value.Type.Is("array"):
			faults = append(faults, fault{Parameter: name, Detail: "may be given once only"})
		case len(values) > 0:
			kept[name] = values
		}
	}
	return kept, faults
}

func (op *operation) names() string {
	if len(op.query) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(op.query)), ", ")
}

// maxDepth is how deep a body may nest. None of ours comes near it.
const maxDepth = 64

// readJSON reads a whole body, which is JSON, within the server's limits.
func readJSON(r *http.Request) ([]byte, error) {
	if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); !strings.EqualFold(strings.TrimSpace(kind), "application/json") {
		return nil, refuse(http.StatusUnsupportedMediaType, "media_type_unsupported", "send the body as Content-Type: application/json")
	}
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, refuse(http.StatusRequestEntityTooLarge, "body_too_large", "the body may have %d bytes at most: send it in parts", large.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return nil, refuse(http.StatusRequestTimeout, "body_too_slow", "the body did not come within %s", readTimeout)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "body_unreadable", "the body did not come whole")
	case depth(body) > maxDepth:
		return nil, refuse(http.StatusBadRequest, "body_too_deep", "the body may nest %d deep at most", maxDepth)
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal(body, new(json.RawMessage)); errors.As(err, &syntax) {
		return nil, refuse(http.StatusBadRequest, "body_not_json", "the body is not JSON: %v at byte %d", syntax, syntax.Offset)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body, nil
}

// depth tells how deep arrays and objects nest, without building anything.
func depth(body []byte) int {
	deepest, now, text := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}

func (s *Server) serveDocument(w http.ResponseWriter, r *http.Request) {
	if err := tagged(json.RawMessage(s.contract.json)).write(w, r); err != nil {
		s.fail(w, r, trailOf(r), err)
	}
}
