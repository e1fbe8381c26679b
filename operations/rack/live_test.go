package rack

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/operations/component"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/workflows"
)

var update = flag.Bool("update", false, "write the histories that later versions replay")

const patience = 2 * time.Minute

var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(20 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// realTemporal runs a Temporal until the test ends.
func realTemporal(t testing.TB) client.Client {
	t.Helper()
	program := os.Getenv("MUSTER_TEMPORAL_BIN")
	if program == "" {
		program = "../../bin/muster-temporal"
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN: tasks run on a real Temporal only")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	cmd := exec.Command(program, "--dir", t.TempDir(), "--port", strconv.Itoa(port), "--namespace", embedded.TemporalNamespace, "--schema", embedded.TemporalSchema)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c, err := client.NewLazyClient(client.Options{HostPort: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Namespace: embedded.TemporalNamespace, Logger: quiet})
	must(t, err)
	t.Cleanup(c.Close)
	until(t, "Temporal", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: embedded.TemporalNamespace})
		return err == nil
	})
	return c
}

// live is a hall on a real Temporal.
type live struct {
	*hall
	client  client.Client
	prefix  string
	workers []worker.Worker
}

var prefixes atomic.Int64

func newLive(t testing.TB, c client.Client, h *hall) *live {
	t.Helper()
	h.begun.Task = prefixes.Add(1)
	l := &live{hall: h, client: c, prefix: fmt.Sprintf("%d/", h.begun.Task)}
	l.work(t)
	t.Cleanup(l.stop)
	return l
}

// work starts the workers of a replica.
func (l *live) work(t testing.TB) {
	t.Helper()
	main := worker.New(l.client, l.prefix+"muster", worker.Options{DisableRegistrationAliasing: true})
	RegisterMain(main, l.prefix, l.hall)
	site := worker.New(l.client, workflows.SiteQueue(l.prefix, "lab"), worker.Options{DisableRegistrationAliasing: true, DisableWorkflowWorker: true})
	Register(site, l.managers(), l.find)
	must(t, main.Start())
	must(t, site.Start())
	l.workers = []worker.Worker{main, site}
}

func (l *live) stop() {
	for _, w := range l.workers {
		w.Stop()
	}
	l.workers = nil
}

func (l *live) begin(t testing.TB, name string, in ...any) client.WorkflowRun {
	t.Helper()
	run, err := l.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: fmt.Sprintf("task/%d", l.begun.Task), TaskQueue: l.prefix + "muster"}, name, in...)
	must(t, err)
	return run
}

func ended(t testing.TB, run client.WorkflowRun, out any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	must(t, run.Get(ctx, out))
}

// history reads what happened in a run, "" the last.
func (l *live) history(t *testing.T, id, run string) *historypb.History {
	t.Helper()
	all := &historypb.History{}
	for events := l.client.GetWorkflowHistory(t.Context(), id, run, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		must(t, err)
		all.Events = append(all.Events, e)
	}
	return all
}

func replay(t *testing.T, h *historypb.History) {
	t.Helper()
	r := worker.NewWorkflowReplayer()
	registerWorkflows(r, "")
	must(t, r.ReplayWorkflowHistory(quiet, h))
}

// kept writes a history for later versions to replay.
func kept(t *testing.T, name string, h *historypb.History) {
	t.Helper()
	if !*update {
		return
	}
	text, err := protojson.MarshalOptions{Multiline: true, Indent: " "}.Marshal(h)
	must(t, err)
	text = regexp.MustCompile(`"(identity|workerInstanceKey|stickyTaskQueue)": *"[^"]*"`).ReplaceAll(text, []byte(`"$1": "a-worker"`))
	must(t, os.MkdirAll("testdata/histories", 0o755))
	must(t, os.WriteFile(filepath.Join("testdata/histories", name+".json"), text, 0o644))
}

