package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

// reportItem is a task with everything that is known of its run.
type reportItem struct {
	Task       taskItem        `json:"task"`
	Components []componentItem `json:"components"`
	Stages     []struct {
		Stage int `json:"stage"`
		Steps []struct {
			ComponentType string       `json:"component_type"`
			Actions       []actionItem `json:"actions"`
		} `json:"steps"`
	} `json:"stages"`
}

type componentItem struct {
	DeviceID      int64        `json:"device_id"`
	Name          string       `json:"name"`
	ComponentType string       `json:"component_type"`
	Status        string       `json:"status"`
	Phase         *string      `json:"phase"`
	LastState     *string      `json:"last_state"`
	Failure       *failureItem `json:"failure"`
}

type actionItem struct {
	Phase   string `json:"phase"`
	Index   int    `json:"index"`
	Action  string `json:"action"`
	Entries []struct {
		Name       *string      `json:"name"`
		Status     string       `json:"status"`
		Attempts   int          `json:"attempts"`
		Message    *string      `json:"message"`
		Failure    *failureItem `json:"failure"`
		StartedAt  *time.Time   `json:"started_at"`
		FinishedAt *time.Time   `json:"finished_at"`
	} `json:"entries"`
}

// settled are the statuses of an entry that has ended, the worst first.
var settled = []string{"failed", "timed_out", "terminated", "cancelled", "skipped", "succeeded"}

