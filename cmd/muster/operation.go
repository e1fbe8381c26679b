package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

const tasksPath = "/operations/tasks/"

func (a *app) operationCommand() *cobra.Command {
	return parent("operation", "Operate racks and follow it",
		a.operationSubmitCommand(), a.operationListCommand(), a.operationShowCommand(), a.operationWatchCommand(), a.operationCancelCommand())
}

type failureItem struct {
	Code    string  `json:"code"`
	Message *string `json:"message"`
	Owner   *string `json:"owner"`
	Hint    *string `json:"hint"`
}

// taskItem is what is shown of a task.
type taskItem struct {
	ID             int64        `json:"id"`
	Site           string       `json:"site"`
	RackID         int64        `json:"rack_id"`
	Rack           string       `json:"rack"`
	Operation      string       `json:"operation"`
	RuleSource     string       `json:"rule_source"`
	RuleID         *int64       `json:"rule_id"`
	RuleName       string       `json:"rule_name"`
	Status         string       `json:"status"`
	Ended          bool         `json:"ended"`
	QueueUntil     *time.Time   `json:"queue_until"`
	Ahead          int          `json:"ahead"`
	Reason         *string      `json:"reason"`
	OverrideReason *string      `json:"override_reason"`
	WorstSeconds   int64        `json:"worst_seconds"`
	OverBudgetAt   *time.Time   `json:"over_budget_at"`
	RequestedBy    string       `json:"requested_by"`
	Failure        *failureItem `json:"failure"`
	CreatedAt      time.Time    `json:"created_at"`
	StartedAt      *time.Time   `json:"started_at"`
	FinishedAt     *time.Time   `json:"finished_at"`
	CancelReason   *string      `json:"cancel_reason"`
	Components     struct {
		Total    int            `json:"total"`
		ByStatus map[string]int `json:"by_status"`
	} `json:"components"`
	Waiting *struct {
		Trouble *string `json:"trouble"`
		Breaker *string `json:"breaker"`
	} `json:"waiting"`
}

func taskPath(id int64) string { return fmt.Sprintf("%s%d/", tasksPath, id) }

func taskID(text string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(text, "task/"), 10, 64)
	if err != nil || id < 1 {
		return 0, usage("%q is no task: tasks have numbers, `muster operation list` shows them", text)
	}
	return id, nil
}

// kindOf is the address below which an operation is asked for. What is none of
// them the server refuses.
func kindOf(operation string) string {
	switch operation {
	case "upgrade", "downgrade", "rollback":
		return "firmware"
	case "decommission":
		return "decommission"
	}
	return "power"
}

// numbered gives what is a number as one: an id, else a name.
func numbered(all []string) []any {
	refs := make([]any, len(all))
	for i, text := range all {
		refs[i] = text
		if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
			refs[i] = id
		}
	}
	return refs
}

// requestFlags say what is asked for.
type requestFlags struct {
	components, exclude []string
	site, conflict      string
	queueFor            time.Duration
	rule                int64
	reason, override    string
	firmware            string
}

func (f *requestFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVar(&f.components, "components", nil, "only these devices or component types (default: all that the rule is for)")
	c.Flags().StringSliceVar(&f.exclude, "exclude", nil, "all but these devices or component types")
	c.Flags().StringVar(&f.site, "site", "", "the site of racks that are named")
	c.Flags().StringVar(&f.conflict, "conflict", "", "where others hold a device: refuse, or queue and wait in turn")
	c.Flags().DurationVar(&f.queueFor, "queue-for", 0, "how long it waits at most")
	c.Flags().Int64Var(&f.rule, "rule", 0, "id of the rule (default: the rack's, else the operation's default, else the built-in one)")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the history and the audit log (default: that of --override)")
	c.Flags().StringVar(&f.override, "override", "", "why machines are taken from their customers; needs the scope operation:force")
	c.Flags().StringVar(&f.firmware, "firmware", "", "a file with the images, as JSON or YAML: a list of component_type, uri, sha256, versions")
}

