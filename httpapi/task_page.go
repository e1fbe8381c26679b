package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// tasksShown is a page of tasks with the filters that chose it.
type tasksShown struct {
	*list[taskView]
	Operations []string
	Statuses   []fleet.TaskStatus
	Asked      map[string]string // by filter
}

func (s *Server) tasksPage(r *request) (string, any, error) {
	page, err := s.taskPage(r)
	if err != nil {
		return "", nil, err
	}
	shown := tasksShown{list: page, Statuses: fleet.TaskStatuses(), Asked: map[string]string{}}
	for _, name := range []string{"site", "operation", "status", "requested_by", "open"} {
		shown.Asked[name] = r.query.Get(name)
	}
	if bundle := s.Policies.Current(); bundle != nil {
		for i := range bundle.Operations() {
			shown.Operations = append(shown.Operations, bundle.Operations()[i].Code)
		}
	}
	return "tasks.html", shown, nil
}

// componentsShown is how many components the page of a task lists at most.
const componentsShown = 300

// taskShown is everything that is told of one task.
type taskShown struct {
	Title      string
	Task       taskView
	Took       string // so far, of one that runs
	Worst      string
	Rule       ruleDrawing
	Unreadable bool // the rule
	Chart      chart
	Components []componentRow
	More       int // components that are not listed
	Excluded   []string
	Firmware   []firmwareShown
	Cancel     *cancelForm // nil where it cannot be, or the reader may not
	Problem    *problem    // of a form of the page that was refused
}

// componentRow is one component of the page of a task.
type componentRow struct {
	ID string // in the page
	componentView
}

type firmwareShown struct {
	ComponentType string            `json:"component_type"`
	URI           string            `json:"uri"`
	SHA256        string            `json:"sha256"`
	Versions      map[string]string `json:"versions"`
}

func (s *Server) taskPageOf(r *request) (string, any, error) {
	row, err := s.task(r)
	if err != nil {
		return "", nil, err
	}
	shown, err := s.showsTask(r.Context(), &row)
	if err != nil {
		return "", nil, err
	}
	shown.Problem = r.problem
	if !shown.Task.Ended && row.CancelRequestedAt.IsZero() && r.principal.May(OperationWrite) {
		shown.Cancel = &cancelForm{s.formToken(r.Request), r.form.Get("reason")}
	}
	return "task.html", shown, nil
}

// namesOf gives the names of devices, in the order of ids.
func (s *Server) namesOf(ctx context.Context, ids []int64) ([]string, error) {
	known, err := store.DevicesByID(ctx, s.DB, ids)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].Name
	}
	return names, nil
}

// showsTask gives what the page of a task tells of it at this instant.
func (s *Server) showsTask(ctx context.Context, row *store.TaskRow) (*taskShown, error) {
	report, err := s.report(ctx, row)
	if err != nil {
		return nil, err
	}
	shown := &taskShown{Title: fmt.Sprintf("Task %d", row.ID), Task: report.Task, Worst: atMost(rule.Period(row.Worst))}
	if at := report.Task.StartedAt; at != nil {
		last := s.Clock()
		if end := report.Task.FinishedAt; end != nil {
			last = *end
		}
		shown.Took = span(max(last.Sub(*at), 0))
	}
	var by rule.Rule
	if json.Unmarshal(row.Rule, &by) != nil {
		by, shown.Unreadable = rule.Rule{}, true
	}
	counts := rule.Counts{}
	for i := range report.Components {
		counts[report.Components[i].ComponentType]++
		if i < componentsShown {
			shown.Components = append(shown.Components, componentRow{"component-" + strconv.FormatInt(report.Components[i].DeviceID, 10), report.Components[i]})
		}
	}
	shown.More = max(len(report.Components)-componentsShown, 0)
	plan := by.Plan(counts)
	shown.Rule, shown.Chart = drawRule(&by, &plan), drawChart(&report, &by, &plan, s.Clock())
	shown.Rule.light(shown.Chart.Rows)
	if err := json.Unmarshal(row.Firmware, &shown.Firmware); err != nil {
		return nil, fmt.Errorf("read the firmware of task %d: %w", row.ID, err)
	}
	if len(row.Excluded) > 0 {
		shown.Excluded, err = s.namesOf(ctx, row.Excluded)
	}
	return shown, err
}

