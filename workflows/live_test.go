package workflows

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	commonpb "go.temporal.io/api/common/v1"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

const patience = 2 * time.Minute

// live is a Runner on a real Temporal and a real database; a worker of the test
// runs the workflows w, which waits for long, and parents of children.
type live struct {
	*Runner
	site *act.Site
	t    testing.TB
}

// realTemporal runs a Temporal until the test ends.
func realTemporal(t *testing.T) client.Client {
	t.Helper()
	program := os.Getenv("MUSTER_TEMPORAL_BIN")
	if program == "" {
		program = "../bin/muster-temporal"
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN: what a real Temporal does is not tried")
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	cmd := exec.Command(program, "--dir", t.TempDir(), "--port", strconv.Itoa(port), "--namespace", embedded.TemporalNamespace, "--schema", embedded.TemporalSchema)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	c, err := client.NewLazyClient(client.Options{
		HostPort: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Namespace: embedded.TemporalNamespace, Logger: Logger(hclog.NewNullLogger()),
	})
	must(t, err)
	t.Cleanup(c.Close)
	until(t, "Temporal", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), conversation)
		defer cancel()
		_, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: embedded.TemporalNamespace})
		return err == nil
	})
	return c
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if is() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// newLive prepares a Runner; first is the number of its first job, which tells its
// workflows from those of others on the same Temporal.
func newLive(t *testing.T, c client.Client, first int) *live {
	t.Helper()
	s := acttest.Site(t, pgtest.Template(t, "bare", acttest.Database(nil)), acttest.Lab(), acttest.Clients{}, nil)
	_, err := s.DB.Exec(t.Context(), fmt.Sprintf("select setval(pg_get_serial_sequence('jobs', 'id'), %d, false)", first))
	must(t, err)
	svc := jobs.New(s.DB, s.Devices, none{}, s.DB.Now, hclog.NewNullLogger(), jobs.Options{})
	r, err := New(Options{
		DB: s.DB, Jobs: svc, Devices: s.Devices, Policies: none{}, Clients: s.Clients, Temporal: c, Prefix: fmt.Sprintf("%d/", first),
		Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry(), Converge: 200 * time.Millisecond, Look: time.Second,
	})
	must(t, err)
	l := &live{Runner: r, site: s, t: t}
	w := worker.New(c, r.options.Prefix+mainQueue, worker.Options{DisableRegistrationAliasing: true})
	for name, do := range map[string]act.Workflow{"w": waits, "parent": parent(false), "continued": parent(true)} {
		w.RegisterWorkflowWithOptions(deviceWorkflow(r.options.Prefix, do), workflow.RegisterOptions{Name: name})
	}
	w.RegisterWorkflowWithOptions(child, workflow.RegisterOptions{Name: "child"})
	r.rows.register(w)
	must(t, w.Start())
	t.Cleanup(w.Stop)
	return l
}

// keep compares and hands over until the test ends.
func (l *live) keep(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { l.converge(ctx) })
	all.Go(func() { l.dispatch(ctx) })
	t.Cleanup(func() { cancel(); all.Wait() })
}

// begin stores a job on a new device and starts its workflow.
func (l *live) begin(t *testing.T, name string) (job int64, id string) {
	t.Helper()
	job = running(t, l.site, acttest.Device(t, l.site, "d-"+t.Name(), facts.OperationalStatusFailed, "u-"+t.Name()))
	id = fleet.JobHolder(job) + "/device/1"
	_, err := l.site.DB.Exec(t.Context(), "update executions set workflow = $2 where workflow_id = $1", id, name)
	must(t, err)
	must(t, l.sender.Start(t.Context(), fleet.Execution{WorkflowID: id, Workflow: name}))
	return job, id
}

// waits is work that lasts until it is cancelled.
func waits(ctx workflow.Context, _ *act.Unit) error { return workflow.Sleep(ctx, time.Hour) }

// parent waits for a child that is recorded under it.
func parent(continues bool) act.Workflow {
	return func(ctx workflow.Context, u *act.Unit) error {
		ctx = workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
			WorkflowID: childOf(workflow.GetInfo(ctx).WorkflowExecution.ID), WaitForCancellation: true, ParentClosePolicy: enums.PARENT_CLOSE_POLICY_ABANDON,
		})
		return workflow.ExecuteChildWorkflow(ctx, "child", continues).Get(ctx, nil)
	}
}

func childOf(id string) string { return id + "/child" }

