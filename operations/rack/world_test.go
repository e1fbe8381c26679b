package rack

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/workflows/act"
)

var shipped = sync.OnceValues(func() (*rule.Validator, error) { return rule.New(muster.Bundle()) })

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ruleOf reads the steps of a rule.
func ruleOf(t testing.TB, kind, operation, text string) rule.Rule {
	t.Helper()
	v, err := shipped()
	must(t, err)
	c, err := v.Steps(rule.Document{Data: []byte(text), YAML: true}, rule.Head{Name: "x", OperationType: kind, Operation: operation})
	must(t, err)
	return c.Rules[0]
}

// seedRule reads an example of the format.
func seedRule(t testing.TB, files fs.FS, name, operation string) rule.Rule {
	t.Helper()
	text, err := fs.ReadFile(files, name)
	must(t, err)
	return ruleOf(t, "power_control", operation, string(text))
}

// tray is a component of the fake rack.
type tray struct {
	report.Part
	power    string
	marker   string
	versions map[string]string
	task     string // of an update under way
	status   string // of its decommissioning
	unread   error  // what a look ends with

	fail    func(operation string) error // before an effect
	after   func(operation string) error // behind it: the answer is lost
	deaf    bool                         // takes commands, and nothing comes of them
	looks   []string                     // powers that the next looks give, instead
	updates []component.Progress         // that the next looks at an update give; then it is done
}

// hall is a fake rack: its managers, and the rows of a task that works on it.
type hall struct {
	mu      sync.Mutex
	trays   map[int64]*tray
	order   []report.Part
	effects []string
	takes   time.Duration // a command
	flying  map[string]int
	most    map[string]int // in flight, by type

	begun      report.Begun
	entries    map[string]report.Entry
	lines      []string // of entries that ended and of what a task does, in their order
	components map[int64]report.Component
	endings    []report.Ending
	closed     []string
	children   []string
	over       int
	looked     int
}

// newHall makes a rack of so many components; all are of one power.
func newHall(r rule.Rule, compute, switches, shelves int, power string) *hall {
	h := &hall{trays: map[int64]*tray{}, flying: map[string]int{}, most: map[string]int{}, entries: map[string]report.Entry{}, components: map[int64]report.Component{}}
	add := func(kind, letter string, n int, first int64) {
		for i := range n {
			p := report.Part{Device: first + int64(i), Name: fmt.Sprintf("%s%02d", letter, i+1), Type: kind}
			h.trays[p.Device] = &tray{Part: p, power: power, status: "Ready", versions: map[string]string{"BMC": "1"}}
			h.order = append(h.order, p)
		}
	}
	add("compute", "c", compute, 100)
	add("nvswitch", "n", switches, 200)
	add("powershelf", "p", shelves, 300)
	parts := slices.Clone(h.order)
	slices.Reverse(parts) // the order is the workflow's to make
	h.begun = report.Begun{Runs: true, Task: 7, Site: "lab", OperationType: r.OperationType, Operation: r.Operation, Rule: r, Parts: parts}
	return h
}

func (h *hall) tray(name string) *tray {
	for _, t := range h.trays {
		if t.Name == name {
			return t
		}
	}
	panic("no " + name)
}

func (h *hall) effect(format string, args ...any) {
	h.effects = append(h.effects, fmt.Sprintf(format, args...))
}

// fly notes a component that an act is in flight with, for a moment.
func (h *hall) fly(p component.Part) (land func()) {
	h.mu.Lock()
	h.flying[p.Type]++
	h.most[p.Type] = max(h.most[p.Type], h.flying[p.Type])
	h.mu.Unlock()
	time.Sleep(max(h.takes, 2*time.Millisecond)) // long enough to be beside another
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.flying[p.Type]--
	}
}

func (h *hall) managers() map[string]component.Manager {
	m := component.Manager{Power: h, Reachability: h, Firmware: h, Decommission: h}
	return map[string]component.Manager{"compute": m, "nvswitch": m, "powershelf": m}
}

func (h *hall) find(_ context.Context, p report.Part) (component.Part, error) {
	return component.Part{Device: p.Device, Name: p.Name, Type: p.Type}, nil
}

func (h *hall) State(_ context.Context, p component.Part) (component.State, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked++
	t := h.trays[p.Device]
	if t.unread != nil {
		return component.State{}, t.unread
	}
	if len(t.looks) > 0 {
		var now string
		now, t.looks = t.looks[0], t.looks[1:]
		return component.State{Power: now}, nil
	}
	return component.State{Power: t.power}, nil
}

// act has an effect on a tray, unless it fails before; it may fail behind it.
func (h *hall) act(p component.Part, operation string, do func(*tray)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.trays[p.Device]
	if t.fail != nil {
		if err := t.fail(operation); err != nil {
			return err
		}
	}
	h.effect("%s %s", operation, t.Name)
	if !t.deaf {
		do(t)
	}
	if t.after != nil {
		return t.after(operation)
	}
	return nil
}