// light shows on the stages of a rule how far the steps of a chart are.
func (d *ruleDrawing) light(rows []chartRow) {
	of := map[string]*chartRow{}
	for i := range rows {
		if rows[i].Kind == "step" {
			of[rows[i].ID] = &rows[i]
		}
	}
	for i := range d.Stages {
		stage := &d.Stages[i]
		for j := range stage.Steps {
			step := &stage.Steps[j]
			if row := of[fmt.Sprintf("chart-%d-%s", stage.Stage, step.Type)]; row != nil {
				step.State, step.Says = row.Status, row.Says
			}
			if step.State == string(fleet.EntryRunning) || step.State == string(fleet.EntryFailed) {
				stage.State = step.State
			}
		}
	}
}

// livePart is a piece of a page that changes while it is looked at: an element
// with an id.
type livePart struct {
	id, template string
	data         any
}

// parts lists what of the page of a task changes.
func (t *taskShown) parts() []livePart {
	all := []livePart{{"task-head", "task-head", t}, {"task-facts", "task-facts", t}, {"chart-scale", "chart-scale", &t.Chart}}
	for i := range t.Rule.Stages {
		all = append(all, livePart{t.Rule.Stages[i].ID, "stage", &t.Rule.Stages[i]})
	}
	for i := range t.Chart.Rows {
		all = append(all, livePart{t.Chart.Rows[i].ID, "chart-row", &t.Chart.Rows[i]})
	}
	for i := range t.Components {
		all = append(all, livePart{t.Components[i].ID, "component-row", &t.Components[i]})
	}
	return all
}

// partsView is what the page of a task is told: those of its elements, by id, that
// are not as they were.
type partsView struct {
	Parts map[string]string `json:"parts"`
}

// fresh writes those parts that are not as last has them, and notes them there.
func (p *pages) fresh(parts []livePart, last map[string]string) (map[string]string, error) {
	now := map[string]string{}
	var buf bytes.Buffer
	for _, one := range parts {
		buf.Reset()
		if err := p.templates.ExecuteTemplate(&buf, one.template, one.data); err != nil {
			return nil, fmt.Errorf("write %s of a page: %w", one.template, err)
		}
		if text := buf.String(); last[one.id] != text {
			now[one.id], last[one.id] = text, text
		}
	}
	return now, nil
}

// followTaskFromPage tells the page of a task how it goes: what it shows then, as
// the page itself would.
func (s *Server) followTaskFromPage(w http.ResponseWriter, r *request) error {
	before := map[string]string{}
	return s.followTaskBy(w, r, func(ctx context.Context, row *store.TaskRow, last bool) (any, error) {
		shown, err := s.showsTask(ctx, row)
		if err != nil {
			return nil, err
		}
		now, err := s.pages.fresh(shown.parts(), before)
		if err != nil || len(now) == 0 && !last {
			return nil, err
		}
		return partsView{now}, nil
	})
}

// cancelTaskFromPage asks a task to end, and shows it.
func (s *Server) cancelTaskFromPage(r *request) (string, error) {
	if err := s.Operations.Cancel(r.Context(), r.number("task"), r.form.Get("reason"), r.caller(), r.principal.Sites); err != nil {
		return "", err
	}
	return taskPath(r.number("task")), nil
}

func taskPath(id int64) string { return fmt.Sprintf("%s/operations/tasks/%d/", pageRoot, id) }

// sourceOfRule says why a rule was taken.
func sourceOfRule(source string) string {
	switch source {
	case operations.SourceExplicit:
		return "named by the request"
	case operations.SourceAssociation:
		return "the rack's own"
	case operations.SourceDefault:
		return "the default of the operation"
	case operations.SourceBuiltIn:
		return "built in"
	}
	return source
}
