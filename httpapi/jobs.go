package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// jobView is a job as it is shown.
type jobView struct {
	ID                int64           `json:"id"`
	Site              string          `json:"site"`
	Workflow          string          `json:"workflow"`
	Status            fleet.JobStatus `json:"status"`
	Ended             bool            `json:"ended"`
	Contention        string          `json:"contention"`
	Disruptive        bool            `json:"disruptive"`
	Parameters        map[string]any  `json:"parameters"`
	Reason            *string         `json:"reason"`
	BundleVersion     string          `json:"bundle_version"`
	RequestedBy       string          `json:"requested_by"`
	CreatedAt         time.Time       `json:"created_at"`
	UpdatedAt         time.Time       `json:"updated_at"`
	StartedAt         *time.Time      `json:"started_at"`
	FinishedAt        *time.Time      `json:"finished_at"`
	CancelRequestedAt *time.Time      `json:"cancel_requested_at"`
	CancelRequestedBy *string         `json:"cancel_requested_by"`
	CancelReason      *string         `json:"cancel_reason"`
	Devices           deviceCounts    `json:"devices"`
	Waiting           *waitingView    `json:"waiting"`
	Working           int             `json:"working"` // executions under way
}

// deviceCounts counts the devices of a job; those whose work has not started
// are waiting.
type deviceCounts struct {
	Total    int            `json:"total"`
	ByStatus map[string]int `json:"by_status"`
}

// waitingView says why work of a job has not gone to Temporal yet.
type waitingView struct {
	Units   int     `json:"units"`
	Trouble *string `json:"trouble"` // why the last try failed
	Breaker *string `json:"breaker"` // the open one that keeps them back
}

const statusWaiting = "waiting"

func viewJob(j *store.JobRow) jobView {
	v := jobView{
		ID: j.ID, Site: j.Site, Workflow: j.Workflow, Status: j.Status, Ended: j.Status.Ended(), Contention: j.Contention, Disruptive: j.Disruptive,
		Parameters: j.Parameters, Reason: orNil(j.Reason), BundleVersion: j.BundleVersion, RequestedBy: j.RequestedBy,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, StartedAt: instant(j.StartedAt), FinishedAt: instant(j.FinishedAt),
		CancelRequestedAt: instant(j.CancelRequestedAt), CancelRequestedBy: orNil(j.CancelRequestedBy), CancelReason: orNil(j.CancelReason),
		Devices: deviceCounts{ByStatus: map[string]int{}}, Working: j.Live,
	}
	if v.Parameters == nil {
		v.Parameters = map[string]any{}
	}
	for status, n := range j.Devices {
		v.Devices.Total += n
		v.Devices.ByStatus[shownStatus(status)] += n
	}
	if j.Unsent > 0 {
		v.Waiting = &waitingView{Units: j.Unsent, Trouble: orNil(j.Trouble), Breaker: orNil(j.Barred)}
	}
	return v
}

func shownStatus(s fleet.JobDeviceStatus) string {
	if s == fleet.DeviceWaiting {
		return statusWaiting
	}
	return string(s)
}

// jobDeviceView is one device of a job.
type jobDeviceView struct {
	DeviceID   int64          `json:"device_id"`
	Name       string         `json:"name"`
	Status     string         `json:"status"`
	Phase      *string        `json:"phase"`
	Progress   int            `json:"progress"` // percent
	Failure    *failureView   `json:"failure"`
	Stamped    map[string]any `json:"stamped"`
	StartedAt  *time.Time     `json:"started_at"`
	FinishedAt *time.Time     `json:"finished_at"`
}

// failureView says why a device failed and, where the policy knows the code,
// whose it is and what to do.
type failureView struct {
	Code      string  `json:"code"`
	Message   *string `json:"message"`
	Owner     *string `json:"owner"`
	Meaning   *string `json:"meaning"`
	Hint      *string `json:"hint"`
	Runbook   *string `json:"runbook"`
	Retryable *bool   `json:"retryable"`
}