func (f *requestFlags) body(c *cobra.Command, operation string, racks []string) (map[string]any, error) {
	body := map[string]any{"operation": operation, "racks": numbered(racks)}
	put := func(name string, set bool, value any) {
		if set {
			body[name] = value
		}
	}
	put("components", len(f.components) > 0, numbered(f.components))
	put("exclude", len(f.exclude) > 0, numbered(f.exclude))
	put("site", f.site != "", f.site)
	put("conflict", f.conflict != "", f.conflict)
	put("queue_for", f.queueFor != 0, f.queueFor.String())
	put("rule_id", f.rule != 0, f.rule)
	if body["reason"] = cmp.Or(strings.TrimSpace(f.reason), strings.TrimSpace(f.override)); body["reason"] == "" {
		return nil, usage("say why with --reason TEXT: it is kept with the task, for whoever asks later what the rack went through")
	}
	if c.Flags().Changed("override") {
		if strings.TrimSpace(f.override) == "" {
			return nil, usage("say why with --override TEXT: an override is audited")
		}
		body["override"] = map[string]string{"reason": f.override}
	}
	if f.firmware == "" {
		return body, nil
	}
	data, err := os.ReadFile(f.firmware)
	if err != nil {
		return nil, usage("read the firmware: %w", err)
	}
	var images []map[string]any
	if err := yaml.Unmarshal(data, &images); err != nil {
		return nil, usage("%s holds no list of images: %w", f.firmware, err)
	}
	body["firmware"] = images
	return body, nil
}

