package httpapi

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/operations/rule"
)

// What of a task is charted at most.
const (
	chartRows      = 600
	componentsEach = 80 // of one step
	chartWide      = 1000
	ticksMost      = 6
	namesTold      = 12 // of components without a row of their own that failed
)

// chart is how a task went over time: of each step its actions, and what was done
// with each component.
type chart struct {
	Since *time.Time // nil: nothing has started
	Ticks []string   // from the start on, each as wide as the next
	Rows  []chartRow
}

// chartRow is one line of a chart.
type chartRow struct {
	ID      string // in the page
	Kind    string // task, step, action, component, more
	Label   string
	About   string
	Device  int64  // 0: none
	Status  string // the worst of what it shows
	Says    string
	Failure *failureView
	Bars    []bar
	Ticks   int
}

// bar is a while of a row, in thousandths of the chart.
type bar struct {
	X, Width int
	Status   string
	Says     string
}

// charting draws the chart of one report.
type charting struct {
	report *reportView
	rule   *rule.Rule
	now    time.Time
	from   time.Time     // zero: nothing has started
	wide   time.Duration // of the whole chart
	ticks  int
	names  map[int64]string
	of     map[string][]int64 // components by type
	found  map[entryKey]*entryView
}

// entryKey tells the entries of a report apart.
type entryKey struct {
	stage  int
	kind   string
	phase  string
	index  int
	device int64
}

// steps of a scale that people count in.
var scales = []time.Duration{
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	15 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour, 48 * time.Hour, 7 * 24 * time.Hour,
}

// drawChart draws what is known of a task at an instant: every row is there from
// the beginning, whatever has started.
func drawChart(report *reportView, r *rule.Rule, plan *rule.Plan, now time.Time) chart {
	c := &charting{report: report, rule: r, now: now, names: map[int64]string{}, of: map[string][]int64{}, found: map[entryKey]*entryView{}}
	for i := range report.Components {
		one := &report.Components[i]
		c.names[one.DeviceID] = one.Name
		c.of[one.ComponentType] = append(c.of[one.ComponentType], one.DeviceID)
	}
	c.index()
	step := c.scale()
	drawn := chart{Rows: []chartRow{c.whole()}}
	if !c.from.IsZero() {
		from := c.from.UTC()
		drawn.Since = &from
	}
	for i := range c.ticks {
		drawn.Ticks = append(drawn.Ticks, span(time.Duration(i)*step))
	}
	for i := range plan.Stages {
		for j := range plan.Stages[i].Steps {
			if len(drawn.Rows) >= chartRows {
				drawn.Rows = append(drawn.Rows, chartRow{ID: "chart-more", Kind: "more", Label: "more steps", Says: "The task has more than this page shows: its report by the API is whole."})
				return c.done(drawn)
			}
			drawn.Rows = append(drawn.Rows, c.step(plan.Stages[i].Stage, &r.Steps[plan.Stages[i].Steps[j].Index])...)
		}
	}
	return c.done(drawn)
}

func (c *charting) done(drawn chart) chart {
	for i := range drawn.Rows {
		drawn.Rows[i].Ticks = c.ticks
	}
	return drawn
}

// index finds the entries of the report, and the last instant that it tells of:
// now is not before it, whatever the clocks say.
func (c *charting) index() {
	if started := c.report.Task.StartedAt; started != nil {
		c.from = *started
	}
	for i := range c.report.Stages {
		for j := range c.report.Stages[i].Steps {
			step := &c.report.Stages[i].Steps[j]
			for k := range step.Actions {
				a := &step.Actions[k]
				for l := range a.Entries {
					e := &a.Entries[l]
					key := entryKey{c.report.Stages[i].Stage, step.ComponentType, a.Phase, a.Index, 0}
					if e.DeviceID != nil {
						key.device = *e.DeviceID
					}
					c.found[key] = e
					c.reaches(e.StartedAt)
					c.reaches(e.FinishedAt)
				}
			}
		}
	}
	c.reaches(c.report.Task.StartedAt)
	c.reaches(c.report.Task.FinishedAt)
}

func (c *charting) reaches(at *time.Time) {
	if at == nil {
		return
	}
	if at.After(c.now) {
		c.now = *at
	}
	if c.from.IsZero() || at.Before(c.from) {
		c.from = *at
	}
}

// scale settles how wide the chart is: as long as the task took, or takes so far.
func (c *charting) scale() time.Duration {
	if c.from.IsZero() {
		return 0
	}
	last := c.now
	if c.report.Task.Ended {
		last = c.from
		for _, at := range c.ends() {
			if at.After(last) {
				last = at
			}
		}
	}
	took := max(last.Sub(c.from), time.Second)
	step := scales[len(scales)-1]
	for _, one := range scales {
		if took <= ticksMost*one {
			step = one
			break
		}
	}
	if took > ticksMost*step {
		step = took/ticksMost + 1
	}
	c.ticks = int((took + step - 1) / step)
	c.wide = time.Duration(c.ticks) * step
	return step
}

// ends lists the instants at which anything ended.
func (c *charting) ends() []time.Time {
	var all []time.Time
	if at := c.report.Task.FinishedAt; at != nil {
		all = append(all, *at)
	}
	for _, e := range c.found {
		if e.FinishedAt != nil && e.StartedAt != nil {
			all = append(all, *e.FinishedAt)
		}
	}
	return all
}

// bar draws a while; what has not ended goes on until now.
func (c *charting) bar(from, to *time.Time, status, says string) []bar {
	if from == nil || c.wide == 0 {
		return nil
	}
	last := c.now
	if to != nil {
		last = *to
	}
	place := func(at time.Time) int {
		return int(min(max(at.Sub(c.from)*chartWide/c.wide, 0), chartWide))
	}
	b := bar{X: place(*from), Status: status, Says: says}
	b.Width = max(place(last)-b.X, 3) // or else it is not seen
	b.X = min(b.X, chartWide-b.Width)
	return []bar{b}
}

func (c *charting) whole() chartRow {
	t := &c.report.Task
	row := chartRow{ID: "chart-task", Kind: "task", Label: "the task", Status: string(t.Status), Says: strings.ReplaceAll(string(t.Status), "_", " ")}
	if t.StartedAt != nil {
		row.Says += c.took(t.StartedAt, t.FinishedAt)
	}
	row.Bars = c.bar(t.StartedAt, t.FinishedAt, string(t.Status), row.Says)
	return row
}

// took tells how long something took, or has taken so far.
func (c *charting) took(from, to *time.Time) string {
	switch {
	case from == nil:
		return ""
	case to == nil:
		return " for " + span(c.now.Sub(*from))
	}
	return " in " + span(to.Sub(*from))
}

// counted tells how many there are of something.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// span writes a time as people say it.
func span(d time.Duration) string {
	if d > 0 && d < time.Second {
		return "<1s"
	}
	return rule.Period(d.Truncate(time.Second)).String()
}
