package httpapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs"
)

// jobForm asks for what a workflow needs to run on one device.
type jobForm struct {
	Token  string
	Key    string // of the submission
	Fields []formField
	Reason string
	With   []string // switches that let the workflow run, which does not otherwise
	Forces bool     // each of them takes the device from its customer
	Sent   bool     // it is shown again, because it was refused
}

// formField asks for one parameter.
type formField struct {
	Name     string
	Kind     string // bool, number, text or choice
	Text     string // what it is
	Value    string // "true" of a bool that is on
	Choices  []string
	Required bool
	Whole    bool // of a number
	Forces   bool
}

// schemaField is what a form reads of a parameter's JSON Schema.
type schemaField struct {
	Type        any      `json:"type"` // a name, or several
	Description string   `json:"description"`
	Default     any      `json:"default"`
	Enum        []string `json:"enum"`
}

const parameterPrefix = "p." // of a parameter's field in a form

// fieldsOf gives the fields of a workflow's parameters; false where one of them is
// more than a field can hold.
func fieldsOf(w *engine.Workflow) ([]formField, bool) {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if json.Unmarshal(w.ParameterSchema(), &schema) != nil {
		return nil, false
	}
	var fields []formField
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		var p schemaField
		if json.Unmarshal(schema.Properties[name], &p) != nil {
			return nil, false
		}
		f := formField{Name: name, Text: p.Description, Required: slices.Contains(schema.Required, name), Choices: p.Enum, Forces: jobs.Forcing(name)}
		if p.Default != nil {
			f.Value = fmt.Sprint(p.Default)
		}
		switch kind := kindOf(p.Type); {
		case kind == "boolean":
			f.Kind = "bool"
		case kind == "integer" || kind == "number":
			f.Kind, f.Whole = "number", kind == "integer"
		case kind == "string" && len(p.Enum) > 0:
			f.Kind = "choice"
		case kind == "string":
			f.Kind = "text"
		default:
			return nil, false
		}
		fields = append(fields, f)
	}
	return fields, true
}

// kindOf is the one type beside null.
func kindOf(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		if v = slices.DeleteFunc(v, func(one any) bool { return one == "null" }); len(v) == 1 {
			kind, _ := v[0].(string)
			return kind
		}
	}
	return ""
}

// formOf is the form that runs a workflow on one device; nil where the reader may
// not, or it takes more than a form. Where only switches let the workflow run,
// they are named.
func (s *Server) formOf(r *request, w *engine.Workflow, with ...string) *jobForm {
	fields, simple := fieldsOf(w)
	if !simple || !w.Available || !s.Jobs.Implements(w.Slug) || w.Through != jobs.ThroughJobs || w.MinDevices > 1 || !r.principal.May(JobWrite) {
		return nil
	}
	if !r.principal.May(JobForce) {
		fields = slices.DeleteFunc(fields, func(f formField) bool { return f.Forces })
	}
	form := &jobForm{Token: s.formToken(r.Request), Key: onceKey(), Fields: fields, With: with}
	form.Forces = len(with) > 0 && !slices.ContainsFunc(with, func(name string) bool { return !jobs.Forcing(name) })
	form.preset()
	if r.form.Get("workflow") == w.Slug { // what was refused is shown as it was sent
		form.Sent, form.Reason = true, r.form.Get("reason")
		for i := range fields {
			fields[i].Value = r.form.Get(parameterPrefix + fields[i].Name)
		}
	}
	return form
}

// preset turns the one switch that lets the workflow run, unless it is dangerous.
func (f *jobForm) preset() {
	if len(f.With) != 1 || f.Forces {
		return
	}
	for i := range f.Fields {
		if one := &f.Fields[i]; one.Name == f.With[0] {
			one.Value = fmt.Sprint(one.Value != "true")
		}
	}
}

// filled gives the parameters that a form was filled with. What is left empty is
// not said; what is no number is sent as it is: whoever validates it says so.
func filled(fields []formField, form url.Values) (json.RawMessage, error) {
	said := map[string]any{}
	for _, f := range fields {
		value := strings.TrimSpace(form.Get(parameterPrefix + f.Name))
		switch {
		case f.Kind == "bool":
			said[f.Name] = value == "true"
		case value == "":
		case f.Kind == "number" && json.Valid([]byte(value)):
			said[f.Name] = json.RawMessage(value)
		default:
			said[f.Name] = value
		}
	}
	return json.Marshal(said)
}

// submitFromPage makes a job of one device, and leads to it.
func (s *Server) submitFromPage(r *request) (string, error) {
	row, err := s.device(r)
	if err != nil {
		return "", err
	}
	order := jobs.Submission{
		Request: jobs.Request{Workflow: r.form.Get("workflow"), Devices: []jobs.Ref{{ID: row.ID}}, Visible: r.principal.Sites},
		Reason:  strings.TrimSpace(r.form.Get("reason")), Force: r.principal.May(JobForce), By: r.caller(), IdempotencyKey: r.form.Get("key"),
	}
	if bundle := s.Policies.Current(); bundle != nil {
		if w, known := bundle.Workflow(order.Workflow); known { // else the submission says so
			fields, _ := fieldsOf(w)
			if order.Parameters, err = filled(fields, r.form); err != nil {
				return "", fmt.Errorf("read the form: %w", err)
			}
		}
	}
	done, err := s.Jobs.Submit(r.Context(), order)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/jobs/%d/", pageRoot, done.Job.ID), nil
}

// cancelFromPage asks a job to end, and shows it.
func (s *Server) cancelFromPage(r *request) (string, error) {
	row, err := s.job(r)
	if err != nil {
		return "", err
	}
	if _, err := s.Jobs.Cancel(r.Context(), row.ID, r.form.Get("reason"), r.caller(), r.principal.Sites); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/jobs/%d/", pageRoot, row.ID), nil
}
