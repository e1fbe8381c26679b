package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

// taskView is a task as it is shown.
type taskView struct {
	ID             int64            `json:"id"`
	Site           string           `json:"site"`
	RackID         int64            `json:"rack_id"`
	Rack           string           `json:"rack"`
	OperationType  string           `json:"operation_type"`
	Operation      string           `json:"operation"`
	RuleSource     string           `json:"rule_source"`
	RuleID         *int64           `json:"rule_id"`
	RuleRevision   *int             `json:"rule_revision"`
	RuleName       string           `json:"rule_name"`
	Status         fleet.TaskStatus `json:"status"`
	Ended          bool             `json:"ended"`
	Disruptive     bool             `json:"disruptive"`
	Conflict       string           `json:"conflict"`
	QueueUntil     *time.Time       `json:"queue_until"`
	Ahead          int              `json:"ahead"` // tasks of the rack that wait before it
	Reason         *string          `json:"reason"`
	OverrideReason *string          `json:"override_reason"`
	Firmware       json.RawMessage  `json:"firmware"`
	Excluded       []int64          `json:"excluded"`
	WorstSeconds   int64            `json:"worst_seconds"`
	OverBudgetAt   *time.Time       `json:"over_budget_at"`
	BundleVersion  string           `json:"bundle_version"`
	RequestedBy    string           `json:"requested_by"`
	Failure        *failureView     `json:"failure"`
	Components     deviceCounts     `json:"components"`
	Waiting        *waitingView     `json:"waiting"`
	Working        int              `json:"working"` // executions under way

	CreatedAt         time.Time  `json:"created_at"`
	UpdatedAt         time.Time  `json:"updated_at"`
	AdmittedAt        *time.Time `json:"admitted_at"`
	StartedAt         *time.Time `json:"started_at"`
	FinishedAt        *time.Time `json:"finished_at"`
	CancelRequestedAt *time.Time `json:"cancel_requested_at"`
	CancelRequestedBy *string    `json:"cancel_requested_by"`
	CancelReason      *string    `json:"cancel_reason"`
}

func (s *Server) viewTask(t *store.TaskRow) taskView {
	v := taskView{
		ID: t.ID, Site: t.Site, RackID: t.RackID, Rack: t.Rack, OperationType: t.OperationType, Operation: t.Operation, RuleSource: t.RuleSource,
		Status: t.Status, Ended: t.Status.Ended(), Disruptive: t.Disruptive, Conflict: t.Conflict, QueueUntil: instant(t.QueueUntil), Ahead: t.Ahead, Reason: orNil(t.Reason),
		OverrideReason: orNil(t.OverrideReason), Firmware: t.Firmware, Excluded: listed(t.Excluded), WorstSeconds: int64(t.Worst.Seconds()), OverBudgetAt: instant(t.OverBudgetAt),
		BundleVersion: t.BundleVersion, RequestedBy: t.RequestedBy, Components: deviceCounts{ByStatus: map[string]int{}}, Working: t.Live,
		CreatedAt: t.CreatedAt, UpdatedAt: t.UpdatedAt, AdmittedAt: instant(t.AdmittedAt), StartedAt: instant(t.StartedAt), FinishedAt: instant(t.FinishedAt),
		CancelRequestedAt: instant(t.CancelRequestedAt), CancelRequestedBy: orNil(t.CancelRequestedBy), CancelReason: orNil(t.CancelReason),
	}
	if t.RuleID != 0 {
		v.RuleID, v.RuleRevision = &t.RuleID, &t.RuleRevision
	}
	var named struct {
		Name string `json:"name"`
	}
	if json.Unmarshal(t.Rule, &named) == nil {
		v.RuleName = named.Name
	}
	if t.FailureCode != "" {
		v.Failure = failureOf(t.FailureCode, t.FailureMessage, s.Policies.Current())
	}
	for status, n := range t.Components {
		v.Components.Total += n
		v.Components.ByStatus[shownStatus(status)] += n
	}
	if t.Unsent > 0 {
		v.Waiting = &waitingView{Units: t.Unsent, Trouble: orNil(t.Trouble), Breaker: orNil(t.Barred)}
	}
	return v
}

