package fleet

import (
	"fmt"
	"time"
)

// Job is one submission of a workflow, as the jobs table holds it.
type Job struct {
	ID         int64
	SiteID     int64
	Workflow   string
	Contention string // exclusive, shared, none
	Disruptive bool
	Status     JobStatus
	Parameters map[string]any // with defaults, and what the server stamped of the site
	Reason     string

	BundleVersion string // that admitted it
	RequestedBy   string

	CreatedAt         time.Time
	UpdatedAt         time.Time
	StartedAt         time.Time
	FinishedAt        time.Time
	CancelRequestedAt time.Time // zero: nobody asked
	CancelRequestedBy string
	CancelReason      string
}

// Holder names a job in locks and executions.
func (j *Job) Holder() string { return JobHolder(j.ID) }

// JobHolder names a job in locks and executions.
func JobHolder(id int64) string { return fmt.Sprintf("job/%d", id) }

// JobDevice is one device of one job.
type JobDevice struct {
	JobID          int64
	DeviceID       int64
	Status         JobDeviceStatus
	Phase          string
	Progress       int // percent
	FailureCode    string
	FailureMessage string
	Stamped        map[string]any // facts of the device at submission
	StartedAt      time.Time
	FinishedAt     time.Time
}

// JobStatus is the status of a job as a whole.
type JobStatus string

// The statuses of a job. No writer of ours says superseded.
const (
	JobPending               JobStatus = "pending"
	JobRunning               JobStatus = "running"
	JobSucceeded             JobStatus = "succeeded"
	JobPartiallyFailed       JobStatus = "partially_failed"
	JobFailed                JobStatus = "failed"
	JobTimedOut              JobStatus = "timed_out"
	JobCancellationRequested JobStatus = "cancellation_requested"
	JobCancelled             JobStatus = "cancelled"
	JobTerminated            JobStatus = "terminated"
	JobSuperseded            JobStatus = "superseded"
)

// JobStatuses lists every status of a job in the order of a job's life.
func JobStatuses() []JobStatus {
	return []JobStatus{
		JobPending, JobRunning, JobCancellationRequested, JobSucceeded, JobPartiallyFailed, JobFailed, JobTimedOut, JobCancelled, JobTerminated, JobSuperseded,
	}
}

// Ended reports whether the status never changes again.
func (s JobStatus) Ended() bool {
	switch s {
	case JobPending, JobRunning, JobCancellationRequested:
		return false
	}
	return true
}

// JobDeviceStatus is the status of one device of a job; "" until its work
// starts.
type JobDeviceStatus string

// The statuses of a device of a job.
const (
	DeviceWaiting    JobDeviceStatus = ""
	DeviceRunning    JobDeviceStatus = "running"
	DeviceSucceeded  JobDeviceStatus = "succeeded"
	DeviceFailed     JobDeviceStatus = "failed"
	DeviceTimedOut   JobDeviceStatus = "timed_out"
	DeviceCancelled  JobDeviceStatus = "cancelled"
	DeviceTerminated JobDeviceStatus = "terminated"
	DeviceSuperseded JobDeviceStatus = "superseded"
)

// Ended reports whether the status never changes again.
func (s JobDeviceStatus) Ended() bool { return s != DeviceWaiting && s != DeviceRunning }

// AggregateJob gives the status of a job from how many of its devices have which
// status, and whether somebody asked to cancel it. A job without devices does
// not exist; it counts as failed.
func AggregateJob(devices map[JobDeviceStatus]int, cancelRequested bool) JobStatus {
	var open, all int
	for status, n := range devices {
		all += n
		if !status.Ended() {
			open += n
		}
	}
	switch {
	case open > 0 && cancelRequested:
		return JobCancellationRequested
	case all > 0 && devices[DeviceWaiting] == all:
		return JobPending
	case open > 0:
		return JobRunning
	}
	for status, n := range devices {
		if n == all && n > 0 {
			return JobStatus(status)
		}
	}
	switch {
	case cancelRequested && devices[DeviceCancelled] > 0:
		return JobCancelled
	case devices[DeviceSucceeded] > 0:
		return JobPartiallyFailed
	}
	return JobFailed
}

// DeviceLock says that somebody's work holds a device.
type DeviceLock struct {
	DeviceID   int64
	Holder     string // job/<id> or task/<id>
	Mode       string // exclusive, shared
	Work       string // the workflow or operation
	Disruptive bool
	Held       bool // named by a parameter: the holder does not run on it
	Since      time.Time
}

// Execution is one workflow of Temporal that rows of ours speak of.
type Execution struct {
	WorkflowID string
	Kind       ExecutionKind
	Holder     string
	JobID      int64  // 0: of a task
	TaskID     int64  // 0: of a job
	DeviceID   int64  // 0: of the whole job or task
	Parent     string // of a child
	Workflow   string
	SiteID     int64
	Want       ExecutionWant
	State      ExecutionState

	Tries        int
	Trouble      string // why the last try to send it failed
	DueAt        time.Time
	DispatchBy   time.Time
	SentAt       time.Time
	CancelSentAt time.Time
	MissingSince time.Time
	ClosedAt     time.Time
	CreatedAt    time.Time
}

// ExecutionKind says what an execution works on.
type ExecutionKind string

// The kinds of executions.
const (
	ExecutionDevice ExecutionKind = "device" // one device of a job
	ExecutionBatch  ExecutionKind = "batch"  // all devices of a job
	ExecutionChild  ExecutionKind = "child"  // started by another
)

// ExecutionWant is what an execution should do.
type ExecutionWant string

// What an execution should do.
const (
	WantRun    ExecutionWant = "run"
	WantCancel ExecutionWant = "cancel"
)

// ExecutionState is how far an execution is known to be.
type ExecutionState string

// The states of an execution. A closed one does nothing more.
const (
	ExecutionUnsent ExecutionState = "unsent"
	ExecutionSent   ExecutionState = "sent"
	ExecutionClosed ExecutionState = "closed"
)

// Breaker is a circuit breaker that tripped, or did once. Zero fields of its
// scope are any.
type Breaker struct {
	Name        string // the policy's, or <policy>@<scope>
	Policy      string
	Workflow    string
	SiteID      int64
	RackID      int64
	DeviceClass string
	TrippedAt   time.Time // zero: closed
	Reason      string
	Failed      int
	Runs        int
	ResetAt     time.Time
	ResetBy     string
	ResetReason string
}
