package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

func (s *Server) racksPage(r *request) (string, any, error) {
	page, err := s.rackPage(r)
	return "racks.html", page, err
}

const (
	rackTasksShown   = 10
	rackDevicesShown = 500
)

// rackShown is everything that is told of one rack.
type rackShown struct {
	Title   string
	Rack    store.Rack
	Parts   []typeCount
	Devices []rackDevice
	More    int            // devices that are not listed
	Tasks   []taskView     // nil: not for this reader
	Rules   []ruleChoice   // nil: not for this reader
	Form    *operationForm // nil: not for this reader
	Problem *problem       // of a form of the page that was refused
}

// typeCount counts the components of a type.
type typeCount struct {
	Type string
	N    int
}

type rackDevice struct {
	ID     int64
	Name   string
	Class  string
	Type   string // of component; "": none
	Status string
}

// ruleChoice says by which rule a rack does one operation: the applying one of
// those that are looked for one after the other.
type ruleChoice struct {
	Operation string
	Title     string
	Source    string // association, default or builtin; "": refused
	Own       *ruleName
	Default   *ruleName
	BuiltIn   bool // the built-in rule's steps are carried out, or would be
	Stand     bool // the stored rule has no steps: the built-in one's are carried out
	Worst     string
	Missing   []rule.Need
	Refused   string
}

type ruleName struct {
	ID   int64
	Name string
}

// operationForm asks for an operation on a rack.
type operationForm struct {
	Token, Key string
	Operations []operationChoice
	Types      []string // of components of the rack
	Force      bool     // an override may be asked for
	Sent       bool     // it is shown again, because it was refused

	Operation, Exclude, Conflict, QueueFor, Reason, Override string
	Components                                               map[string]bool
}

type operationChoice struct{ Code, Title string }

func (s *Server) rackPageOf(r *request) (string, any, error) {
	all, err := s.Operations.RackRules(r.Context(), r.number("rack"), r.principal.Sites)
	if err != nil {
		return "", nil, err
	}
	shown := rackShown{Title: "Rack " + all.Rack.Name, Rack: all.Rack, Problem: r.problem}
	for _, kind := range componentTypes(all.Counts) {
		shown.Parts = append(shown.Parts, typeCount{kind, all.Counts[kind]})
	}
	if err := s.rackDevices(r, &shown); err != nil {
		return "", nil, err
	}
	if r.principal.May(OperationRead) {
		rows, err := store.ListTasks(r.Context(), s.DB, store.TaskFilter{SiteNames: r.principal.Sites, Racks: []int64{all.Rack.ID}, Limit: rackTasksShown})
		if err != nil {
			return "", nil, err
		}
		shown.Tasks = []taskView{}
		for i := range rows {
			shown.Tasks = append(shown.Tasks, s.viewTask(&rows[i]))
		}
	}
	if r.principal.May(RuleRead) {
		for i := range all.Rules {
			shown.Rules = append(shown.Rules, choiceOf(&all.Rules[i]))
		}
	}
	if r.principal.May(OperationWrite) {
		shown.Form = s.operationForm(r, &all)
	}
	return "rack.html", shown, nil
}

// componentTypes lists the types that there are any of: those of the trays, then
// the others.
func componentTypes(counts rule.Counts) []string {
	var all []string
	for _, kind := range []string{"compute", "nvswitch", "powershelf", "torswitch", "ums", "cdu"} {
		if counts[kind] > 0 {
			all = append(all, kind)
		}
	}
	return all
}

func (s *Server) rackDevices(r *request, shown *rackShown) error {
	rows, err := store.DevicesOfRacks(r.Context(), s.DB, []int64{shown.Rack.ID})
	if err != nil {
		return err
	}
	bundle := s.Policies.Current()
	for i := range rows {
		d := &rows[i]
		if i == rackDevicesShown {
			shown.More = len(rows) - i
			break
		}
		one := rackDevice{ID: d.ID, Name: d.Name, Class: d.Class.String(), Status: d.Operational.String()}
		if bundle != nil && !d.InventoryOnly {
			one.Type = bundle.ComponentType(d.Class)
		}
		shown.Devices = append(shown.Devices, one)
	}
	return nil
}