const briskly = `steps:
- component_type: compute
  stage: 1
  max_parallel: 6
  timeout: 1m
  main_operation: {name: PowerControl}
  post_operation: [{name: VerifyPowerStatus, timeout: 30s, poll_interval: 1s, parameters: {expected_status: "off"}}]
- component_type: nvswitch
  stage: 1
  max_parallel: 3
  timeout: 1m
  main_operation: {name: PowerControl}
  post_operation: [{name: VerifyPowerStatus, timeout: 30s, poll_interval: 1s, parameters: {expected_status: "off"}}]
- component_type: powershelf
  stage: 2
  max_parallel: 1
  timeout: 1m
  pre_operation: [{name: Sleep, parameters: {duration: 1s}}]
  main_operation: {name: PowerControl}
  post_operation: [{name: VerifyPowerStatus, timeout: 30s, poll_interval: 1s, parameters: {expected_status: "off"}}]
`

func TestTasksOnARealTemporal(t *testing.T) {
	t.Parallel()
	c := realTemporal(t)
	t.Run("a rack goes down, and its histories are replayed", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "power_control", "power_off", briskly), 18, 9, 8, component.On)
		l := newLive(t, c, h)
		run := l.begin(t, TaskWorkflow)
		ended(t, run, nil)
		h.ends(t, "succeeded")
		if len(h.effects) != 35 || h.most["compute"] > 6 || h.most["nvswitch"] > 3 || h.most["powershelf"] > 1 {
			t.Errorf("%d effects, in flight %v", len(h.effects), h.most)
		}
		slices.Sort(h.children)
		slices.Sort(h.closed)
		if want := []string{run.GetID() + "/stage/1/compute", run.GetID() + "/stage/1/nvswitch", run.GetID() + "/stage/2/powershelf"}; !slices.Equal(h.children, want) || !slices.Equal(h.closed, want) {
			t.Errorf("children %v, closed %v", h.children, h.closed)
		}
		for id, name := range map[string]string{run.GetID(): "task", run.GetID() + "/stage/1/compute": "step"} {
			past := l.history(t, id, "")
			replay(t, past)
			kept(t, name, past)
			if most := 18*18 + 100; len(past.Events) > most { // of 18 trays, as doc.go says, and what the step and the task have of their own
				t.Errorf("%s: %d events, want %d at most", name, len(past.Events), most)
			}
		}
	})
	t.Run("a cancel ends what runs and begins nothing more", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "power_control", "power_off", strings.ReplaceAll(briskly, "30s", "30m")), 3, 1, 1, component.On)
		h.tray("c02").deaf = true
		l := newLive(t, c, h)
		run := l.begin(t, TaskWorkflow)
		until(t, "a look", func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return h.entries["1 compute post 0 0"].Status == report.Running && h.looked > 3
		})
		began := time.Now()
		must(t, c.CancelWorkflow(t.Context(), run.GetID(), ""))
		ended(t, run, nil)
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
		h.ends(t, "cancelled")
		if len(h.effects) != 4 || h.tray("p01").power != component.On {
			t.Errorf("effects %v", h.effects)
		}
		if last := h.closed[len(h.closed)-1]; last != run.GetID() || len(h.closed) != 3 {
			t.Errorf("closed in the order %v", h.closed)
		}
		if c := h.components[101]; c.Status != report.Cancelled || c.LastState != component.On {
			t.Errorf("c02 is left %+v", c)
		}
		past := l.history(t, run.GetID(), "")
		replay(t, past)
		kept(t, "task_cancelled", past)
	})
	t.Run("a worker that dies over a command does not repeat it", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "power_control", "force_power_off", `steps: [{component_type: compute, stage: 1, timeout: 5m, main_operation: {name: PowerControl}}]`), 2, 0, 0, component.On)
		l, release := dying(t, c, h)
		run := l.begin(t, TaskWorkflow)
		until(t, "the effect", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.effects) > 0 })
		l.die(t, release)
		ended(t, run, nil)
		h.ends(t, "succeeded")
		if slices.Sort(h.effects); !slices.Equal(h.effects, []string{"force_power_off c01", "force_power_off c02"}) {
			t.Errorf("effects %v", h.effects)
		}
	})
	t.Run("a worker that dies over a warm reset does not repeat it", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "power_control", "warm_reset", `steps: [{component_type: compute, stage: 1, timeout: 5m, main_operation: {name: PowerControl}}]`), 1, 0, 0, component.On)
		h.tray("c01").marker = "m"
		l, release := dying(t, c, h)
		run := l.begin(t, TaskWorkflow)
		until(t, "the effect", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.effects) > 0 })
		l.die(t, release)
		ended(t, run, nil)
		h.ends(t, "succeeded")
		if len(h.effects) != 1 {
			t.Errorf("effects %v", h.effects)
		}
	})
	t.Run("a long wait goes on in new runs", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "power_control", "power_off", `steps: [{component_type: compute, stage: 1, main_operation: {name: VerifyPowerStatus, timeout: 1h, poll_interval: 20ms, parameters: {expected_status: "off"}}}]`), 2, 0, 0, component.Off)
		h.tray("c02").looks = slices.Repeat([]string{component.On}, 40)
		l := newLive(t, c, h)
		in := newTask(&h.begun, workflows.SiteQueue(l.prefix, "lab")).stepIn(&h.begun.Rule.Steps[0])
		in.Bound = 60
		l.goesOn(t, in)
		if h.looked != 42 { // the tray that was off at once was looked at once
			t.Errorf("%d looks", h.looked)
		}
	})
	t.Run("a long update goes on in new runs, and is started once", func(t *testing.T) {
		t.Parallel()
		h := newHall(ruleOf(t, "firmware_control", "upgrade", `steps: [{component_type: compute, stage: 1, max_parallel: 2, main_operation: {name: FirmwareControl, parameters: {poll_interval: 20ms, poll_timeout: 1h}}}]`), 3, 0, 0, component.On)
		h.begun.Firmware = []report.Firmware{{ComponentType: "compute", URI: "http://images/x", Versions: map[string]string{"BMC": "2"}}}
		for _, one := range h.trays {
			one.updates = slices.Repeat([]component.Progress{{State: "Running"}}, 15)
		}
		l := newLive(t, c, h)
		in := newTask(&h.begun, workflows.SiteQueue(l.prefix, "lab")).stepIn(&h.begun.Rule.Steps[0])
		in.Bound = 60
		l.goesOn(t, in)
		if slices.Sort(h.effects); !slices.Equal(h.effects, []string{"update c01", "update c02", "update c03"}) {
			t.Errorf("effects %v", h.effects)
		}
	})
}

