package operations

import (
	"context"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/report"
)

// Rows is what a running task on Temporal writes, in the words that go through its
// history. operations/rack takes it.
type Rows struct{ service *Service }

// Rows gives the rows of running tasks.
func (s *Service) Rows() *Rows { return &Rows{s} }

// Begin is Service.Begin.
func (r *Rows) Begin(ctx context.Context, workflowID string) (report.Begun, error) {
	b, err := r.service.Begin(ctx, workflowID)
	if err != nil || !b.Runs {
		return report.Begun{}, err
	}
	return report.Begun{
		Runs: true, Task: b.Task, Site: b.Site, OperationType: b.OperationType, Operation: b.Operation, Rule: b.Rule,
		Parts: parts(b.Components), Beside: parts(b.Beside), Firmware: b.Firmware, Override: b.Override, Worst: b.Worst,
	}, nil
}

func parts(all []Component) []report.Part {
	out := make([]report.Part, len(all))
	for i, c := range all {
		out[i] = report.Part{Device: c.Device, Name: c.Name, Type: c.Type}
	}
	return out
}

// Record writes entries and components, each as Service.Note and
// Service.Component do.
func (r *Rows) Record(ctx context.Context, what report.Record) error {
	for _, e := range what.Entries {
		if err := r.service.Note(ctx, what.Task, Entry{
			Stage: e.Stage, ComponentType: e.ComponentType, Phase: e.Phase, Index: e.Index, Action: e.Action, Device: e.Device,
			Status: fleet.EntryStatus(e.Status), Attempts: e.Attempts, Code: e.Code, Message: e.Message,
		}); err != nil {
			return err
		}
	}
	for _, c := range what.Components {
		if err := r.service.Component(ctx, what.Task, c.Device, ComponentState{
			Status: fleet.JobDeviceStatus(c.Status), Phase: c.Phase, Code: c.Code, Message: c.Message, LastState: c.LastState,
		}); err != nil {
			return err
		}
	}
	return nil
}

// OverBudget is Service.OverBudget.
func (r *Rows) OverBudget(ctx context.Context, task int64) error {
	return r.service.OverBudget(ctx, task)
}

// Finish is Service.Finish; the task knows by itself whether it failed in part.
func (r *Rows) Finish(ctx context.Context, workflowID string, e report.Ending) error {
	return r.service.finishAs(ctx, workflowID, endingOf(e), fleet.TaskStatus(e.Status))
}

// Close is Service.Close.
func (r *Rows) Close(ctx context.Context, workflowID string, e report.Ending) error {
	return r.service.Close(ctx, workflowID, endingOf(e))
}

// Child is Service.Child.
func (r *Rows) Child(ctx context.Context, parent, child string) error {
	return r.service.Child(ctx, parent, child)
}

// endingOf is the ending of what of a task has none of its own.
func endingOf(e report.Ending) jobs.Ending {
	status := fleet.JobDeviceStatus(e.Status)
	if e.Status == fleet.JobPartiallyFailed {
		status = fleet.DeviceFailed
	}
	return jobs.Ending{Status: status, Code: e.Code, Message: e.Message}
}