// standing sums an action up: how many of its entries have which status, how far it
// is in percent, and from when to when it ran.
func (i *actionItem) standing(now time.Time) (words string, percent int, span string) {
	counts := map[string]int{}
	var first, last time.Time
	for _, e := range i.Entries {
		counts[e.Status]++
		if e.StartedAt != nil && (first.IsZero() || e.StartedAt.Before(first)) {
			first = *e.StartedAt
		}
		if e.FinishedAt != nil && e.FinishedAt.After(last) {
			last = *e.FinishedAt
		}
	}
	var parts []string
	ended := 0
	for _, status := range append([]string{"running"}, append(slices.Clone(settled), "planned")...) {
		n := counts[status]
		if slices.Contains(settled, status) {
			ended += n
		}
		switch {
		case n == 0:
		case n == len(i.Entries):
			parts = append(parts, status)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	if len(i.Entries) > 0 {
		percent = 100 * ended / len(i.Entries)
	}
	if !first.IsZero() {
		if ended < len(i.Entries) {
			last = now
		}
		span = last.Sub(first).Round(time.Second).String()
	}
	return strings.Join(parts, ", "), percent, span
}

// actions visits every action in the order of the rule.
func (r *reportItem) actions(visit func(stage int, kind string, action *actionItem)) {
	for i := range r.Stages {
		for j := range r.Stages[i].Steps {
			step := &r.Stages[i].Steps[j]
			for k := range step.Actions {
				visit(r.Stages[i].Stage, step.ComponentType, &step.Actions[k])
			}
		}
	}
}

// lines are what is said of a report where each change is a line.
func (r *reportItem) lines(now time.Time) []string {
	lines := []string{r.Task.line()}
	r.actions(func(stage int, kind string, action *actionItem) {
		words, _, _ := action.standing(now)
		if words != "planned" {
			lines = append(lines, fmt.Sprintf("stage %d %s %s %s: %s", stage, kind, action.Phase, action.Action, words))
		}
	})
	for i := range r.Components {
		if c := &r.Components[i]; c.Failure != nil {
			lines = append(lines, c.line())
		}
	}
	return lines
}

func (c *componentItem) line() string {
	text := c.Name + " " + c.Status
	if c.LastState != nil {
		text += ", last seen " + *c.LastState
	}
	if f := c.Failure; f != nil {
		text += ": " + strings.TrimRight(f.Code+" "+orEmpty(f.Message), " ")
		if f.Hint != nil {
			text += " (" + *f.Hint + ")"
		}
	}
	return render.Line(text)
}

// picture draws the report as it is now.
func (r *reportItem) picture(now time.Time) []string {
	lines := []string{r.Task.line()}
	before := 0
	r.actions(func(stage int, kind string, action *actionItem) {
		if stage != before {
			lines = append(lines, fmt.Sprintf("stage %d", stage))
			before = stage
		}
		words, percent, span := action.standing(now)
		lines = append(lines, render.Line(strings.TrimRight(fmt.Sprintf("  %-10s %-4s %-19s %s %8s  %s", kind, action.Phase, action.Action, render.Bar(percent), span, words), " ")))
	})
	shown := 0
	for i := range r.Components {
		if c := &r.Components[i]; c.Failure != nil && shown < shownAtOnce {
			shown++
			lines = append(lines, "  "+c.line())
		}
	}
	return lines
}

// watchingTask is a task that somebody follows.
type watchingTask struct {
	app    *app
	report reportItem
	said   []string
	live   *render.Redrawn // nil: not on a terminal
	raw    bool            // events as they come, a line each
}

// watchTask follows a task until it has ended, and says in the end whether it
// succeeded.
func (a *app) watchTask(ctx context.Context, server *client.Client, id int64, output string) error {
	w := &watchingTask{app: a, raw: output == "json"}
	if onTerminal(a.stdout) && !w.raw {
		w.live = render.NewRedrawn(a.stdout)
	}
	err := server.Follow(ctx, taskPath(id)+"events/", func(e client.Event) (bool, error) {
		return e.Name == "end", w.take(e.Name, e.Data)
	})
	if ctx.Err() != nil {
		fmt.Fprintf(a.stderr, "task %d goes on: `muster operation watch %d` follows it again, `muster operation cancel %d` ends it\n", id, id, id)
		return ctx.Err()
	}
	if err == nil && !w.report.Task.Ended { // it was over before anybody looked
		var raw json.RawMessage
		if err = server.Get(ctx, taskPath(id), nil, &raw); err == nil {
			err = w.take("end", raw)
		}
	}
	if err != nil {
		return err
	}
	if w.report.Task.Status != "succeeded" {
		return no()
	}
	return nil
}

// take notes and prints what is new.
func (w *watchingTask) take(name string, data json.RawMessage) error {
	if w.raw {
		fmt.Fprintf(w.app.stdout, "{\"event\":%q,\"data\":%s}\n", name, data)
	}
	w.report = reportItem{}
	if err := json.Unmarshal(data, &w.report); err != nil {
		return fmt.Errorf("read an event: %w: is the server of the same version?", err)
	}
	switch {
	case w.raw:
	case w.live != nil:
		w.live.Draw(w.report.picture(w.app.now()))
	default:
		lines := w.report.lines(w.app.now())
		for _, line := range lines {
			if !slices.Contains(w.said, line) {
				fmt.Fprintf(w.app.stdout, "%s  %s\n", w.app.now().UTC().Format("15:04:05"), line)
			}
		}
		w.said = lines
	}
	return nil
}

func (a *app) printReport(r *reportItem) error {
	t := &r.Task
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	by := t.RuleSource
	if t.RuleID != nil {
		by = fmt.Sprintf("%d, %s", *t.RuleID, by)
	}
	rows := [][]string{
		{"task", fmt.Sprintf("%d, %s of rack %s (%d) at site %s", t.ID, t.Operation, t.Rack, t.RackID, t.Site)},
		{"status", t.Status},
		{"components", t.counts()},
		{"rule", t.RuleName + " (" + by + ")"},
		{"at most", (time.Duration(t.WorstSeconds) * time.Second).String()},
		{"submitted", at(&t.CreatedAt) + " by " + t.RequestedBy},
		{"reason", orEmpty(t.Reason)},
		{"started", at(t.StartedAt)},
		{"finished", at(t.FinishedAt)},
	}
	for _, more := range [][]string{{"override", orEmpty(t.OverrideReason)}, {"waits for", t.waits()}, {"waits until", at(t.QueueUntil)}, {"over budget", at(t.OverBudgetAt)}, {"cancelled for", orEmpty(t.CancelReason)}} {
		if more[1] != "" {
			rows = append(rows, more)
		}
	}
	if f := t.Failure; f != nil {
		rows = append(rows, []string{"failure", render.Line(strings.TrimRight(f.Code+" "+orEmpty(f.Message), " "))})
		if f.Hint != nil {
			rows = append(rows, []string{"what to do", strings.Trim(orEmpty(f.Owner)+": "+*f.Hint, ": ")})
		}
	}
	if err := render.Pairs(a.stdout, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	for _, line := range r.picture(a.now())[1:] {
		if strings.HasPrefix(line, "stage") || strings.HasPrefix(line, "  ") {
			fmt.Fprintln(a.stdout, line)
		}
	}
	fmt.Fprintln(a.stdout)
	var components [][]string
	for i := range r.Components {
		c := &r.Components[i]
		failure := ""
		if c.Failure != nil {
			failure = strings.TrimRight(c.Failure.Code+" "+orEmpty(c.Failure.Message), " ")
		}
		components = append(components, []string{fmt.Sprint(c.DeviceID), c.Name, c.ComponentType, t.told(c.Status), orEmpty(c.Phase), orEmpty(c.LastState), render.Line(failure)})
	}
	return render.Table(a.stdout, []string{"ID", "COMPONENT", "TYPE", "STATUS", "PHASE", "LAST SEEN", "FAILURE"}, components)
}