// child lasts until it is cancelled, and needs a while to end. One that continues
// begins itself anew all the time.
func child(ctx workflow.Context, continues bool) error {
	lasts := time.Hour
	if continues {
		lasts = 300 * time.Millisecond
	}
	err := workflow.Sleep(ctx, lasts)
	if err == nil && continues {
		return workflow.NewContinueAsNewError(ctx, "child", continues)
	}
	apart, stop := workflow.NewDisconnectedContext(ctx)
	defer stop()
	if late := workflow.Sleep(apart, 2*time.Second); late != nil {
		return late
	}
	return err
}

func (l *live) told(t *testing.T, id string) (status enums.WorkflowExecutionStatus, closed time.Time) {
	t.Helper()
	d, err := l.options.Temporal.DescribeWorkflow(t.Context(), id, "")
	if missing := new(serviceerror.NotFound); errors.As(err, &missing) {
		return enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED, time.Time{}
	}
	must(t, err)
	info := d.RawResponse.GetWorkflowExecutionInfo()
	return info.GetStatus(), info.GetCloseTime().AsTime()
}

func (l *live) runs(t *testing.T, id string) {
	t.Helper()
	until(t, id+" to run", func() bool {
		status, _ := l.told(t, id)
		return status == enums.WORKFLOW_EXECUTION_STATUS_RUNNING
	})
}

// ends waits for a job's end as it should be, and for its device to be free.
func (l *live) ends(t *testing.T, job int64, status fleet.JobDeviceStatus, code codes.Failure) {
	t.Helper()
	var is fleet.JobDeviceStatus
	var why codes.Failure
	until(t, "the device's end", func() bool {
		must(t, l.site.DB.QueryRow(t.Context(), "select status, failure_code from job_devices where job_id = $1", job).Scan(&is, &why))
		return is.Ended()
	})
	if is != status || why != code {
		t.Errorf("the device is %s %s, want %s %s", is, why, status, code)
	}
	until(t, "the device to be free", func() bool { return !l.locked(t, job) })
	var open int
	must(t, l.site.DB.QueryRow(t.Context(), "select count(*) from executions where job_id = $1 and state <> 'closed'", job).Scan(&open))
	if open > 0 {
		t.Errorf("%d executions are open", open)
	}
}

func (l *live) locked(t *testing.T, job int64) (is bool) {
	t.Helper()
	must(t, l.site.DB.QueryRow(t.Context(), "select exists (select from device_locks where holder = $1)", fleet.JobHolder(job)).Scan(&is))
	return is
}

// What somebody does in Temporal past muster, and what becomes of the rows.
var errUnjudged = errors.New("a queue cannot be judged")

// unjudged are tasks that wait and cannot be judged.
type unjudged struct{ jobs.Tasks }

func (unjudged) Promote(context.Context) (int, error) { return 0, errUnjudged }

