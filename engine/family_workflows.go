package engine

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"
)

// Workflow is one entry of the workflow catalogue.
type Workflow struct {
	Slug  string
	Title string
	Group string
	Pos   Pos

	Contention Contention
	Disruptive bool   // its devices count under the blast caps
	Available  bool   // the policy lets it be submitted
	Through    string // the API that creates its jobs: jobs or report_runs
	Stage      string // of the stand-up pipeline, "" for none

	MinDevices        int
	MaxDevices        int // 0: any number
	SameResourceClass bool
	SameRack          bool

	// Held names the parameters that name devices which a job holds without
	// running on them.
	Held []string

	// Stamped says what the server writes into a job beside its parameters, in the
	// order of names.
	Stamped []Stamp

	// Failures are the codes that it may end with, those of any workflow included,
	// in order.
	Failures []string

	parameters *parameters
}

// Stamp is one value that the server writes into a job.
type Stamp struct {
	Name string
	Fact string // such as site.engagement_mode: of the site for the job, any other for each device
}

// Contention says which locks a workflow takes on its devices.
type Contention string

// A job without contention takes no lock and asks for none.
const (
	Exclusive Contention = "exclusive"
	Shared    Contention = "shared"
	None      Contention = "none"
)

// Failure is one entry of the catalogue of failure codes.
type Failure struct {
	Code          string
	Owner         string // the queue
	Meaning       string
	Retryable     bool
	Hint          string
	Runbook       string
	OfAnyWorkflow bool
	Pos           Pos
}

// RefusalCode is one code by which a submission is refused.
type RefusalCode struct {
	Code    string
	Meaning string
	Gate    bool // a gate refuses with it; else the submission as a whole, or before any gate
	Pos     Pos
}

// Workflows lists the catalogue in the order of slugs. The caller may not change
// it.
func (b *Bundle) Workflows() []Workflow { return b.workflows }

// Workflow finds a workflow by its slug.
func (b *Bundle) Workflow(slug string) (*Workflow, bool) {
	i := slices.IndexFunc(b.workflows, func(w Workflow) bool { return w.Slug == slug })
	if i < 0 {
		return nil, false
	}
	return &b.workflows[i], true
}

// Failures lists the failure codes in order. The caller may not change it.
func (b *Bundle) Failures() []Failure { return b.failures }

// Failure finds a failure code.
func (b *Bundle) Failure(code string) (*Failure, bool) {
	i := slices.IndexFunc(b.failures, func(f Failure) bool { return f.Code == code })
	if i < 0 {
		return nil, false
	}
	return &b.failures[i], true
}

// RefusalCodes lists the codes that a submission may be refused with, in order.
func (b *Bundle) RefusalCodes() []RefusalCode { return b.refusals }

// catalogues reads the families that are data: failure codes, refusal codes and
// workflows. What they lack the schema tells.
func (c *compiler) catalogues(b *Bundle, values packages) {
	entries := func(dir, field string, f func(name string, entry cue.Value)) {
		if v := values[dir].LookupPath(cue.MakePath(cue.Str(field))); v.Exists() {
			c.each(v, field, f)
		}
	}
	entries("policies/failures", "failures", func(code string, v cue.Value) {
		b.failures = append(b.failures, Failure{
			Code: code, Owner: textOf(v, "owner"), Meaning: textOf(v, "meaning"), Retryable: flagOf(v, "retryable"),
			Hint: textOf(v, "hint"), Runbook: textOf(v, "runbook"), OfAnyWorkflow: flagOf(v, "of_any_workflow"), Pos: entryField(v, "meaning"),
		})
	})
	entries("policies/eligibility", "refusals", func(code string, v cue.Value) {
		b.refusals = append(b.refusals, RefusalCode{Code: code, Meaning: textOf(v, "meaning"), Gate: flagOf(v, "gate"), Pos: entryField(v, "meaning")})
	})
	entries("policies/workflows", "workflows", func(slug string, v cue.Value) { b.workflows = append(b.workflows, c.workflow(slug, v, b)) })
	slices.SortFunc(b.failures, func(a, b Failure) int { return strings.Compare(a.Code, b.Code) })
	slices.SortFunc(b.refusals, func(a, b RefusalCode) int { return strings.Compare(a.Code, b.Code) })
	slices.SortFunc(b.workflows, func(a, b Workflow) int { return strings.Compare(a.Slug, b.Slug) })
}

func (c *compiler) workflow(slug string, v cue.Value, b *Bundle) Workflow {
	devices := v.LookupPath(cue.ParsePath("devices"))
	w := Workflow{
		Slug: slug, Title: textOf(v, "title"), Group: textOf(v, "group"), Pos: entryField(v, "title"),
		Contention: Contention(textOf(v, "contention")), Disruptive: flagOf(v, "disruptive"), Available: flagOf(v, "available"),
		Through: textOf(v, "submitted_through"), Stage: textOf(v, "stage"),
		MinDevices: c.count(devices, "min"), MaxDevices: c.count(devices, "max"),
		SameResourceClass: flagOf(devices, "same_resource_class"), SameRack: flagOf(devices, "same_rack"),
		Held: textsOf(v, "held_device_parameters"), Failures: textsOf(v, "failure_codes"),
	}
	for _, f := range b.failures {
		if f.OfAnyWorkflow && !slices.Contains(w.Failures, f.Code) {
			w.Failures = append(w.Failures, f.Code)
		}
	}
	slices.Sort(w.Failures)
	if stamped := v.LookupPath(cue.ParsePath("stamped")); stamped.Exists() {
		c.each(stamped, "stamped", func(name string, fact cue.Value) {
			text, _ := fact.String()
			w.Stamped = append(w.Stamped, Stamp{name, text})
		})
		slices.SortFunc(w.Stamped, func(a, b Stamp) int { return strings.Compare(a.Name, b.Name) })
	}
	var err error
	if w.parameters, err = parametersOf(v.LookupPath(cue.MakePath(cue.Def("#parameters")))); err != nil {
		c.fail(w.Pos, "workflows.%s.#parameters: %v", slug, err)
	}
	return w
}

// count reads a whole number, 0 for null.
func (c *compiler) count(v cue.Value, field string) int {
	found, _ := v.LookupPath(cue.MakePath(cue.Str(field))).Default()
	n, err := found.Int64()
	if err != nil {
		return 0
	}
	return int(n)
}
