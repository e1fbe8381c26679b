package jobs

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// MaxDevices is how many devices one request may name.
const MaxDevices = 10_000

// Ref names a device, by id or by name.
type Ref struct {
	ID   int64
	Name string // case and space around it do not matter
}

func (r Ref) String() string {
	if r.ID != 0 {
		return fmt.Sprintf("device %d", r.ID)
	}
	return r.Name
}

// Request asks for a workflow on devices.
type Request struct {
	Workflow   string
	Devices    []Ref
	Site       string          // where names are looked for; "": in every site that may be seen
	Parameters json.RawMessage // one JSON object, or nothing
	Visible    []string        // names of the sites that exist for who asks; nil: every one
}

// Submission asks for a job.
type Submission struct {
	Request
	Reason         string
	Through        string // the API that it came by, "" for jobs
	Force          bool   // who asks may take machines from their customers
	By             devices.Caller
	IdempotencyKey string // "": none
}

// clean makes a copy of what the caller wrote that the database takes. What is no
// JSON stays as it is: whoever validates it says what is wrong.
func (r Request) clean() Request {
	r.Devices = slices.Clone(r.Devices)
	for i := range r.Devices {
		r.Devices[i].Name = store.Clean(r.Devices[i].Name)
	}
	r.Site, r.Workflow = store.Clean(r.Site), store.Clean(r.Workflow)
	if parameters, err := store.CleanJSON(r.Parameters); err == nil {
		r.Parameters = parameters
	}
	return r
}

// hash tells submissions apart: equal ones ask for the same, however they are
// spelled.
func (s *Submission) hash() []byte {
	var parameters any
	if err := json.Unmarshal(s.Parameters, &parameters); err != nil {
		parameters = string(bytes.TrimSpace(s.Parameters))
	}
	body, _ := json.Marshal([]any{s.Workflow, s.Devices, s.Site, parameters, s.Reason, s.Through}) // plain values: cannot fail
	sum := sha256.Sum256(body)
	return sum[:]
}

// Refusal is one reason why a submission is not admitted.
type Refusal struct {
	Code          string
	Gate          string // of the policy; "" where no gate refused
	Message       string
	Path          string // the field that decided
	Actual        string
	Expected      string
	ConditionType string // where a condition decided
	Policy        string // file:line
	Holder        string // job/<id> or task/<id>, of a conflict
}

// Codes of refusals that no gate has.
const (
	CodeWorkflowNotFound     = "workflow_not_found"
	CodeWorkflowNotAvailable = "workflow_not_available"
	CodeWorkflowConflict     = "workflow_conflict"
	CodeDeviceNotFound       = "device_not_found"
	CodeInventoryOnly        = "device_inventory_only"
	CodeDuplicateDevice      = "duplicate_device"
	CodeTooFewDevices        = "too_few_devices"
	CodeTooManyDevices       = "too_many_devices"
	CodeMixedSite            = "mixed_site"
	CodeMixedResourceClass   = "mixed_resource_class"
	CodeMixedRack            = "mixed_rack"
	CodeParameterInvalid     = "parameter_invalid"
	CodeBlastCapExceeded     = "blast_cap_exceeded"
	CodeBreakerOpen          = "breaker_open"
	CodeScopeMissing         = "scope_missing"
	CodeIdempotencyKeyReused = "idempotency_key_reused"
	CodeJobNotFound          = "job_not_found"
	CodeJobTerminal          = "job_terminal"
	CodeBreakerNotFound      = "breaker_not_found"
	CodeReasonMissing        = "reason_missing"
	CodeBusy                 = "busy" // the same again may succeed
)

// Verdict is what is said of one device of a request.
type Verdict struct {
	Ref      Ref
	ID       int64 // 0: not found
	Name     string
	Site     string
	Refusals []Refusal
}

// Report says whether a request may be, and every reason why not.
type Report struct {
	Workflow      string
	Available     bool // this server runs the workflow
	BundleVersion string
	At            time.Time
	Parameters    map[string]any // with defaults; nil where they are refused
	Refusals      []Refusal      // of the request as a whole
	Devices       []Verdict      // in the order of the request
}

// Admitted reports whether nothing was refused.
func (r *Report) Admitted() bool {
	for i := range r.Devices {
		if len(r.Devices[i].Refusals) > 0 {
			return false
		}
	}
	return len(r.Refusals) == 0
}

// Codes lists the codes of every refusal once, those of the whole first.
func (r *Report) Codes() []string {
	var codes []string
	seen := map[string]bool{}
	add := func(refusals []Refusal) {
		for i := range refusals {
			if code := refusals[i].Code; !seen[code] {
				seen[code] = true
				codes = append(codes, code)
			}
		}
	}
	add(r.Refusals)
	for i := range r.Devices {
		add(r.Devices[i].Refusals)
	}
	return codes
}

func (r *Report) refuse(code, format string, args ...any) *Refusal {
	r.Refusals = append(r.Refusals, Refusal{Code: code, Message: fmt.Sprintf(format, args...)})
	return &r.Refusals[len(r.Refusals)-1]
}

func (v *Verdict) refuse(code, format string, args ...any) *Refusal {
	v.Refusals = append(v.Refusals, Refusal{Code: code, Message: fmt.Sprintf(format, args...)})
	return &v.Refusals[len(v.Refusals)-1]
}

// RefusedError is a refused submission. Nothing was stored.
type RefusedError struct{ Report Report }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is refused: %s", e.Report.Workflow, strings.Join(e.Report.Codes(), ", "))
}

// Has reports whether a code is among the refusals.
func (e *RefusedError) Has(code string) bool {
	for _, c := range e.Report.Codes() {
		if c == code {
			return true
		}
	}
	return false
}

// Error is a refused act with its code, for machines; nothing was changed.
type Error struct {
	Code    string
	Message string // what to do about it
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Is makes errors.Is tell codes apart.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code && (other.Message == "" || other.Message == e.Message)
}

// Submitted is an accepted submission.
type Submitted struct {
	Job      fleet.Job
	Repeated bool // an earlier submission with the same key made it
}