// goesOn runs a step, which has to take more than one run to end well.
func (l *live) goesOn(t *testing.T, in *stepIn) {
	t.Helper()
	run := l.begin(t, StepWorkflow, in)
	first := run.GetRunID()
	var out stepOut
	ended(t, run, &out)
	if !out.Done || out.Why != nil {
		t.Errorf("it ended %+v", out)
	}
	past := l.history(t, run.GetID(), first)
	if last := past.Events[len(past.Events)-1].EventType; last != enums.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW {
		t.Errorf("its first run ended with %s", last)
	}
	replay(t, past)
	replay(t, l.history(t, run.GetID(), ""))
}

// dying makes the first act hang behind its effect until release.
func dying(t *testing.T, c client.Client, h *hall) (*live, func()) {
	t.Helper()
	hang := make(chan struct{})
	release := sync.OnceFunc(func() { close(hang) })
	var first atomic.Bool
	h.tray("c01").after = func(string) error {
		if first.CompareAndSwap(false, true) {
			h.mu.Unlock() // the rack goes on, this act does not
			<-hang
			h.mu.Lock()
		}
		return nil
	}
	l := newLive(t, c, h)
	t.Cleanup(release) // before the workers stop: they wait for it
	return l, release
}

// die ends the workers as a kill does, as far as Temporal sees it: what they were
// at gives no sign any more. Others take over.
func (l *live) die(t *testing.T, release func()) {
	t.Helper()
	l.stop()
	l.work(t)
	_ = release
}

// What ran before goes on with this code as it began.
func TestHistoriesAreReplayed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/histories/*.json")
	must(t, err)
	if len(files) < 3 {
		t.Fatalf("there are %d histories", len(files))
	}
	for _, file := range files {
		r := worker.NewWorkflowReplayer()
		registerWorkflows(r, "")
		if err := r.ReplayWorkflowHistoryFromJSONFile(quiet, file); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
