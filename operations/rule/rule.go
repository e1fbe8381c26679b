package rule

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Rule is a rule in its normal form. As JSON it is what the schema accepts.
type Rule struct {
	Name          string `json:"name"`
	Description   string `json:"description,omitempty"`
	Version       string `json:"version"`
	OperationType string `json:"operation_type"`
	Operation     string `json:"operation"`
	Steps         []Step `json:"steps"`
}

// Step is what is done with one component type in one stage.
type Step struct {
	ComponentType string   `json:"component_type"`
	Stage         int      `json:"stage"`
	MaxParallel   int      `json:"max_parallel"` // 0: no limit
	Timeout       Period   `json:"timeout"`      // of one try of an activity
	Retry         Retry    `json:"retry"`
	Pre           []Action `json:"pre_operation,omitempty"`
	Main          Action   `json:"main_operation"`
	Post          []Action `json:"post_operation,omitempty"`
}

// Retry is how often an activity is tried, and how it waits between.
type Retry struct {
	MaxAttempts        int     `json:"max_attempts"`
	InitialInterval    Period  `json:"initial_interval"`
	BackoffCoefficient float64 `json:"backoff_coefficient"`
	MaxInterval        Period  `json:"max_interval"`
}

// Action is one thing that a step does or waits for.
type Action struct {
	Name         string     `json:"name"`
	Timeout      Period     `json:"timeout,omitzero"` // 0: the step's
	PollInterval Period     `json:"poll_interval,omitzero"`
	Parameters   Parameters `json:"parameters,omitzero"`
}

// Parameters are those of every action; each has its own.
type Parameters struct {
	Operation      string   `json:"operation,omitempty"` // of PowerControl; "": the rule's
	ExpectedStatus string   `json:"expected_status,omitempty"`
	ComponentTypes []string `json:"component_types,omitempty"`
	RequireAll     bool     `json:"require_all,omitempty"`
	Duration       Period   `json:"duration,omitzero"`
	PollInterval   Period   `json:"poll_interval,omitzero"`
	PollTimeout    Period   `json:"poll_timeout,omitzero"`
}

// IsZero lets an action without parameters be written without them.
func (p Parameters) IsZero() bool {
	return p.Operation == "" && p.ExpectedStatus == "" && p.ComponentTypes == nil && !p.RequireAll && p.Duration == 0 && p.PollInterval == 0 && p.PollTimeout == 0
}

// The actions.
const (
	PowerControl        = "PowerControl"
	FirmwareControl     = "FirmwareControl"
	VerifyPowerStatus   = "VerifyPowerStatus"
	VerifyReachability  = "VerifyReachability"
	Sleep               = "Sleep"
	GetPowerStatus      = "GetPowerStatus"
	DecommissionControl = "DecommissionControl"
	WaitDecommissioned  = "WaitDecommissioned"
)

// Actions lists the actions of a step in the order of its phases.
func (s *Step) Actions() []Action {
	return slices.Concat(s.Pre, []Action{s.Main}, s.Post)
}

// Period is a duration that is written as people do: 1h30m, not 1h30m0s.
type Period time.Duration

func (p Period) String() string {
	text := time.Duration(p).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// MarshalText writes the period.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a period that MarshalText wrote.
func (p *Period) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read a period: %w", err)
	}
	*p = Period(d)
	return nil
}

// defaults is what the schema says of what is left out.
type defaults struct {
	Version  string `json:"version"`
	Timeout  Period `json:"timeout"`
	Retry    Retry  `json:"retry"`
	Firmware struct {
		PollInterval Period `json:"poll_interval"`
		PollTimeout  Period `json:"poll_timeout"`
	} `json:"firmware"`
}

// decode makes rules of a tree that the schema accepts.
func (v *Validator) decode(definition string, tree *node) *Checked {
	trees, prefix := []*node{tree}, false
	if definition == "#OperationRuleBatch" {
		trees, prefix = tree.field("rules").items, true
	}
	c := &Checked{}
	for i, one := range trees {
		r := v.defaults.rule(one)
		path := ""
		if prefix {
			path = element("rules", i)
		}
		for _, w := range r.Warnings() {
			at := one.at(w.Path)
			w.Line, w.Column = at.line, at.column
			if w.Path = strings.TrimSuffix(path+"."+w.Path, "."); path == "" {
				w.Path = strings.TrimPrefix(w.Path, ".")
			}
			c.Warnings = append(c.Warnings, w)
		}
		c.Rules = append(c.Rules, r)
	}
	return c
}

