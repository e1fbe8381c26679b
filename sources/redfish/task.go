package redfish

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// TaskMode is how the end of an update is learnt.
type TaskMode string

// Ways to learn of an update's end.
const (
	ByMonitor TaskMode = "monitor"      // the answer's Location is asked
	ByTask    TaskMode = "task"         // the Task that the answer named is asked
	ByVersion TaskMode = "version_poll" // nothing was named: the versions tell
)

// Task is an update under way.
type Task struct {
	Mode    TaskMode
	URI     string // of the monitor or the task, a path at the BMC
	Started time.Time
	Wait    time.Duration // that the BMC asked for before the first look
}

// Stage is how far a task is.
type Stage string

// Stages of a task.
const (
	StageQueued    Stage = "queued" // accepted, not begun: nothing may be reset meanwhile
	StageRunning   Stage = "running"
	StageSucceeded Stage = "succeeded" // so the BMC says: the versions decide
	StageFailed    Stage = "failed"
	StageGone      Stage = "gone" // the BMC knows the task no more, as after its own restart: the versions decide
)

// Progress is one look at a task.
type Progress struct {
	URI     string
	Stage   Stage
	State   string // as the BMC says it
	Percent int    // -1 where it does not say
	Text    string // of its last message
	Wait    time.Duration
	At      time.Time
}

// task reads what an accepted update named to be asked for.
func (b *bmc) task(header http.Header, body document, at time.Time) Task {
	t := Task{Mode: ByVersion, Started: at, Wait: sources.RetryAfter(header, at)}
	if path, err := b.path(header.Get("Location")); err == nil {
		t.Mode, t.URI = ByMonitor, path
		return t
	}
	for _, uri := range []string{body.text("TaskMonitor"), body.text("@odata.id")} {
		path, err := b.path(uri)
		if err == nil && (body.text("TaskState") != "" || strings.Contains(path, "/Task")) {
			t.Mode, t.URI = ByTask, path
			if uri == body.text("TaskMonitor") {
				t.Mode = ByMonitor
			}
			return t
		}
	}
	return t
}

// TaskProgress looks at a task once. An error is that nothing could be seen:
// BMCs restart in the middle of their own updates.
func (c *Client) TaskProgress(ctx context.Context, target Target, task Task) (Progress, error) {
	op := "look at the update of " + target.Name
	if task.Mode == ByVersion {
		return Progress{Stage: StageGone, Percent: -1, At: c.clock()}, nil
	}
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return Progress{}, fault
	}
	defer b.close()
	a, err := b.request(ctx, task.URI)
	if err != nil {
		return Progress{}, sources.Failure(op, err)
	}
	refused := a.refusal(false)
	b.learn(task.URI, refused)
	p := Progress{URI: task.URI, Percent: -1, At: a.at, Wait: sources.RetryAfter(a.header, a.at)}
	switch {
	case refused == nil && a.doc.text("TaskState")+a.doc.text("JobState") != "":
		p.read(a.doc)
	case refused == nil && a.status == http.StatusAccepted:
		p.Stage = StageRunning
	case refused == nil: // a monitor ends with the answer of the operation itself
		p.Stage = StageSucceeded
	case refused.Class == ClassMissing:
		p.Stage = StageGone
	case refused.Class.kind() == sources.KindTransient || refused.Class == ClassCredential:
		return Progress{}, c.failure(op, a, refused)
	default:
		p.Stage, p.Text = StageFailed, refused.Error()
	}
	return p, nil
}

var (
	queued  = []string{"New", "Pending", "Scheduled", "Suspended", "Downloaded", "ReadyForExecution", "Waiting"}
	running = []string{"Starting", "Running", "Service", "Stopping", "Interrupted", "Cancelling", "Downloading", "Continue", "UserIntervention"}
)

// read judges a Task by its state and its status: one that completed with
// anything but OK failed.
func (p *Progress) read(d document) {
	if p.State = d.text("TaskState"); p.State == "" {
		p.State = d.text("JobState")
	}
	if percent, known := d.number("PercentComplete"); known {
		p.Percent = min(max(percent, 0), 100)
	}
	for _, m := range d.objects("Messages") {
		if text := m.text("Message"); text != "" {
			p.Text = text
		} else if id := m.text("MessageId"); id != "" {
			p.Text = id
		}
	}
	if p.Text == "" {
		p.Text = d.text("Message")
	}
	status := d.text("TaskStatus")
	switch {
	case p.State == "Completed" && (status == "" || strings.EqualFold(status, "OK")):
		p.Stage = StageSucceeded
	case slices.Contains(queued, p.State) || strings.Contains(strings.ToLower(p.Text), "lifecycle controller in use"):
		p.Stage = StageQueued
	case slices.Contains(running, p.State):
		p.Stage = StageRunning
	default:
		p.Stage = StageFailed
	}
}

// Updates lists the tasks of a BMC that have not ended.
func (c *Client) Updates(ctx context.Context, target Target) ([]Progress, error) {
	op := "list the tasks of " + target.Name
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return nil, fault
	}
	defer b.close()
	if err := b.root(ctx); err != nil {
		return nil, c.failure(op, nil, err)
	}
	service := b.services.link("Tasks")
	if service == "" {
		service = rootPath + "TaskService"
	}
	members, err := b.members(ctx, strings.TrimRight(service, "/")+"/Tasks", nil)
	if ClassOf(err) == ClassMissing {
		return nil, nil
	}
	if err != nil {
		return nil, c.failure(op, nil, err)
	}
	var found []Progress
	for _, m := range members {
		if m.err != nil {
			if ClassOf(m.err) == ClassMissing {
				continue // it ended meanwhile
			}
			return nil, c.failure(op, nil, m.err)
		}
		p := Progress{URI: m.uri, Percent: -1, At: c.clock()}
		if p.read(m.doc); p.Stage == StageQueued || p.Stage == StageRunning {
			found = append(found, p)
		}
	}
	return found, nil
}
