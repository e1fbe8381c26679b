package httpapi

import (
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

// workflowView is one entry of the catalogue.
type workflowView struct {
	Slug       string            `json:"slug"`
	Title      string            `json:"title"`
	Group      string            `json:"group"`
	Available  bool              `json:"available"`
	Contention engine.Contention `json:"contention"`
	Disruptive bool              `json:"disruptive"`
	Through    string            `json:"submitted_through"`
	Stage      *string           `json:"stage"`
	Devices    cardinality       `json:"devices"`
	Held       []string          `json:"held_device_parameters"`
	Stamped    []stampView       `json:"stamped"`
	Failures   []string          `json:"failure_codes"`
	Parameters json.RawMessage   `json:"parameters"` // JSON Schema
	Pos        string            `json:"pos"`
}

// cardinality says how many devices a workflow takes, and which together.
type cardinality struct {
	Min               int  `json:"min"`
	Max               *int `json:"max"`
	SameResourceClass bool `json:"same_resource_class"`
	SameRack          bool `json:"same_rack"`
}

type stampView struct {
	Name string `json:"name"`
	Fact string `json:"fact"`
}

func (s *Server) listWorkflows(r *request) (*reply, error) {
	bundle := s.Policies.Current()
	if bundle == nil {
		return nil, devices.ErrPolicyNotLoaded
	}
	var all []workflowView
	for i := range bundle.Workflows() {
		all = append(all, viewWorkflow(&bundle.Workflows()[i]))
	}
	page, err := paged(r, all, func(w workflowView) string { return w.Slug })
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

func viewWorkflow(w *engine.Workflow) workflowView {
	v := workflowView{
		Slug: w.Slug, Title: w.Title, Group: w.Group, Available: w.Available, Contention: w.Contention, Disruptive: w.Disruptive,
		Through: w.Through, Stage: orNil(w.Stage), Held: listed(w.Held), Stamped: []stampView{}, Failures: listed(w.Failures),
		Devices:    cardinality{Min: w.MinDevices, SameResourceClass: w.SameResourceClass, SameRack: w.SameRack},
		Parameters: w.ParameterSchema(), Pos: w.Pos.Short(),
	}
	if w.MaxDevices > 0 {
		v.Devices.Max = &w.MaxDevices
	}
	for _, stamp := range w.Stamped {
		v.Stamped = append(v.Stamped, stampView{stamp.Name, stamp.Fact})
	}
	return v
}

// refusalView is one reason why something may not be done.
type refusalView struct {
	Code      string  `json:"code"`
	Message   string  `json:"message"`
	Gate      *string `json:"gate"`
	Field     *string `json:"field"`
	Actual    *string `json:"actual"`
	Expected  *string `json:"expected"`
	Condition *string `json:"condition_type"`
	Pos       *string `json:"pos"`
	Holder    *string `json:"holder"` // of a conflict
}

func viewRefusal(r *engine.Refusal) refusalView {
	v := refusalView{
		Code: r.Code, Message: r.Message, Field: orNil(r.Path), Actual: orNil(r.Actual), Expected: orNil(r.Expected), Condition: orNil(r.ConditionType),
	}
	if r.Pos.File != "" {
		pos := r.Pos.Short()
		v.Gate, v.Pos = orNil(r.Name), &pos
	}
	return v
}

func viewRefusals(refused []engine.Refusal) []refusalView {
	views := make([]refusalView, len(refused))
	for i := range refused {
		views[i] = viewRefusal(&refused[i])
	}
	return views
}

// prospect is what one workflow would say of one device if it were submitted
// with nothing but its defaults.
type prospect struct {
	*engine.Workflow
	Asks     []string // parameters that it cannot do without: what rests on them was not judged
	Refusals []refusalView
	Form     *jobForm // runs it; nil where it may not, or no form can
}

// Rows is how many rows of a table the prospect takes.
func (p *prospect) Rows() int {
	if p.Form != nil {
		return len(p.Refusals) + 1
	}
	return len(p.Refusals)
}

// prospects asks every workflow about a device, those that take it first.
func (s *Server) prospects(r *request, id int64) ([]prospect, error) {
	var takes, refuses []prospect
	err := s.Devices.Surveying(r.Context(), func(tx pgx.Tx, bundle *engine.Bundle, of func(int64) (*devices.Admission, error)) error {
		takes, refuses = nil, nil
		known, err := store.DevicesByID(r.Context(), tx, []int64{id})
		if err != nil || len(known) == 0 {
			return err
		}
		admission, err := of(known[0].SiteID)
		if err != nil {
			return err
		}
		found, err := admission.Candidates(r.Context(), tx, known)
		if err != nil {
			return err
		}
		locks, err := store.LocksOf(r.Context(), tx, []int64{id})
		if err != nil {
			return err
		}
		for i := range bundle.Workflows() {
			p := prospectOf(bundle, &bundle.Workflows()[i], &found[0])
			held := conflicts(p.Contention, locks)
			if len(p.Refusals)+len(held) == 0 {
				p.Form = s.formOf(r, p.Workflow)
				takes = append(takes, p)
				continue
			}
			if with := lifts(bundle, p.Workflow, &found[0], r.principal.May(JobForce)); len(held) == 0 && len(with) > 0 {
				p.Form = s.formOf(r, p.Workflow, with...)
			}
			p.Refusals = append(p.Refusals, held...)
			refuses = append(refuses, p)
		}
		return nil
	})
	return append(takes, refuses...), err
}

func prospectOf(b *engine.Bundle, w *engine.Workflow, c *devices.Candidate) prospect {
	p := prospect{Workflow: w}
	parameters, problems := b.ValidateParameters(w.Slug, nil)
	for _, problem := range problems {
		p.Asks = append(p.Asks, problem.Path)
	}
	request := admitRequest(c, parameters)
	p.Refusals = viewRefusals(b.Admit(w.Slug, &request))
	return p
}

// lifts lists the switches among a workflow's parameters of which each alone lets
// it take the device.
func lifts(b *engine.Bundle, w *engine.Workflow, c *devices.Candidate, force bool) []string {
	fields, _ := fieldsOf(w)
	var names []string
	for _, f := range fields {
		if f.Kind != "bool" || f.Forces && !force {
			continue
		}
		said := fmt.Appendf(nil, "{%q: %t}", f.Name, f.Value != "true")
		parameters, _ := b.ValidateParameters(w.Slug, said)
		request := admitRequest(c, parameters)
		if parameters != nil && len(b.Admit(w.Slug, &request)) == 0 {
			names = append(names, f.Name)
		}
	}
	return names
}

// conflicts are the locks that would be in the way.
func conflicts(c engine.Contention, locks []fleet.DeviceLock) []refusalView {
	var views []refusalView
	for i := range locks {
		l := &locks[i]
		if c == engine.Exclusive || c == engine.Shared && l.Mode == string(engine.Exclusive) {
			views = append(views, refusalView{Code: jobs.CodeWorkflowConflict, Message: fmt.Sprintf("%s (%s) holds the device", l.Holder, l.Work), Holder: &l.Holder})
		}
	}
	return views
}

func admitRequest(c *devices.Candidate, parameters map[string]any) engine.AdmitRequest {
	return engine.AdmitRequest{
		Facts: &c.Facts, Codes: &c.Codes, Conditions: c.Masks, Parameters: parameters, StaleSources: c.Aged, StaleTypes: c.Stale,
	}
}