func viewJobDevice(d *store.JobDeviceRow, b *engine.Bundle) jobDeviceView {
	v := jobDeviceView{
		DeviceID: d.DeviceID, Name: d.Name, Status: shownStatus(d.Status), Phase: orNil(d.Phase), Progress: d.Progress,
		Stamped: d.Stamped, StartedAt: instant(d.StartedAt), FinishedAt: instant(d.FinishedAt),
	}
	if v.Stamped == nil {
		v.Stamped = map[string]any{}
	}
	if d.FailureCode != "" {
		v.Failure = failureOf(d.FailureCode, d.FailureMessage, b)
	}
	return v
}

func failureOf(code, message string, b *engine.Bundle) *failureView {
	v := &failureView{Code: code, Message: orNil(message)}
	if b == nil {
		return v
	}
	if f, known := b.Failure(code); known {
		v.Owner, v.Meaning, v.Hint, v.Runbook, v.Retryable = orNil(f.Owner), orNil(f.Meaning), orNil(f.Hint), orNil(f.Runbook), &f.Retryable
	}
	return v
}

func jobNotFound() *problem {
	return refuse(http.StatusNotFound, "job_not_found", "there is no such job: list them at /api/v1/jobs/")
}

func (s *Server) listJobs(r *request) (*reply, error) {
	page, err := s.jobPage(r)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// jobPage reads the page of jobs that a request asks for, the newest first.
func (s *Server) jobPage(r *request) (*list[jobView], error) {
	q := r.query
	limit := r.limit()
	before, err := r.afterID()
	if err != nil {
		return nil, err
	}
	rows, err := store.ListJobs(r.Context(), s.DB, store.JobFilter{
		SiteNames: r.principal.Sites, Sites: q["site"], Workflows: q["workflow"], Statuses: q["status"], Devices: ids(q["device"]),
		RequestedBy: q["requested_by"], Open: flag(q, "open"), Before: before, Limit: limit + 1,
	})
	if err != nil {
		return nil, err
	}
	page := &list[jobView]{Items: []jobView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].ID))
	}
	for i := range rows {
		page.Items = append(page.Items, viewJob(&rows[i]))
	}
	return page, nil
}

func (s *Server) showJob(r *request) (*reply, error) {
	job, err := s.job(r)
	if err != nil {
		return nil, err
	}
	return tagged(viewJob(&job)), nil
}

// job reads the job that the path names, if it exists for the caller.
func (s *Server) job(r *request) (store.JobRow, error) {
	id, err := strconv.ParseInt(r.vars["job"], 10, 64)
	if err != nil {
		return store.JobRow{}, jobNotFound()
	}
	return s.jobByID(r, id)
}

func (s *Server) jobByID(r *request, id int64) (store.JobRow, error) {
	rows, err := store.ListJobs(r.Context(), s.DB, store.JobFilter{SiteNames: r.principal.Sites, IDs: []int64{id}, Limit: 1})
	if err != nil {
		return store.JobRow{}, err
	}
	if len(rows) == 0 {
		return store.JobRow{}, jobNotFound()
	}
	return rows[0], nil
}

func (s *Server) listJobDevices(r *request) (*reply, error) {
	job, err := s.job(r)
	if err != nil {
		return nil, err
	}
	after, err := r.afterID()
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	rows, err := store.JobDevices(r.Context(), s.DB, job.ID, after, limit+1)
	if err != nil {
		return nil, err
	}
	page := &list[jobDeviceView]{}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].DeviceID))
	}
	page.Items = viewJobDevices(rows, s.Policies.Current())
	return ok(page), nil
}

func viewJobDevices(rows []store.JobDeviceRow, b *engine.Bundle) []jobDeviceView {
	views := make([]jobDeviceView, len(rows))
	for i := range rows {
		views[i] = viewJobDevice(&rows[i], b)
	}
	return views
}
