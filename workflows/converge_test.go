package workflows

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/act/acttest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// oracle is a Temporal that says one thing of every workflow.
type oracle struct {
	client.Client
	status enums.WorkflowExecutionStatus
	closed time.Time
	err    error
}

func (o *oracle) DescribeWorkflow(context.Context, string, string) (*client.WorkflowExecutionDescription, error) {
	return &client.WorkflowExecutionDescription{RawResponse: &workflowservice.DescribeWorkflowExecutionResponse{
		WorkflowExecutionInfo: &workflowpb.WorkflowExecutionInfo{Status: o.status, CloseTime: timestamppb.New(o.closed)},
	}}, o.err
}

// none has no policy: the accounts of running work need none but for breakers.
type none struct{}

func (none) Current() *engine.Bundle                         { return nil }
func (none) Refresh(context.Context) (*engine.Bundle, error) { return nil, devices.ErrPolicyNotLoaded }
func (none) Bundle(context.Context, string) (*engine.Bundle, error) {
	return nil, devices.ErrPolicyNotLoaded
}

// running stores a job that works on a device.
func running(t *testing.T, s *act.Site, device int64) (job int64) {
	t.Helper()
	must(t, s.DB.Tx(t.Context(), func(tx pgx.Tx) error {
		if err := tx.QueryRow(t.Context(), `insert into jobs (site_id, workflow, contention, disruptive, status, parameters, bundle_version, requested_by)
			values ($1, 'w', 'exclusive', false, 'running', '{}', 'b', 'test') returning id`, s.ID).Scan(&job); err != nil {
			return err
		}
		for _, sql := range []string{
			"insert into job_devices (job_id, device_id, status, started_at) values ($1, $2, 'running', now())",
			"insert into device_locks (device_id, holder, mode, work, disruptive, held) values ($2, 'job/' || $1::bigint, 'exclusive', 'w', false, false)",
			`insert into executions (workflow_id, kind, holder, job_id, device_id, workflow, site_id, state, sent_at)
				select 'job/' || $1::bigint || '/device/1', 'device', 'job/' || $1::bigint, $1, $2, 'w', site_id, 'sent', now() from jobs where id = $1`,
		} {
			if _, err := tx.Exec(t.Context(), sql, job, device); err != nil {
				return err
			}
		}
		return nil
	}))
	return job
}

// What Temporal says of work whose rows are open, and what becomes of the rows: a
// device is free only when nothing of the work can run any more.
func TestRowsFollowTemporal(t *testing.T) {
	t.Parallel()
	now, before := time.Now(), time.Now().Add(-time.Hour)
	for name, c := range map[string]struct {
		told   oracle
		child  bool
		device fleet.JobDeviceStatus
		free   bool
	}{
		"it runs":                       {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_RUNNING}, false, fleet.DeviceRunning, false},
		"terminated just now":           {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, closed: now}, false, fleet.DeviceTerminated, false},
		"terminated before":             {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, closed: before}, false, fleet.DeviceTerminated, true},
		"out of time":                   {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_TIMED_OUT, closed: before}, false, fleet.DeviceTimedOut, true},
		"cancelled there":               {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_CANCELED, closed: before}, false, fleet.DeviceCancelled, true},
		"terminated, its child lives":   {oracle{status: enums.WORKFLOW_EXECUTION_STATUS_TERMINATED, closed: before}, true, fleet.DeviceTerminated, false},
		"not known, for the first time": {oracle{err: serviceerror.NewNotFound("no")}, false, fleet.DeviceRunning, false},
		"no such namespace":             {oracle{err: serviceerror.NewNamespaceNotFound("muster")}, false, fleet.DeviceRunning, false},
		"Temporal is away":              {oracle{err: serviceerror.NewUnavailable("away")}, false, fleet.DeviceRunning, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := acttest.Site(t, pgtest.Template(t, "bare", acttest.Database(nil)), acttest.Lab(), acttest.Clients{}, nil)
			device := acttest.Device(t, s, "c1", facts.OperationalStatusFailed, "u")
			job := running(t, s, device)
			id := fleet.JobHolder(job) + "/device/1"
			svc := jobs.New(s.DB, s.Devices, none{}, s.DB.Now, hclog.NewNullLogger(), jobs.Options{})
			if c.child {
				must(t, svc.Child(t.Context(), id, id+"/child", 0))
			}
			r, err := New(Options{DB: s.DB, Jobs: svc, Devices: s.Devices, Policies: none{}, Clients: s.Clients, Temporal: &c.told, Log: hclog.NewNullLogger(), Metrics: prometheus.NewRegistry()})
			must(t, err)
			e, err := store.Execution(t.Context(), s.DB, id)
			must(t, err)
			for range 2 { // once more changes nothing
				if err := r.agree(t.Context(), &e); err != nil && c.told.err == nil {
					t.Fatal(err)
				}
			}
			var status fleet.JobDeviceStatus
			var held int
			must(t, s.DB.QueryRow(t.Context(), "select status, (select count(*) from device_locks) from job_devices where job_id = $1", job).Scan(&status, &held))
			if status != c.device || (held == 0) != c.free {
				t.Errorf("the device is %q with %d locks, want %q, free %v", status, held, c.device, c.free)
			}
			if c.child {
				child, err := store.Execution(t.Context(), s.DB, id+"/child")
				if err != nil || child.Want != fleet.WantCancel {
					t.Errorf("the child is told to %s, %v", child.Want, err)
				}
			}
		})
	}
}
