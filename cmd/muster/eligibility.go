package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

// submission is what a person says of a workflow and its devices: the question
// whether it may run, and the order to run it.
type submission struct {
	Workflow    string                     `json:"workflow"`
	Site        string                     `json:"site,omitempty"`
	DeviceIDs   []int64                    `json:"device_ids,omitempty"`
	DeviceNames []string                   `json:"device_names,omitempty"`
	Parameters  map[string]json.RawMessage `json:"parameters,omitempty"`
	Reason      string                     `json:"reason,omitempty"`
}

// submissionFlags are the flags that fill a submission.
type submissionFlags struct {
	site, parameters string
	param            []string
}

func (f *submissionFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.site, "site", "", "the site of the devices that are named")
	c.Flags().StringArrayVarP(&f.param, "param", "p", nil, "a parameter as name=value; the value is JSON, or a text as it stands")
	c.Flags().StringVar(&f.parameters, "parameters", "", "all parameters as a JSON object, or @FILE that holds one")
}

// submission puts together what the arguments and flags say. What is a number is
// a device's id, anything else its name.
func (f *submissionFlags) submission(workflow string, devices []string) (*submission, error) {
	s := &submission{Workflow: workflow, Site: f.site}
	for _, one := range devices {
		if id, err := strconv.ParseInt(one, 10, 64); err == nil && id > 0 {
			s.DeviceIDs = append(s.DeviceIDs, id)
		} else {
			s.DeviceNames = append(s.DeviceNames, one)
		}
	}
	if f.parameters != "" {
		text := []byte(f.parameters)
		if name, ok := strings.CutPrefix(f.parameters, "@"); ok {
			var err error
			if text, err = os.ReadFile(name); err != nil {
				return nil, usage("read the parameters: %w", err)
			}
		}
		if err := json.Unmarshal(text, &s.Parameters); err != nil {
			return nil, usage("--parameters is no JSON object: %w", err)
		}
	}
	for _, one := range f.param {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, usage("--param %s: write name=value", one)
		}
		if s.Parameters == nil {
			s.Parameters = map[string]json.RawMessage{}
		}
		s.Parameters[name] = parameterValue(value)
	}
	return s, nil
}

// parameterValue takes JSON as JSON and anything else as a text.
func parameterValue(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	quoted, _ := json.Marshal(text) // a text always encodes
	return quoted
}

// refusalItem is one reason why something may not be done.
type refusalItem struct {
	Code     string  `json:"code"`
	Message  string  `json:"message"`
	Field    *string `json:"field"`
	Actual   *string `json:"actual"`
	Expected *string `json:"expected"`
	Pos      *string `json:"pos"`
}

// deviceVerdict says of one device whether it is taken.
type deviceVerdict struct {
	ID       *int64        `json:"id"`
	Name     *string       `json:"name"`
	Site     *string       `json:"site"`
	Eligible bool          `json:"eligible"`
	Refusals []refusalItem `json:"refusals"`
}

// eligibilityAnswer is what the server says of a question.
type eligibilityAnswer struct {
	Workflow      string          `json:"workflow"`
	Available     bool            `json:"available"`
	Eligible      bool            `json:"eligible"`
	CheckedAt     time.Time       `json:"checked_at"`
	BundleVersion string          `json:"bundle_version"`
	Parameters    json.RawMessage `json:"parameters"`
	Refusals      []refusalItem   `json:"refusals"`
	Devices       []deviceVerdict `json:"devices"`
}

func (a *app) eligibilityCommand() *cobra.Command {
	flags := &submissionFlags{}
	c := &cobra.Command{
		Use:   "eligibility WORKFLOW DEVICE…",
		Short: "Say whether a workflow may run on devices, and every reason why not",
		Long: `Eligibility asks every gate of the workflow's policy about every device and prints
each refusal: what was found, what is asked, and where the policy says so. Nothing
is stored or reserved: a submission is judged anew.

A DEVICE is a name or an id. ` + "`muster eligibility --list`" + ` lists the workflows.
The exit code is 1 where anything is refused.`,
		Example: `  muster eligibility release_to_customer_pool sim1-r01-c02
  muster eligibility move_to_test_cluster sim1-r01-c02 --param cordon_only=true`,
	}
	var list bool
	output := outputFlag(c)
	conn := a.connectFlags(c)
	flags.add(c)
	c.Flags().BoolVar(&list, "list", false, "list the workflows and their parameters")
	c.RunE = func(c *cobra.Command, args []string) error {
		if !list && len(args) < 2 {
			return usage("which workflow, on which devices? `muster eligibility --list` lists the workflows")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		if list {
			return a.listWorkflows(c.Context(), server, output.value)
		}
		question, err := flags.submission(args[0], args[1:])
		if err != nil {
			return err
		}
		return a.askEligibility(c.Context(), server, question, output.value)
	}
	return c
}

func (a *app) askEligibility(ctx context.Context, server *client.Client, question *submission, output string) error {
	var raw json.RawMessage
	if err := server.Post(ctx, "/eligibility/check/", question, &raw); err != nil {
		return err
	}
	var answer eligibilityAnswer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
	}
	if output == "json" {
		if err := render.JSON(a.stdout, raw); err != nil {
			return err
		}
	} else {
		a.printEligibility(&answer)
	}
	if !answer.Eligible {
		return no()
	}
	return nil
}

