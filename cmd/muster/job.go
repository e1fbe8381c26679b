package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

func (a *app) jobCommand() *cobra.Command {
	return parent("job", "Run workflows on devices and follow them",
		a.jobSubmitCommand(), a.jobListCommand(), a.jobShowCommand(), a.jobWatchCommand(), a.jobCancelCommand())
}

// jobItem is what is shown of a job.
type jobItem struct {
	ID                int64                      `json:"id"`
	Site              string                     `json:"site"`
	Workflow          string                     `json:"workflow"`
	Status            string                     `json:"status"`
	Ended             bool                       `json:"ended"`
	Parameters        map[string]json.RawMessage `json:"parameters"`
	Reason            *string                    `json:"reason"`
	BundleVersion     string                     `json:"bundle_version"`
	RequestedBy       string                     `json:"requested_by"`
	CreatedAt         time.Time                  `json:"created_at"`
	StartedAt         *time.Time                 `json:"started_at"`
	FinishedAt        *time.Time                 `json:"finished_at"`
	CancelRequestedAt *time.Time                 `json:"cancel_requested_at"`
	CancelRequestedBy *string                    `json:"cancel_requested_by"`
	CancelReason      *string                    `json:"cancel_reason"`
	Devices           struct {
		Total    int            `json:"total"`
		ByStatus map[string]int `json:"by_status"`
	} `json:"devices"`
	Waiting *struct {
		Units   int     `json:"units"`
		Trouble *string `json:"trouble"`
		Breaker *string `json:"breaker"`
	} `json:"waiting"`
}

// jobDeviceItem is what is shown of one device of a job.
type jobDeviceItem struct {
	DeviceID int64   `json:"device_id"`
	Name     string  `json:"name"`
	Status   string  `json:"status"`
	Phase    *string `json:"phase"`
	Progress int     `json:"progress"`
	Failure  *struct {
		Code    string  `json:"code"`
		Message *string `json:"message"`
		Owner   *string `json:"owner"`
		Hint    *string `json:"hint"`
		Runbook *string `json:"runbook"`
	} `json:"failure"`
}

func jobPath(id int64) string { return fmt.Sprintf("/jobs/%d/", id) }

func jobID(text string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(text, "job/"), 10, 64)
	if err != nil || id < 1 {
		return 0, usage("%q is no job: jobs have numbers, `muster job list` shows them", text)
	}
	return id, nil
}

