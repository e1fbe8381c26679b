package report

import (
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/rule"
)

// Part is one component of a rack.
type Part struct {
	Device int64  `json:"device"`
	Name   string `json:"name"`
	Type   string `json:"type"` // compute, nvswitch or powershelf
}

// Firmware is the image for the components of one type.
type Firmware struct {
	ComponentType string            `json:"component_type"`
	URI           string            `json:"uri"`
	SHA256        string            `json:"sha256,omitempty"`
	Versions      map[string]string `json:"versions"` // by part of the BMC's inventory
}

// Begun is what a task works on.
type Begun struct {
	Runs          bool      `json:"runs"` // false: nothing is to be done
	Task          int64     `json:"task"`
	Site          string    `json:"site"`
	OperationType string    `json:"operation_type"`
	Operation     string    `json:"operation"`
	Rule          rule.Rule `json:"rule"`
	Parts         []Part    `json:"parts"` // that were asked for
	// Beside are components of the rack that were not asked for and not excluded
	// either. They are looked at by VerifyReachability, and nothing is done to them.
	Beside   []Part        `json:"beside,omitempty"`
	Firmware []Firmware    `json:"firmware,omitempty"`
	Override bool          `json:"override,omitempty"` // machines may be taken from their customers
	Worst    time.Duration `json:"worst"`              // of the rule with these parts; 0: not told
}

// Status is that of an entry or a component. "": not begun.
type Status string

// The statuses. A terminal one stays.
const (
	Running   Status = "running"
	Succeeded Status = "succeeded"
	Failed    Status = "failed"
	Skipped   Status = "skipped" // of an entry: the rack has no component of the type
	Cancelled Status = "cancelled"
)

// Phases of a step.
const (
	Pre  = "pre"
	Main = "main"
	Post = "post"
)

// Entry is one line of a task's report: an action with one component, or of a step
// as a whole. It is known by everything above Status.
type Entry struct {
	Stage         int    `json:"stage"`
	ComponentType string `json:"component_type"`
	Phase         string `json:"phase"` // pre, main or post
	Index         int    `json:"index"` // of the action in its phase
	Action        string `json:"action"`
	Device        int64  `json:"device,omitempty"` // 0: of the step as a whole

	Status   Status        `json:"status"`
	Attempts int           `json:"attempts,omitempty"` // 0: not known
	Code     codes.Failure `json:"code,omitempty"`
	Message  string        `json:"message,omitempty"`
}

// Component is how a component of a task stands. LastState is taken of one that has
// ended too.
type Component struct {
	Device    int64         `json:"device"`
	Status    Status        `json:"status,omitempty"` // "": as it was
	Phase     string        `json:"phase,omitempty"`  // as people see it; "": as it was
	Code      codes.Failure `json:"code,omitempty"`
	Message   string        `json:"message,omitempty"`
	LastState string        `json:"last_state,omitempty"` // of its power, or why it is not known; "": as it was
}

// Record is what one activity writes.
type Record struct {
	Task       int64       `json:"task"`
	Entries    []Entry     `json:"entries,omitempty"`
	Components []Component `json:"components,omitempty"`
}

// Ending is how a task ends: succeeded, partially_failed, failed or cancelled.
type Ending struct {
	Status  fleet.JobStatus `json:"status"`
	Code    codes.Failure   `json:"code,omitempty"`
	Message string          `json:"message,omitempty"`
}