// componentView is one component of a task.
type componentView struct {
	DeviceID      int64        `json:"device_id"`
	Name          string       `json:"name"`
	ComponentType string       `json:"component_type"`
	Status        string       `json:"status"`
	Phase         *string      `json:"phase"`
	LastState     *string      `json:"last_state"`
	Failure       *failureView `json:"failure"`
	StartedAt     *time.Time   `json:"started_at"`
	FinishedAt    *time.Time   `json:"finished_at"`
}

// entryView is an action with one component, or of the whole phase.
type entryView struct {
	DeviceID   *int64       `json:"device_id"` // null: of the whole phase
	Name       *string      `json:"name"`
	Status     string       `json:"status"` // planned: it never started
	Attempts   int          `json:"attempts"`
	Message    *string      `json:"message"`
	Failure    *failureView `json:"failure"`
	StartedAt  *time.Time   `json:"started_at"`
	FinishedAt *time.Time   `json:"finished_at"`
}

type taskActionView struct {
	Phase   string      `json:"phase"`
	Index   int         `json:"index"`
	Action  string      `json:"action"`
	Entries []entryView `json:"entries"`
}

type taskStepView struct {
	ComponentType string           `json:"component_type"`
	Actions       []taskActionView `json:"actions"`
}

type taskStageView struct {
	Stage int            `json:"stage"`
	Steps []taskStepView `json:"steps"`
}

// reportView is a task with everything that is known of its run. It is also what
// an event of a task holds.
type reportView struct {
	Task       taskView        `json:"task"`
	Rule       json.RawMessage `json:"rule"`
	Components []componentView `json:"components"`
	Stages     []taskStageView `json:"stages"`
}

const statusPlanned = "planned"

func viewComponents(rows []store.TaskComponentRow, b *engine.Bundle) []componentView {
	views := make([]componentView, len(rows))
	for i := range rows {
		c := &rows[i]
		views[i] = componentView{
			DeviceID: c.DeviceID, Name: c.Name, ComponentType: c.Type, Status: shownStatus(c.Status), Phase: orNil(c.Phase), LastState: orNil(c.LastState),
			StartedAt: instant(c.StartedAt), FinishedAt: instant(c.FinishedAt),
		}
		if c.FailureCode != "" {
			views[i].Failure = failureOf(c.FailureCode, c.FailureMessage, b)
		}
	}
	return views
}

// viewStages puts entries, which come in the order of the plan, into their stages,
// steps and actions.
func viewStages(rows []store.TaskEntryRow, b *engine.Bundle) []taskStageView {
	stages := []taskStageView{}
	for i := range rows {
		e := &rows[i]
		if n := len(stages); n == 0 || stages[n-1].Stage != e.Stage {
			stages = append(stages, taskStageView{Stage: e.Stage, Steps: []taskStepView{}})
		}
		stage := &stages[len(stages)-1]
		if n := len(stage.Steps); n == 0 || stage.Steps[n-1].ComponentType != e.ComponentType {
			stage.Steps = append(stage.Steps, taskStepView{ComponentType: e.ComponentType, Actions: []taskActionView{}})
		}
		step := &stage.Steps[len(stage.Steps)-1]
		if n := len(step.Actions); n == 0 || step.Actions[n-1].Phase != e.Phase || step.Actions[n-1].Index != e.Index {
			step.Actions = append(step.Actions, taskActionView{Phase: e.Phase, Index: e.Index, Action: e.Action})
		}
		action := &step.Actions[len(step.Actions)-1]
		action.Entries = append(action.Entries, viewEntry(e, b))
	}
	return stages
}

func viewEntry(e *store.TaskEntryRow, b *engine.Bundle) entryView {
	v := entryView{Name: orNil(e.Device), Status: string(e.Status), Attempts: e.Attempts, Message: orNil(e.Message), StartedAt: instant(e.StartedAt), FinishedAt: instant(e.FinishedAt)}
	if e.DeviceID != 0 {
		v.DeviceID = &e.DeviceID
	}
	if e.Status == fleet.EntryPlanned {
		v.Status = statusPlanned
	}
	if e.Code != "" {
		v.Failure = failureOf(e.Code, e.Message, b)
	}
	return v
}

func taskNotFound() *problem {
	return refuse(http.StatusNotFound, operations.CodeTaskNotFound, "there is no such task: list them at /api/v1/operations/tasks/")
}