func (a *app) jobSubmitCommand() *cobra.Command {
	flags := &submissionFlags{}
	var key, reason string
	var watch bool
	c := &cobra.Command{
		Use:   "submit WORKFLOW DEVICE…",
		Short: "Run a workflow on devices",
		Long: `Submit makes one job of all the devices, or tells every reason why it may not be.
A DEVICE is a name or an id; ` + "`muster eligibility --list`" + ` lists the workflows.

With --key the same submission again gives the same job: use it where a script may
be run twice. The exit code is 1 where the submission is refused and, with --watch,
where the job does not succeed.`,
		Example: `  muster job submit verify_connectivity sim1-r01-c02 --watch
  muster job submit move_to_test_cluster sim1-r01-c02 --param force_reclaim=true --reason CHG-4711`,
		Args: cobra.MinimumNArgs(2),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	flags.add(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for the history and the audit log")
	c.Flags().StringVar(&key, "key", "", "a key of your own: the same submission with it is made once")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "follow the job until it ends")
	c.RunE = func(c *cobra.Command, args []string) error {
		order, err := flags.submission(args[0], args[1:])
		if err != nil {
			return err
		}
		order.Reason = reason
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var raw json.RawMessage
		if err := server.Once(key).Post(c.Context(), "/jobs/", order, &raw); err != nil {
			return a.refusedJob(err)
		}
		var job jobItem
		if err := json.Unmarshal(raw, &job); err != nil {
			return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
		}
		switch {
		case watch:
			return a.watchJob(c.Context(), server, job.ID, output.value)
		case output.value == "json":
			return render.JSON(a.stdout, raw)
		}
		fmt.Fprintf(a.stdout, "job %d of %s on %s is %s: `muster job watch %d` follows it\n", job.ID, job.Workflow, render.Plural(job.Devices.Total, "device"), job.Status, job.ID)
		return nil
	}
	return c
}

// refusedJob prints why a submission is refused, where the server says so.
func (a *app) refusedJob(err error) error {
	var answer *client.AnswerError
	if !errors.As(err, &answer) || len(answer.Eligibility) == 0 {
		return err
	}
	var why eligibilityAnswer
	if json.Unmarshal(answer.Eligibility, &why) != nil {
		return err
	}
	a.printEligibility(&why)
	return no()
}

func (a *app) jobListCommand() *cobra.Command {
	var limit int
	var open bool
	filters := map[string]*[]string{}
	var devices []string
	c := &cobra.Command{Use: "list", Short: "List jobs, the newest first", Args: cobra.NoArgs}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	for _, f := range []struct{ flag, parameter, says string }{
		{"site", "site", "sites"}, {"workflow", "workflow", "workflows"}, {"status", "status", "statuses"}, {"by", "requested_by", "submitters, as jobs show them"},
	} {
		filters[f.parameter] = c.Flags().StringSlice(f.flag, nil, "only these "+f.says)
	}
	c.Flags().StringSliceVar(&devices, "device", nil, "only jobs on these devices")
	c.Flags().BoolVar(&open, "open", false, "only jobs that have not ended; =false: the others")
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
		for _, name := range devices {
			id, err := device(c.Context(), server, name)
			if err != nil {
				return err
			}
			query.Add("device", strconv.FormatInt(id, 10))
		}
		if output.value == "json" {
			items, err := client.List[json.RawMessage](c.Context(), server, "/jobs/", query, limit)
			if err != nil {
				return err
			}
			return render.JSON(a.stdout, items)
		}
		items, err := client.List[jobItem](c.Context(), server, "/jobs/", query, limit)
		if err != nil {
			return err
		}
		return a.printJobs(items)
	}
	return c
}

func (a *app) printJobs(items []jobItem) error {
	var rows [][]string
	for i := range items {
		j := &items[i]
		rows = append(rows, []string{
			strconv.FormatInt(j.ID, 10), j.Workflow, j.Site, j.Status, j.counts(), j.RequestedBy, render.Age(j.CreatedAt, a.now()), j.waits(),
		})
	}
	return render.Table(a.stdout, []string{"ID", "WORKFLOW", "SITE", "STATUS", "DEVICES", "BY", "SUBMITTED", "WAITS FOR"}, rows)
}

// counts tells how many devices are how far.
func (j *jobItem) counts() string {
	if len(j.Devices.ByStatus) == 1 {
		return strconv.Itoa(j.Devices.Total)
	}
	var words []string
	for status, n := range j.Devices.ByStatus {
		words = append(words, fmt.Sprintf("%d %s", n, status))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

// waits says what keeps a part of the job from being started.
func (j *jobItem) waits() string {
	switch w := j.Waiting; {
	case w == nil:
		return ""
	case w.Breaker != nil:
		return "the open breaker " + *w.Breaker
	case w.Trouble != nil:
		return "Temporal: " + *w.Trouble
	}
	return "its turn"
}

func (a *app) jobShowCommand() *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: "Show one job with its devices", Args: cobra.ExactArgs(1)}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		job, err := show[jobItem](c.Context(), a, server, jobPath(id), nil, output.value)
		if err != nil || output.value == "json" {
			return err
		}
		devices, err := client.List[jobDeviceItem](c.Context(), server, jobPath(id)+"devices/", url.Values{}, 0)
		if err != nil {
			return err
		}
		return a.printJob(&job, devices)
	}
	return c
}