func choiceOf(one *operations.RackRule) ruleChoice {
	c := ruleChoice{Operation: one.Operation.Code, Title: one.Operation.Title, BuiltIn: len(one.Operation.Rule) > 0, Source: one.Source, Worst: atMost(one.Plan.Worst), Missing: one.Missing}
	if one.Own != nil {
		c.Own = &ruleName{one.Own.ID, one.Own.Name}
	}
	if one.Default != nil {
		c.Default = &ruleName{one.Default.ID, one.Default.Name}
	}
	if one.Refused != nil {
		c.Refused = problemOf(one.Refused).Detail
	}
	c.Stand = one.Empty
	return c
}

func (s *Server) operationForm(r *request, all *operations.RackRules) *operationForm {
	f := &operationForm{
		Token: s.formToken(r.Request), Key: onceKey(), Types: componentTypes(all.Counts), Force: r.principal.May(OperationForce), Sent: r.problem != nil,
		Operation: r.form.Get("operation"), Exclude: r.form.Get("exclude"), Conflict: r.form.Get("conflict"), QueueFor: r.form.Get("queue_for"),
		Reason: r.form.Get("reason"), Override: r.form.Get("override"), Components: map[string]bool{},
	}
	for _, kind := range r.form["components"] {
		f.Components[kind] = true
	}
	for i := range all.Rules {
		if o := all.Rules[i].Operation; o.Type != "firmware_control" { // which takes more than a form
			f.Operations = append(f.Operations, operationChoice{o.Code, o.Title})
		}
	}
	return f
}

// operateFromPage makes a task of one rack, and leads to it.
func (s *Server) operateFromPage(r *request) (string, error) {
	asked := operations.Request{
		Operation: r.form.Get("operation"), Racks: []jobs.Ref{{ID: r.number("rack")}}, Exclude: named(r.form.Get("exclude")), Conflict: r.form.Get("conflict"),
		Reason: r.form.Get("reason"), Visible: r.principal.Sites, Force: r.principal.May(OperationForce), By: r.caller(), IdempotencyKey: r.form.Get("key"),
	}
	for _, kind := range r.form["components"] {
		asked.Components = append(asked.Components, jobs.Ref{Name: kind})
	}
	if bundle := s.Policies.Current(); bundle != nil {
		if o, known := bundle.Operation(asked.Operation); known { // else the submission says so
			asked.OperationType = o.Type
		}
	}
	if asked.OperationType == "" {
		return "", refuse(http.StatusUnprocessableEntity, jobs.CodeParameterInvalid, "%q is no operation: choose one", asked.Operation)
	}
	if why := strings.TrimSpace(r.form.Get("override")); why != "" {
		asked.Override = &why
	}
	if text := strings.TrimSpace(r.form.Get("queue_for")); text != "" && asked.Conflict == operations.ConflictQueue {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return "", refuse(http.StatusUnprocessableEntity, jobs.CodeParameterInvalid, "%q is not how long a task waits: write a duration such as 30m or 2h", text)
		}
		asked.QueueFor = d
	}
	done, err := s.Operations.Submit(r.Context(), asked)
	if err != nil {
		return "", err
	}
	if len(done.Tasks) == 0 {
		return "", fmt.Errorf("submit %s: it became no task", asked.Operation)
	}
	return taskPath(done.Tasks[0].ID), nil
}

// named reads names with commas or line ends between.
func named(text string) []jobs.Ref {
	var all []jobs.Ref
	for _, name := range strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == '\n' || c == '\r' }) {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, jobs.Ref{Name: name})
		}
	}
	return all
}