func (s *Server) listTasks(r *request) (*reply, error) {
	page, err := s.taskPage(r)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// taskPage reads the page of tasks that a request asks for, the newest first.
func (s *Server) taskPage(r *request) (*list[taskView], error) {
	q := r.query
	limit := r.limit()
	before, err := r.afterID()
	if err != nil {
		return nil, err
	}
	rows, err := store.ListTasks(r.Context(), s.DB, store.TaskFilter{
		SiteNames: r.principal.Sites, Sites: q["site"], Racks: ids(q["rack"]), Operations: q["operation"], Statuses: q["status"], Devices: ids(q["device"]),
		RequestedBy: q["requested_by"], Open: flag(q, "open"), Before: before, Limit: limit + 1,
	})
	if err != nil {
		return nil, err
	}
	page := &list[taskView]{Items: []taskView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].ID))
	}
	for i := range rows {
		page.Items = append(page.Items, s.viewTask(&rows[i]))
	}
	return page, nil
}

// task reads a task, if it exists for the caller.
func (s *Server) task(r *request) (store.TaskRow, error) {
	rows, err := store.ListTasks(r.Context(), s.DB, store.TaskFilter{SiteNames: r.principal.Sites, IDs: []int64{r.number("task")}, Limit: 1})
	if err != nil {
		return store.TaskRow{}, err
	}
	if len(rows) == 0 {
		return store.TaskRow{}, taskNotFound()
	}
	return rows[0], nil
}

func (s *Server) report(ctx context.Context, row *store.TaskRow) (reportView, error) {
	components, err := store.TaskComponents(ctx, s.DB, row.ID)
	if err != nil {
		return reportView{}, err
	}
	entries, err := store.TaskEntries(ctx, s.DB, row.ID)
	if err != nil {
		return reportView{}, err
	}
	b := s.Policies.Current()
	return reportView{s.viewTask(row), row.Rule, viewComponents(components, b), viewStages(entries, b)}, nil
}

func (s *Server) showTask(r *request) (*reply, error) {
	row, err := s.task(r)
	if err != nil {
		return nil, err
	}
	report, err := s.report(r.Context(), &row)
	if err != nil {
		return nil, err
	}
	return tagged(report), nil
}

// cancelTask asks a task to end, and shows it as it is then.
func (s *Server) cancelTask(r *request) (*reply, error) {
	var in because
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	if err := s.Operations.Cancel(r.Context(), r.number("task"), in.Reason, r.caller(), r.principal.Sites); err != nil {
		return nil, err
	}
	row, err := s.task(r)
	if err != nil {
		return nil, err
	}
	return &reply{status: http.StatusAccepted, body: s.viewTask(&row)}, nil
}

// taskTeller gives what a watcher of a task is told now; nil, which the last time
// it is not: there is nothing new.
type taskTeller func(ctx context.Context, row *store.TaskRow, last bool) (any, error)

// followTask tells how a task goes until it has ended: each event holds the whole
// report.
func (s *Server) followTask(w http.ResponseWriter, r *request) error {
	var before reportView
	return s.followTaskBy(w, r, func(ctx context.Context, row *store.TaskRow, last bool) (any, error) {
		now, err := s.report(ctx, row)
		if err != nil || !last && reflect.DeepEqual(now, before) {
			return nil, err
		}
		before = now
		return now, nil
	})
}

// followTaskBy tells a watcher of a task until it has ended. Of a task that has
// ended there is nothing to tell.
func (s *Server) followTaskBy(w http.ResponseWriter, r *request, tell taskTeller) error {
	row, err := s.task(r)
	if err != nil {
		return err
	}
	if row.Status.Ended() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead {
		openEvents(w)
		return nil
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	whole, err := tell(r.Context(), &row, false)
	if err != nil {
		return err
	}
	out := openEvents(w)
	if out.send("snapshot", whole) != nil {
		return nil // the watcher is gone
	}
	tick := time.NewTicker(streamLook)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-s.ending:
			return nil
		case <-tick.C:
		}
		if row, err = s.task(r); err != nil {
			return nil // it connects anew and learns why
		}
		told, err := tell(r.Context(), &row, row.Status.Ended())
		switch {
		case err != nil:
			return nil
		case row.Status.Ended():
			_ = out.send("end", told) // the watcher may be gone
			return nil
		case told == nil:
			err = out.beat()
		default:
			err = out.send("change", told)
		}
		if err != nil {
			return nil
		}
	}
}