func (h *hall) Switch(_ context.Context, p component.Part, s component.Switch) (component.Switched, error) {
	defer h.fly(p)()
	h.mu.Lock()
	now := h.trays[p.Device].power
	h.mu.Unlock()
	if now == s.Leads() {
		return component.Switched{State: now}, nil
	}
	err := h.act(p, s.Operation, func(t *tray) { t.power = s.Leads() })
	h.mu.Lock()
	defer h.mu.Unlock()
	return component.Switched{Sent: s.Operation, State: h.trays[p.Device].power}, err
}

func (h *hall) Marker(_ context.Context, p component.Part) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.trays[p.Device].marker, nil
}

func (h *hall) Reset(_ context.Context, p component.Part, _ bool) (component.Switched, error) {
	err := h.act(p, "warm_reset", func(t *tray) {
		if t.marker != "" {
			t.marker += "'"
		}
	})
	return component.Switched{Sent: "GracefulRestart", State: component.On}, err
}

func (h *hall) BeforeUpdate(_ context.Context, p component.Part, i component.Image) (component.Before, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.trays[p.Device]
	b := component.Before{There: h.differs(t, i) == ""}
	if t.task != "" {
		b.Tasks = []string{t.task}
		if t.task == "other" { // it ends between two looks
			t.task = ""
		}
	}
	return b, nil
}

func (h *hall) differs(t *tray, i component.Image) string {
	for name, want := range i.Versions {
		if t.versions[name] != want {
			return fmt.Sprintf("%s is %q", name, t.versions[name])
		}
	}
	return ""
}

func (h *hall) StartUpdate(_ context.Context, p component.Part, i component.Image) (component.Update, error) {
	err := h.act(p, "update", func(t *tray) {
		t.task = "ours"
		for name, version := range i.Versions {
			t.versions[name] = version
		}
	})
	return component.Update{Task: "task", URI: "ours"}, err
}

func (h *hall) FindUpdate(_ context.Context, p component.Part, _ component.Image, before component.Before) (component.Update, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.trays[p.Device]; t.task != "" && !slices.Contains(before.Tasks, t.task) {
		return component.Update{Task: "task", URI: t.task}, nil
	}
	return component.Update{}, act.Final(codes.FirmwareStartUnknown, "nothing is there")
}

func (h *hall) LookAtUpdate(_ context.Context, p component.Part, _ component.Image, _ component.Update) (component.Progress, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.trays[p.Device]
	if len(t.updates) == 0 {
		t.task = ""
		return component.Progress{Done: true, State: "Completed"}, nil
	}
	var now component.Progress
	now, t.updates = t.updates[0], t.updates[1:]
	if now.State == "silent" {
		return now, act.Retry(codes.BMCUnreachable, "silent")
	}
	return now, nil
}

func (h *hall) Differs(_ context.Context, p component.Part, i component.Image) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.differs(h.trays[p.Device], i), nil
}

func (h *hall) Decommission(_ context.Context, p component.Part, _ string) error {
	return h.act(p, "decommission", func(t *tray) {
		if t.status == "Ready" {
			t.status = "Decommissioned"
		}
	})
}

func (h *hall) Decommissioning(_ context.Context, p component.Part) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked++
	t := h.trays[p.Device]
	return t.status, t.unread
}

// suite makes a Temporal of the test suite for the rack.
func (h *hall) suite(t *testing.T) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := s.NewTestWorkflowEnvironment()
	env.SetTestTimeout(time.Minute)
	RegisterMain(env, "", h)
	Register(env, h.managers(), h.find)
	return env
}

// run runs the task to its end.
func (h *hall) run(t *testing.T) {
	t.Helper()
	h.runIn(t, h.suite(t))
}

func (h *hall) runIn(t *testing.T, env *testsuite.TestWorkflowEnvironment) {
	t.Helper()
	env.ExecuteWorkflow(TaskWorkflow)
	if !env.IsWorkflowCompleted() {
		t.Fatal("it has not ended")
	}
	must(t, env.GetWorkflowError())
}

func (h *hall) ends(t testing.TB, want string) {
	t.Helper()
	if len(h.endings) != 1 {
		t.Fatalf("it ended %d times", len(h.endings))
	}
	e := h.endings[0]
	if got := strings.TrimSpace(string(e.Status) + " " + string(e.Code)); got != want {
		t.Errorf("it ended %s (%s), want %s", got, e.Message, want)
	}
}

// statuses counts the components by type and status.
func (h *hall) statuses() string {
	var all []string
	for _, p := range h.order {
		c := h.components[p.Device]
		all = append(all, p.Type+" "+string(c.Status))
	}
	var told []string
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n] == all[i] {
			n++
		}
		told = append(told, fmt.Sprintf("%d %s", n, strings.TrimSpace(all[i])))
		i += n
	}
	return strings.Join(told, ", ")
}