func TestRowsFollowARealTemporal(t *testing.T) {
	t.Parallel()
	c := realTemporal(t)
	l := newLive(t, c, 1000)
	lost := newLive(t, c, 2000) // compared by hand
	stuck := newLive(t, c, 3000)
	stuck.options.Jobs.Join(unjudged{})
	l.keep(t)
	t.Run("group", func(t *testing.T) { // what is shared outlives them
		t.Run("terminated there", func(t *testing.T) {
			t.Parallel()
			job, id := l.begin(t, "w")
			l.runs(t, id)
			must(t, c.TerminateWorkflow(t.Context(), id, "", "by hand"))
			until(t, "the rows' end", func() bool {
				var is fleet.JobDeviceStatus
				must(t, l.site.DB.QueryRow(t.Context(), "select status from job_devices where job_id = $1", job).Scan(&is))
				return is == fleet.DeviceTerminated
			})
			if !l.locked(t, job) {
				t.Error("the device is free while an activity may still run")
			}
			l.ends(t, job, fleet.DeviceTerminated, "")
			must(t, l.sender.Start(t.Context(), fleet.Execution{WorkflowID: id, Workflow: "w"}))
			if status, _ := l.told(t, id); status != enums.WORKFLOW_EXECUTION_STATUS_TERMINATED {
				t.Errorf("it was started again: %s", status)
			}
		})
		t.Run("handed over although a queue cannot be judged", func(t *testing.T) {
			t.Parallel()
			job := running(t, stuck.site, acttest.Device(t, stuck.site, "d-stuck", facts.OperationalStatusFailed, "u-stuck"))
			id := fleet.JobHolder(job) + "/device/1"
			_, err := stuck.site.DB.Exec(t.Context(), "update executions set workflow = 'w', state = 'unsent', dispatch_by = now() + interval '1 hour' where workflow_id = $1", id)
			must(t, err)
			if err := stuck.handOver(t.Context()); !errors.Is(err, errUnjudged) {
				t.Errorf("it tells %v", err)
			}
			stuck.runs(t, id)
			must(t, c.TerminateWorkflow(t.Context(), id, "", "by hand"))
		})
		t.Run("cancelled there", func(t *testing.T) {
			t.Parallel()
			job, id := l.begin(t, "w")
			l.runs(t, id)
			must(t, c.CancelWorkflow(t.Context(), id, ""))
			l.ends(t, job, fleet.DeviceCancelled, "")
		})
		t.Run("a parent terminated there, its child lives", func(t *testing.T) {
			t.Parallel()
			job, id := l.begin(t, "parent")
			must(t, l.options.Jobs.Child(t.Context(), id, childOf(id), 0))
			l.runs(t, childOf(id))
			must(t, c.TerminateWorkflow(t.Context(), id, "", "by hand"))
			l.ends(t, job, fleet.DeviceTerminated, "")
			if status, _ := l.told(t, childOf(id)); status != enums.WORKFLOW_EXECUTION_STATUS_CANCELED {
				t.Errorf("the device is free and the child is %s", status)
			}
		})
		t.Run("a cancel reaches a child that has begun anew", func(t *testing.T) {
			t.Parallel()
			job, id := l.begin(t, "continued")
			l.runs(t, childOf(id))
			first, err := c.DescribeWorkflow(t.Context(), childOf(id), "")
			must(t, err)
			run := first.RawResponse.GetWorkflowExecutionInfo().GetExecution().GetRunId()
			until(t, "the child to begin anew", func() bool {
				now, err := c.DescribeWorkflow(t.Context(), childOf(id), "")
				return err == nil && now.RawResponse.GetWorkflowExecutionInfo().GetExecution().GetRunId() != run
			})
			_, err = l.site.DB.Exec(t.Context(), "update jobs set cancel_requested_at = now(), cancel_requested_by = 'test', status = 'cancellation_requested' where id = $1", job)
			must(t, err)
			must(t, l.sender.Cancel(t.Context(), fleet.Execution{WorkflowID: id}))
			l.ends(t, job, fleet.DeviceCancelled, "")
			var ended time.Time
			until(t, "the parent's end", func() bool {
				_, ended = l.told(t, id)
				status, _ := l.told(t, id)
				return status == enums.WORKFLOW_EXECUTION_STATUS_COMPLETED || status == enums.WORKFLOW_EXECUTION_STATUS_CANCELED
			})
			if status, at := l.told(t, childOf(id)); status != enums.WORKFLOW_EXECUTION_STATUS_CANCELED || at.After(ended) {
				t.Errorf("the child is %s at %s, its parent ended at %s", status, at, ended)
			}
		})
		t.Run("its history deleted", func(t *testing.T) {
			t.Parallel()
			job, id := lost.begin(t, "w")
			lost.runs(t, id)
			_, err := c.WorkflowService().DeleteWorkflowExecution(t.Context(), &workflowservice.DeleteWorkflowExecutionRequest{
				Namespace: embedded.TemporalNamespace, WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: id},
			})
			must(t, err)
			until(t, "the history to be gone", func() bool {
				status, _ := lost.told(t, id)
				return status == enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED
			})
			agree := func(want fleet.JobDeviceStatus) {
				t.Helper()
				e, err := store.Execution(t.Context(), lost.site.DB, id)
				must(t, err)
				must(t, lost.agree(t.Context(), &e))
				var is fleet.JobDeviceStatus
				must(t, lost.site.DB.QueryRow(t.Context(), "select status from job_devices where job_id = $1", job).Scan(&is))
				if is != want {
					t.Errorf("the device is %s, want %s", is, want)
				}
			}
			agree(fleet.DeviceRunning)
			agree(fleet.DeviceRunning) // it is not lost for long enough
			_, err = lost.site.DB.Exec(t.Context(), "update executions set missing_since = missing_since - interval '10 minutes' where workflow_id = $1", id)
			must(t, err)
			agree(fleet.DeviceFailed)
			lost.ends(t, job, fleet.DeviceFailed, codes.WorkflowHistoryLost)
			if found, err := lost.options.Jobs.Dispatch(t.Context(), lost.sender); found || err != nil {
				t.Errorf("something is handed over again: %v", err)
			}
			if status, _ := lost.told(t, id); status != enums.WORKFLOW_EXECUTION_STATUS_UNSPECIFIED {
				t.Errorf("it was started again: %s", status)
			}
		})
	})
}