// printEligibility prints the verdict, the reasons for it, and by which policy.
func (a *app) printEligibility(e *eligibilityAnswer) {
	var b bytes.Buffer
	refused := 0
	for i := range e.Devices {
		if len(e.Devices[i].Refusals) > 0 {
			refused++
		}
	}
	judged := len(e.Parameters) > 0 && string(e.Parameters) != "null"
	switch {
	case e.Eligible && e.Available:
		fmt.Fprintf(&b, "%s may run on %s\n", e.Workflow, render.Plural(len(e.Devices), "device"))
	case e.Eligible:
		fmt.Fprintf(&b, "%s might run on %s, but this version of muster does not run it yet\n", e.Workflow, render.Plural(len(e.Devices), "device"))
	case !judged:
		fmt.Fprintf(&b, "%s may not run: the request is refused, no gate was asked\n", e.Workflow)
	case refused == 0:
		fmt.Fprintf(&b, "%s may not run: no device is refused, the whole is\n", e.Workflow)
	default:
		fmt.Fprintf(&b, "%s may not run: %s refused\n", e.Workflow, render.Plural(refused, "device"))
	}
	for i := range e.Refusals {
		printRefusal(&b, &e.Refusals[i])
	}
	for i := range e.Devices {
		d := &e.Devices[i]
		if !judged && len(d.Refusals) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%s %s\n", map[bool]string{true: "✓", false: "✗"}[d.Eligible], d.called())
		for j := range d.Refusals {
			printRefusal(&b, &d.Refusals[j])
		}
	}
	fmt.Fprintf(&b, "\nby policy %s, at %s\n", shortVersion(e.BundleVersion), e.CheckedAt.UTC().Format("2006-01-02 15:04:05 UTC"))
	_, _ = a.stdout.Write(b.Bytes()) // nobody reads it where this fails
}

// called names a device as well as it is known.
func (d *deviceVerdict) called() string {
	text := orEmpty(d.Name)
	if text == "" && d.ID != nil {
		text = fmt.Sprintf("device %d", *d.ID)
	}
	if d.Site != nil {
		text += " (site " + *d.Site + ")"
	}
	return render.Line(text)
}

func printRefusal(b *bytes.Buffer, r *refusalItem) {
	fmt.Fprintf(b, "  ✗ %s: %s\n", r.Code, render.Line(r.Message))
	if r.Field != nil {
		fmt.Fprintf(b, "      %s is %s, asked is %s\n", *r.Field, render.Line(r.found()), render.Line(orEmpty(r.Expected)))
	}
	if r.Pos != nil {
		fmt.Fprintf(b, "      %s\n", *r.Pos)
	}
}

// found is what stands in the field.
func (r *refusalItem) found() string {
	switch {
	case r.Actual != nil:
		return *r.Actual
	case strings.HasPrefix(*r.Field, "parameters"):
		return "not given"
	}
	return "not known"
}

// shortVersion is enough of a bundle's version to know it by.
func shortVersion(version string) string {
	version = strings.TrimPrefix(version, "sha256:")
	return version[:min(12, len(version))]
}

// workflowItem is what the table shows of a workflow.
type workflowItem struct {
	Slug       string `json:"slug"`
	Title      string `json:"title"`
	Available  bool   `json:"available"`
	Contention string `json:"contention"`
	Devices    struct {
		Min int  `json:"min"`
		Max *int `json:"max"`
	} `json:"devices"`
	Parameters struct {
		Properties map[string]struct {
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
		Required []string `json:"required"`
	} `json:"parameters"`
}

func (a *app) listWorkflows(ctx context.Context, server *client.Client, output string) error {
	if output == "json" {
		items, err := client.List[json.RawMessage](ctx, server, "/workflows/", url.Values{}, 0)
		if err != nil {
			return err
		}
		return render.JSON(a.stdout, items)
	}
	items, err := client.List[workflowItem](ctx, server, "/workflows/", url.Values{}, 0)
	if err != nil {
		return err
	}
	var rows [][]string
	for i := range items {
		w := &items[i]
		devices := fmt.Sprintf("≥%d", w.Devices.Min)
		if w.Devices.Max != nil {
			devices = fmt.Sprintf("%d–%d", w.Devices.Min, *w.Devices.Max)
		}
		rows = append(rows, []string{w.Slug, w.Title, render.YesNo(w.Available), w.Contention, devices, w.parameters()})
	}
	return render.Table(a.stdout, []string{"WORKFLOW", "TITLE", "AVAILABLE", "CONTENTION", "DEVICES", "PARAMETERS"}, rows)
}

// parameters names what a workflow takes, with the defaults; a * marks what has
// to be given.
func (w *workflowItem) parameters() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(w.Parameters.Properties)) {
		switch byDefault := w.Parameters.Properties[name].Default; {
		case slices.Contains(w.Parameters.Required, name):
			name += "*"
		case byDefault != nil:
			name += "=" + string(byDefault)
		}
		words = append(words, name)
	}
	return strings.Join(words, " ")
}