func (a *app) printJob(j *jobItem, devices []jobDeviceItem) error {
	at := func(t *time.Time) string {
		if t == nil {
			return ""
		}
		return t.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	rows := [][]string{
		{"job", fmt.Sprintf("%d, %s at site %s", j.ID, j.Workflow, j.Site)},
		{"status", j.Status},
		{"devices", j.counts()},
		{"submitted", at(&j.CreatedAt) + " by " + j.RequestedBy},
		{"reason", orEmpty(j.Reason)},
		{"started", at(j.StartedAt)},
		{"finished", at(j.FinishedAt)},
	}
	if waits := j.waits(); waits != "" {
		rows = append(rows, []string{"waits for", waits})
	}
	if j.CancelRequestedAt != nil {
		rows = append(rows, []string{"cancel asked", strings.TrimRight(at(j.CancelRequestedAt)+" by "+orEmpty(j.CancelRequestedBy)+" "+orEmpty(j.CancelReason), " ")})
	}
	for _, name := range slices.Sorted(maps.Keys(j.Parameters)) {
		rows = append(rows, []string{"parameter", name + " = " + string(j.Parameters[name])})
	}
	rows = append(rows, []string{"policy", shortVersion(j.BundleVersion)})
	if err := render.Pairs(a.stdout, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	return a.printJobDevices(devices)
}

func (a *app) printJobDevices(devices []jobDeviceItem) error {
	var rows [][]string
	for i := range devices {
		d := &devices[i]
		failure, hint := "", ""
		if f := d.Failure; f != nil {
			failure = strings.TrimRight(f.Code+" "+orEmpty(f.Message), " ")
			hint = strings.Trim(orEmpty(f.Owner)+": "+orEmpty(f.Hint), ": ")
		}
		rows = append(rows, []string{strconv.FormatInt(d.DeviceID, 10), d.Name, d.Status, fmt.Sprintf("%d %%", d.Progress), orEmpty(d.Phase), failure, hint})
	}
	return render.Table(a.stdout, []string{"ID", "DEVICE", "STATUS", "DONE", "PHASE", "FAILURE", "WHOSE: WHAT TO DO"}, rows)
}

func (a *app) jobCancelCommand() *cobra.Command {
	return cancelCommand(a, "Ask a job to end",
		"Cancel asks a job to end. What has not been started never is; what runs is told\nand ends in an order of its own.",
		func(id string) (string, error) {
			job, err := jobID(id)
			return jobPath(job), err
		},
		func(job *jobItem) string { return fmt.Sprintf("job %d of %s is %s", job.ID, job.Workflow, job.Status) })
}

// cancelCommand is the command that asks for the end of what an ID names, with a
// reason. path gives where that is served; said is what to say of what comes back.
func cancelCommand[T any](a *app, short, long string, path func(id string) (string, error), said func(*T) string) *cobra.Command {
	var reason string
	c := &cobra.Command{Use: "cancel ID", Short: short, Long: long, Args: cobra.ExactArgs(1)}
	conn := a.connectFlags(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for the history and the audit log (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		at, err := path(args[0])
		if err != nil {
			return err
		}
		if strings.TrimSpace(reason) == "" {
			return usage("say why with --reason: a cancel is audited")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var item T
		if err := server.Post(c.Context(), at+"cancel/", map[string]string{"reason": reason}, &item); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, said(&item))
		return nil
	}
	return c
}

func (a *app) jobWatchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "watch ID",
		Short: "Follow a job until it ends",
		Long:  "Watch prints what changes until the job has ended, on a terminal as bars. The exit\ncode is 1 unless every device succeeded. With --output json each event is a line.",
		Args:  cobra.ExactArgs(1),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		return a.watchJob(c.Context(), server, id, output.value)
	}
	return c
}

// succeeded is the answer of a job that has ended: yes or no.
func (j *jobItem) succeeded(ctx context.Context) error {
	if ctx.Err() == nil && j.Status != "succeeded" {
		return no()
	}
	return ctx.Err()
}
