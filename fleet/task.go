package fleet

import (
	"encoding/json"
	"fmt"
	"time"
)

// OperationRule is a rule of an operator's, as the table holds it.
type OperationRule struct {
	ID            int64
	Name          string
	Description   string
	OperationType string
	Operation     string
	IsDefault     bool
	Rule          json.RawMessage // version and steps, in the normal form
	Revision      int
	CreatedAt     time.Time
	UpdatedAt     time.Time
	UpdatedBy     string
}

// Task is an operation on one rack, as the tasks table holds it.
type Task struct {
	ID             int64
	SiteID         int64
	RackID         int64
	OperationType  string
	Operation      string
	Rule           json.RawMessage // as it was resolved
	RuleSource     string          // explicit, association, default, builtin
	RuleID         int64           // 0: built in
	RuleRevision   int
	Identity       []byte // equal ones ask for the same
	Disruptive     bool
	Status         TaskStatus
	Conflict       string // refuse, queue
	QueueUntil     time.Time
	Reason         string
	OverrideReason string // "": nothing was overridden
	Firmware       json.RawMessage
	Excluded       []int64
	Worst          time.Duration // the longest that it may take
	BundleVersion  string        // that admitted it
	RequestedBy    string
	FailureCode    string
	FailureMessage string

	CreatedAt         time.Time
	UpdatedAt         time.Time
	AdmittedAt        time.Time // zero: it waits, or never was
	StartedAt         time.Time
	FinishedAt        time.Time
	OverBudgetAt      time.Time // zero: it is within Worst
	CancelRequestedAt time.Time
	CancelRequestedBy string
	CancelReason      string
}

// Holder names a task in locks and executions.
func (t *Task) Holder() string { return TaskHolder(t.ID) }

// TaskHolder names a task in locks and executions.
func TaskHolder(id int64) string { return fmt.Sprintf("task/%d", id) }

// OperationWork is the name by which locks, caps and breakers know an operation.
func OperationWork(code string) string { return "operation_" + code }

// TaskStatus is the status of a task: that of a job, or one of a queue.
type TaskStatus string

// The statuses of a task.
const (
	TaskQueued                TaskStatus = "queued" // another holds a device: it waits and holds nothing
	TaskExpired               TaskStatus = "expired"
	TaskPending               TaskStatus = "pending"
	TaskRunning               TaskStatus = "running"
	TaskCancellationRequested TaskStatus = "cancellation_requested"
	TaskSucceeded             TaskStatus = "succeeded"
	TaskPartiallyFailed       TaskStatus = "partially_failed"
	TaskFailed                TaskStatus = "failed"
	TaskTimedOut              TaskStatus = "timed_out"
	TaskCancelled             TaskStatus = "cancelled"
	TaskTerminated            TaskStatus = "terminated"
)

// TaskStatuses lists every status of a task in the order of a task's life.
func TaskStatuses() []TaskStatus {
	return []TaskStatus{
		TaskQueued, TaskExpired, TaskPending, TaskRunning, TaskCancellationRequested, TaskSucceeded, TaskPartiallyFailed, TaskFailed, TaskTimedOut, TaskCancelled, TaskTerminated,
	}
}

// Ended reports whether the status never changes again.
func (s TaskStatus) Ended() bool {
	switch s {
	case TaskQueued, TaskPending, TaskRunning, TaskCancellationRequested:
		return false
	}
	return true
}

// TaskComponent is one component that a task is for.
type TaskComponent struct {
	TaskID         int64
	DeviceID       int64
	Type           string
	Status         JobDeviceStatus
	Phase          string
	FailureCode    string
	FailureMessage string
	LastState      string // that was seen of it
	StartedAt      time.Time
	FinishedAt     time.Time
}

// TaskEntry is one row of a task's report.
type TaskEntry struct {
	ID            int64
	TaskID        int64
	Stage         int
	ComponentType string
	Phase         string // pre, main, post
	Index         int    // of the action within the phase
	Action        string
	DeviceID      int64       // 0: of the whole phase
	Status        EntryStatus // "": it never started
	Attempts      int
	Code          string
	Message       string
	StartedAt     time.Time
	FinishedAt    time.Time
}

// EntryStatus is how far one row of a report is.
type EntryStatus string

// The statuses of an entry.
const (
	EntryPlanned    EntryStatus = ""
	EntryRunning    EntryStatus = "running"
	EntrySucceeded  EntryStatus = "succeeded"
	EntryFailed     EntryStatus = "failed"
	EntrySkipped    EntryStatus = "skipped" // the rack has no component of the type
	EntryTimedOut   EntryStatus = "timed_out"
	EntryCancelled  EntryStatus = "cancelled"
	EntryTerminated EntryStatus = "terminated"
)

// Ended reports whether the status never changes again.
func (s EntryStatus) Ended() bool { return s != EntryPlanned && s != EntryRunning }

// ExecutionTask is an execution of a whole task.
const ExecutionTask ExecutionKind = "task"

// TaskWorkflow is the type by which Temporal knows the workflow of a task.
const TaskWorkflow = "rack_task"