func (a *app) operationSubmitCommand() *cobra.Command {
	flags := &requestFlags{}
	var key string
	var watch bool
	c := &cobra.Command{
		Use:   "submit OPERATION RACK…",
		Short: "Operate racks",
		Long: `Submit makes one task of each rack, or tells every reason why it may not be. A RACK
is a name or an id; OPERATION is a code such as power_off, upgrade or decommission.

The same operation that waits or runs already is given again, and with --key the same
request. The exit code is 1 where the request is refused and, with --watch, where a
task does not succeed.`,
		Example: `  muster operation submit power_off sim1-r01 --reason "the hall loses power" --watch
  muster operation submit restart sim1-r01 --reason CHG-7 --components compute --exclude sim1-r01-c07 --conflict queue --queue-for 30m`,
		Args: cobra.MinimumNArgs(2),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	flags.add(c)
	c.Flags().StringVar(&key, "key", "", "a key of your own: the same request with it is made once")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow the tasks until they end")
	c.RunE = func(c *cobra.Command, args []string) error {
		body, err := flags.body(c, args[0], args[1:])
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := server.Once(key).Post(c.Context(), "/operations/"+kindOf(args[0])+"/", body, &raw); err != nil {
			return a.refusedJob(err)
		}
		var done struct {
			Tasks []taskItem `json:"tasks"`
		}
		if err := json.Unmarshal(raw, &done); err != nil {
			return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
		}
		switch {
		case watch:
			return a.watchTasks(c.Context(), server, done.Tasks, output.value)
		case output.value == "json":
			return render.JSON(a.stdout, raw)
		}
		for i := range done.Tasks {
			t := &done.Tasks[i]
			fmt.Fprintf(a.stdout, "%s: `muster operation watch %d` follows it\n", t.line(), t.ID)
		}
		return nil
	}
	return c
}

// watchTasks follows tasks one after the other; each tells where it is when its
// turn comes.
func (a *app) watchTasks(ctx context.Context, server *client.Client, tasks []taskItem, output string) error {
	var failed error
	for i := range tasks {
		if err := a.watchTask(ctx, server, tasks[i].ID, output); err != nil {
			failed = err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return failed
}

func (t *taskItem) line() string {
	text := fmt.Sprintf("task %d %s of rack %s is %s", t.ID, t.Operation, t.Rack, t.Status)
	if waits := t.waits(); waits != "" && !t.Ended {
		text += ", waits for " + waits
	}
	if f := t.Failure; f != nil {
		text += ": " + strings.TrimRight(f.Code+" "+orEmpty(f.Message), " ")
	}
	if t.OverBudgetAt != nil && !t.Ended {
		text += ", longer than its rule lets one expect"
	}
	return render.Line(text)
}

// waits says what keeps the task from being started.
func (t *taskItem) waits() string {
	switch w := t.Waiting; {
	case t.Status == "queued" && t.Ahead > 0:
		return render.Plural(t.Ahead, "task") + " before it"
	case t.Status == "queued":
		return "who holds its devices"
	case w == nil:
		return ""
	case w.Breaker != nil:
		return "the open breaker " + *w.Breaker
	case w.Trouble != nil:
		return "Temporal: " + *w.Trouble
	}
	return "its turn"
}

func (t *taskItem) counts() string {
	var words []string
	for status, n := range t.Components.ByStatus {
		words = append(words, fmt.Sprintf("%d %s", n, t.told(status)))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// told gives a component's status as people are told it: of a task that has ended
// nothing waits any more.
func (t *taskItem) told(status string) string {
	if t.Ended && status == "waiting" {
		return "never begun"
	}
	return status
}

func (a *app) operationListCommand() *cobra.Command {
	var limit int
	var open bool
	filters := map[string]*[]string{}
	c := &cobra.Command{Use: "list", Short: "List tasks, the newest first", Args: cobra.NoArgs}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	for _, f := range []struct{ flag, parameter, says string }{
		{"site", "site", "sites"}, {"rack", "rack", "ids of racks"}, {"operation", "operation", "operations"}, {"status", "status", "statuses"}, {"by", "requested_by", "submitters, as tasks show them"},
	} {
		filters[f.parameter] = c.Flags().StringSlice(f.flag, nil, "only these "+f.says)
	}
	c.Flags().BoolVar(&open, "open", false, "only tasks that have not ended; =false: the others")
	c.Flags().IntVar(&limit, "limit", 50, "at most so many, 0 for all")
	c.RunE = func(c *cobra.Command, _ []string) error {
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		query := url.Values{}
		for parameter, values := range filters {
			query[parameter] = append(query[parameter], *values...)
		}
		if c.Flags().Changed("open") {
			query.Set("open", strconv.FormatBool(open))
		}
		if output.value == "json" {
			items, err := client.List[json.RawMessage](c.Context(), server, tasksPath, query, limit)
			if err != nil {
				return err
			}
			return render.JSON(a.stdout, items)
		}
		items, err := client.List[taskItem](c.Context(), server, tasksPath, query, limit)
		if err != nil {
			return err
		}
		var rows [][]string
		for i := range items {
			t := &items[i]
			rows = append(rows, []string{
				strconv.FormatInt(t.ID, 10), t.Operation, t.Site, t.Rack, t.Status, t.counts(), t.RequestedBy, render.Age(t.CreatedAt, a.now()), t.waits(),
			})
		}
		return render.Table(a.stdout, []string{"ID", "OPERATION", "SITE", "RACK", "STATUS", "COMPONENTS", "BY", "SUBMITTED", "WAITS FOR"}, rows)
	}
	return c
}

func (a *app) operationShowCommand() *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Show the report of a task: what ran, how, and what never started", Args: cobra.ExactArgs(1)}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := taskID(args[0])
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		report, err := show[reportItem](c.Context(), a, server, taskPath(id), nil, output.value)
		if err != nil || output.value == "json" {
			return err
		}
		return a.printReport(&report)
	}
	return c
}

func (a *app) operationWatchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a task until it ends",
		Long:  "Watch prints what changes until the task has ended, on a terminal as stages with\nbars. The exit code is 1 unless it succeeded. With --output json each event is a line.",
		Args:  cobra.ExactArgs(1),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := taskID(args[0])
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		return a.watchTask(c.Context(), server, id, output.value)
	}
	return c
}

func (a *app) operationCancelCommand() *cobra.Command {
	return cancelCommand(a, "Ask a task to end",
		"Cancel asks a task to end. What waits, or has not been started, never is; what runs\nis told, and the task ends when everything that it started has.",
		func(id string) (string, error) {
			task, err := taskID(id)
			return taskPath(task), err
		},
		func(task *taskItem) string { return task.line() })
}
