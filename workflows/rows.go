package workflows

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/workflows/act"
)

// Names of the activities that write rows.
const (
	actBegin    = "begin"
	actProgress = act.ActProgress
	actFinish   = "finish"
	actClose    = "close"
)

// accounts is what jobs.Service keeps of running work.
type accounts interface {
	Begin(ctx context.Context, workflowID string) (jobs.Begun, error)
	Progress(ctx context.Context, jobID, deviceID int64, phase string, percent int) error
	Finish(ctx context.Context, workflowID string, deviceID int64, e jobs.Ending) error
	Close(ctx context.Context, workflowID string, e jobs.Ending) error
}

// rows are the activities that write rows. Each may run again at any time.
type rows struct {
	db       *store.DB
	accounts accounts
	metrics  *metrics
}

// begun is what a workflow knows of its device. It stays in the history: no
// secret is in it.
type begun struct {
	Runs bool `json:"runs"` // false: nothing is to be done
	act.Unit
}

// ending is jobs.Ending in a history.
type ending struct {
	Status  fleet.JobDeviceStatus `json:"status"`
	Code    codes.Failure         `json:"code,omitempty"`
	Message string                `json:"message,omitempty"`
}

func (r *rows) register(w worker.ActivityRegistry) {
	w.RegisterActivityWithOptions(r.begin, activity.RegisterOptions{Name: actBegin})
	w.RegisterActivityWithOptions(r.progress, activity.RegisterOptions{Name: actProgress})
	w.RegisterActivityWithOptions(r.finish, activity.RegisterOptions{Name: actFinish})
	w.RegisterActivityWithOptions(r.close, activity.RegisterOptions{Name: actClose})
}

func (r *rows) begin(ctx context.Context) (begun, error) {
	id := activity.GetInfo(ctx).WorkflowExecution.ID
	b, err := r.accounts.Begin(ctx, id)
	if err != nil || len(b.Devices) == 0 {
		return begun{}, written(err)
	}
	if len(b.Devices) != 1 {
		return begun{}, temporal.NewNonRetryableApplicationError(fmt.Sprintf("%s works on %d devices, this workflow is for one", id, len(b.Devices)), "", nil)
	}
	all, err := store.DevicesByID(ctx, r.db, []int64{b.Devices[0].DeviceID})
	if err != nil {
		return begun{}, err
	}
	site, err := store.SiteByID(ctx, r.db, b.Job.SiteID)
	if err != nil {
		return begun{}, err
	}
	one := &b.Devices[0]
	out := begun{Runs: true, Unit: act.Unit{Job: b.Job.ID, Device: one.DeviceID, Site: site.Spec.Name, Parameters: map[string]any{}}}
	maps.Copy(out.Parameters, b.Job.Parameters)
	maps.Copy(out.Parameters, one.Stamped)
	if len(all) == 1 {
		out.Name = all[0].Name
	}
	return out, nil
}

func (r *rows) progress(ctx context.Context, p act.Progress) error {
	return written(r.accounts.Progress(ctx, p.Job, p.Device, p.Phase, p.Percent))
}

func (r *rows) finish(ctx context.Context, device int64, e ending) error {
	info := activity.GetInfo(ctx)
	if err := r.accounts.Finish(ctx, info.WorkflowExecution.ID, device, jobs.Ending(e)); err != nil {
		return written(err)
	}
	r.metrics.ended(info.WorkflowType.Name, e)
	return nil
}

func (r *rows) close(ctx context.Context, e ending) error {
	return written(r.accounts.Close(ctx, activity.GetInfo(ctx).WorkflowExecution.ID, jobs.Ending(e)))
}

// written lets what can never succeed end: the rows are gone.
func written(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return temporal.NewNonRetryableApplicationError(err.Error(), "", nil)
	}
	return err
}