// at finds the value at a path, or the last one on the way.
func (n *node) at(path string) *node {
	for part := range strings.SplitSeq(strings.ReplaceAll(path, "[", ".["), ".") {
		next := n.field(part)
		if i, err := strconv.Atoi(strings.Trim(part, "[]")); err == nil && n.kind == aList && i < len(n.items) {
			next = n.items[i]
		}
		if next == nil {
			break
		}
		n = next
	}
	return n
}

func (n *node) string(name string) string {
	if f := n.field(name); f != nil {
		return f.text
	}
	return ""
}

func (n *node) int(name string) int {
	i, _ := strconv.Atoi(n.string(name)) // the schema has seen to it
	return i
}

func (n *node) period(name string) Period {
	d, _ := time.ParseDuration(n.string(name)) // the schema has seen to it
	return Period(d)
}

func (n *node) list(name string) []*node {
	if f := n.field(name); f != nil {
		return f.items
	}
	return nil
}

func (d *defaults) rule(n *node) Rule {
	r := Rule{
		Name: n.string("name"), Description: n.string("description"), Version: d.Version,
		OperationType: n.string("operation_type"), Operation: n.string("operation"), Steps: []Step{},
	}
	for _, step := range n.list("steps") {
		r.Steps = append(r.Steps, d.step(step))
	}
	return r
}

func (d *defaults) step(n *node) Step {
	s := Step{
		ComponentType: componentType(n.string("component_type")), Stage: n.int("stage"), MaxParallel: n.int("max_parallel"),
		Timeout: n.period("timeout"), Retry: d.Retry, Main: d.action(n.field("main_operation")),
	}
	if s.Timeout == 0 {
		s.Timeout = d.Timeout
	}
	if retry := n.field("retry"); retry != nil {
		coefficient, _ := strconv.ParseFloat(retry.string("backoff_coefficient"), 64) // the schema has seen to it
		s.Retry = Retry{MaxAttempts: retry.int("max_attempts"), InitialInterval: retry.period("initial_interval"), BackoffCoefficient: coefficient, MaxInterval: retry.period("max_interval")}
		if s.Retry.MaxInterval == 0 {
			s.Retry.MaxInterval = max(d.Retry.MaxInterval, s.Retry.InitialInterval)
		}
	}
	for _, action := range n.list("pre_operation") {
		s.Pre = append(s.Pre, d.action(action))
	}
	for _, action := range n.list("post_operation") {
		s.Post = append(s.Post, d.action(action))
	}
	return s
}

func (d *defaults) action(n *node) Action {
	a := Action{Name: n.string("name"), Timeout: n.period("timeout"), PollInterval: n.period("poll_interval")}
	p := n.field("parameters")
	if p == nil {
		p = &node{}
	}
	a.Parameters = Parameters{
		Operation: p.string("operation"), ExpectedStatus: p.string("expected_status"), RequireAll: p.string("require_all") == "true",
		Duration: p.period("duration"), PollInterval: p.period("poll_interval"), PollTimeout: p.period("poll_timeout"),
	}
	for _, one := range p.list("component_types") {
		if name := componentType(one.text); !slices.Contains(a.Parameters.ComponentTypes, name) {
			a.Parameters.ComponentTypes = append(a.Parameters.ComponentTypes, name)
		}
	}
	switch a.Name {
	case FirmwareControl:
		if a.Parameters.PollInterval == 0 {
			a.Parameters.PollInterval = d.Firmware.PollInterval
		}
		if a.Parameters.PollTimeout == 0 {
			a.Parameters.PollTimeout = d.Firmware.PollTimeout
		}
	}
	return a
}

// componentType is a component type in its one spelling.
func componentType(name string) string {
	if name = strings.ToLower(name); name == "nvlswitch" {
		return "nvswitch"
	}
	return name
}

// JSON writes the rule: the same rule is always the same bytes.
func (r *Rule) JSON() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic("write an operation rule: " + err.Error()) // it holds nothing that JSON has not
	}
	return text
}
