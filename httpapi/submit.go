package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/jobs"
)

// because is the body of an act that only wants a reason.
type because struct {
	Reason string `json:"reason"`
}

// submitJob makes a job. A caller who asks twice under one key gets the first.
func (s *Server) submitJob(r *request) (*reply, error) {
	q, asked, err := r.asked()
	if err != nil {
		return nil, err
	}
	submitted, err := s.Jobs.Submit(r.Context(), jobs.Submission{
		Request: asked, Reason: strings.TrimSpace(q.Reason), Force: r.principal.May(JobForce), By: r.caller(),
		IdempotencyKey: r.Header.Get("Idempotency-Key"),
	})
	if err != nil {
		return nil, err
	}
	row, err := s.jobByID(r, submitted.Job.ID)
	if err != nil {
		return nil, err
	}
	answer := &reply{status: http.StatusCreated, body: viewJob(&row), location: fmt.Sprintf("%s/jobs/%d/", apiRoot, row.ID)}
	if submitted.Repeated {
		answer.status = http.StatusOK
	}
	return answer, nil
}

// cancelJob asks a job to end, and shows it as it is then.
func (s *Server) cancelJob(r *request) (*reply, error) {
	var in because
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	row, err := s.job(r)
	if err != nil {
		return nil, err
	}
	if _, err := s.Jobs.Cancel(r.Context(), row.ID, in.Reason, r.caller(), r.principal.Sites); err != nil {
		return nil, err
	}
	if row, err = s.jobByID(r, row.ID); err != nil {
		return nil, err
	}
	return &reply{status: http.StatusAccepted, body: viewJob(&row)}, nil
}

// codeNotEligible is of a submission that is refused for several reasons.
const codeNotEligible = "not_eligible"

// callersFault are the refusals that no time and no other work makes better.
var callersFault = []string{
	jobs.CodeParameterInvalid, jobs.CodeTooFewDevices, jobs.CodeTooManyDevices, jobs.CodeDuplicateDevice,
	jobs.CodeMixedSite, jobs.CodeMixedResourceClass, jobs.CodeMixedRack,
}

// statusOfJobs maps the codes of refused acts on jobs.
var statusOfJobs = map[string]int{
	jobs.CodeScopeMissing:         http.StatusForbidden,
	jobs.CodeIdempotencyKeyReused: http.StatusUnprocessableEntity,
	jobs.CodeReasonMissing:        http.StatusUnprocessableEntity,
	jobs.CodeJobNotFound:          http.StatusNotFound,
	jobs.CodeBreakerNotFound:      http.StatusNotFound,
	jobs.CodeWorkflowNotFound:     http.StatusNotFound,
	jobs.CodeDeviceNotFound:       http.StatusNotFound,
	jobs.CodeJobTerminal:          http.StatusConflict,
	jobs.CodeBusy:                 http.StatusServiceUnavailable,
}

// refusedAct is the problem of an act on jobs that was refused with one code.
func refusedAct(e *jobs.Error) *problem {
	status, known := statusOfJobs[e.Code]
	if !known {
		if status, known = statusOfOperations[e.Code]; !known {
			status = http.StatusConflict
		}
	}
	p := refuse(status, e.Code, "%s", e.Message)
	if status == http.StatusServiceUnavailable {
		p.set("Retry-After", "2")
	}
	return p
}

// refusedSubmission is the problem of a submission that was not admitted. One
// reason gives its own code, several give not_eligible; the whole report stands
// beside it.
func refusedSubmission(e *jobs.RefusedError) *problem {
	codes := e.Report.Codes()
	status, code := http.StatusConflict, codeNotEligible
	if slices.ContainsFunc(codes, func(c string) bool { return slices.Contains(callersFault, c) }) {
		status = http.StatusUnprocessableEntity
	}
	if len(codes) == 1 {
		code = codes[0]
		if known, ok := statusOfJobs[code]; ok {
			status = known
		}
	}
	p := refuse(status, code, "%s is refused: %s. `eligibility` tells every reason", e.Report.Workflow, strings.Join(codes, ", "))
	if only := onlyReason(&e.Report); only != nil {
		p.Detail = only.Message
	}
	p.Eligibility = viewReport(&e.Report, true)
	for i := range e.Report.Refusals {
		f := &e.Report.Refusals[i]
		one := fault{Code: f.Code, Detail: f.Message}
		if path, ok := strings.CutPrefix(f.Path, "parameters"); ok {
			one.Pointer = "/parameters" + strings.ReplaceAll(path, ".", "/")
		} else if f.Path != "" && slices.Contains(callersFault, f.Code) {
			one.Pointer = "/" + strings.ReplaceAll(brackets.ReplaceAllString(f.Path, ".$1"), ".", "/")
		}
		p.Errors = append(p.Errors, one)
	}
	return p
}

// onlyReason is the one refusal of a report, nil where there are several.
func onlyReason(r *jobs.Report) *jobs.Refusal {
	all := slices.Clone(r.Refusals)
	for i := range r.Devices {
		all = append(all, r.Devices[i].Refusals...)
	}
	if len(all) != 1 {
		return nil
	}
	return &all[0]
}

// jobsSay gives the problem of an error of package jobs, nil for any other one.
func jobsSay(err error) *problem {
	var act *jobs.Error
	var submission *jobs.RefusedError
	switch {
	case errors.As(err, &act):
		return refusedAct(act)
	case errors.As(err, &submission):
		return refusedSubmission(submission)
	}
	return nil
}
