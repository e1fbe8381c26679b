package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// checkShape holds an answer against the document: status, form, and that no
// field is there that the document does not tell of.
func (w *world) checkShape(r *http.Request, a answer) {
	w.t.Helper()
	in := r.Clone(context.Background())
	if path := in.URL.Path; !strings.HasSuffix(path, "/") && (strings.HasPrefix(path, "/api/v1/") && !strings.HasSuffix(path, ".json") || strings.HasPrefix(path, "/ui") && !strings.HasSuffix(path, ".css") && !strings.HasSuffix(path, ".js")) {
		in.URL.Path += "/"
	}
	template := w.server.TemplateOf(in)
	item := w.server.Document().Paths.Value(template)
	if item == nil || item.GetOperation(r.Method) == nil {
		if a.Status != http.StatusNotFound && a.Status != http.StatusMethodNotAllowed && r.Method != http.MethodHead {
			w.t.Errorf("%s %s answered %d and is not in the document", r.Method, r.URL.Path, a.Status)
		}
		return
	}
	op := item.GetOperation(r.Method)
	response := op.Responses.Status(a.Status)
	if response == nil {
		response = op.Responses.Default()
	}
	if form := a.Header.Get("Content-Type"); strings.HasPrefix(form, "text/") {
		if response == nil || response.Value.Content.Get(form) == nil && a.Status < 300 {
			w.t.Errorf("%s %s answered %d as %s, which the document does not describe", r.Method, r.URL, a.Status, form)
		}
		return
	}
	err := openapi3filter.ValidateResponse(w.ctx(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, Route: &routers.Route{
			Spec: w.server.Document(), Path: template, PathItem: item, Method: r.Method, Operation: op,
		}},
		Status: a.Status, Header: a.Header, Body: io.NopCloser(bytes.NewReader(a.Body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, MultiError: true},
	})
	if err != nil {
		w.t.Errorf("%s %s answered %d, which the document does not describe: %v\n%s", r.Method, r.URL, a.Status, err, a.Body)
	}
	media := response.Value.Content.Get(a.Header.Get("Content-Type"))
	if media == nil || !strings.Contains(a.Header.Get("Content-Type"), "json") || len(a.Body) == 0 {
		return
	}
	var value any
	must(w.t, json.Unmarshal(a.Body, &value))
	for _, undocumented := range extra(media.Schema.Value, value, "") {
		w.t.Errorf("%s %s: %s is not in the document", r.Method, r.URL.Path, undocumented)
	}
}

// extra lists the fields of a value that no schema tells of.
func extra(schema *openapi3.Schema, value any, path string) []string {
	var found []string
	switch v := value.(type) {
	case map[string]any:
		known, open := properties(schema, v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			property, ok := known[name]
			switch {
			case ok:
				found = append(found, extra(property.Value, v[name], path+"/"+name)...)
			case !open:
				found = append(found, path+"/"+name)
			}
		}
	case []any:
		items := schema.Items
		for _, branch := range schema.AnyOf {
			if branch.Value.Items != nil {
				items = branch.Value.Items
			}
		}
		for i, one := range v {
			if items != nil {
				found = append(found, extra(items.Value, one, fmt.Sprintf("%s/%d", path, i))...)
			}
		}
	}
	return found
}

// properties gathers the fields of a schema, of all that it is made of and of
// the alternative that the value is of.
func properties(schema *openapi3.Schema, value map[string]any) (known map[string]*openapi3.SchemaRef, open bool) {
	known = maps.Clone(map[string]*openapi3.SchemaRef(schema.Properties))
	if known == nil {
		known = map[string]*openapi3.SchemaRef{}
	}
	open = schema.AdditionalProperties.Schema != nil || schema.AdditionalProperties.Has != nil && *schema.AdditionalProperties.Has ||
		len(schema.Properties) == 0 && len(schema.AllOf) == 0 && len(schema.AnyOf) == 0
	parts := slices.Clone(schema.AllOf)
	for _, branch := range schema.AnyOf {
		if branch.Value.VisitJSON(value, openapi3.EnableJSONSchema2020()) == nil {
			parts = append(parts, branch)
		}
	}
	for _, part := range parts {
		more, partOpen := properties(part.Value, value)
		maps.Copy(known, more)
		open = open || partOpen
	}
	return known, open
}

func TestEveryRouteIsInTheDocumentAndTheReverse(t *testing.T) {
	w := newWorld(t)
	doc := w.server.Document()
	documented, registered := map[string]string{}, map[string]string{}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			scope := ""
			for _, one := range *op.Security {
				scope = strings.Join(one["bearer"], ",")
			}
			documented[method+" "+path] = scope
		}
	}
	for _, one := range w.server.Registered() {
		registered[one.Method+" "+one.Path] = one.Scope
	}
	if !maps.Equal(documented, registered) {
		t.Errorf("documented %v\nregistered %v", documented, registered)
	}
	walked, err := w.server.Walked()
	must(t, err)
	for _, one := range walked {
		method := strings.Replace(one[0], http.MethodHead, http.MethodGet, 1)
		if _, known := registered[method+" "+one[1]]; !known {
			t.Errorf("the router answers %v, which is not in the table", one)
		}
	}
	if got := w.ask("", http.MethodGet, "/api/v1/openapi.json", nil).json()["openapi"]; got != "3.1.0" {
		t.Errorf("the served document says openapi %v", got)
	}
}
