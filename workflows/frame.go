package workflows

import (
	"errors"
	"regexp"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
)

// deviceWorkflow frames what is to be done with a device.
func deviceWorkflow(prefix string, do act.Workflow) func(workflow.Context) error {
	return (&frame{prefix, do}).run
}

// frame is the workflow of one device.
type frame struct {
	prefix string // of task queues
	do     act.Workflow
}

// run does the work: nothing happens before its device's row says that it runs,
// and the row ends with it, whatever becomes of it.
func (f *frame) run(ctx workflow.Context) error {
	apart, stop := workflow.NewDisconnectedContext(ctx) // rows are written although the work is cancelled
	defer stop()
	var b begun
	if err := act.Write(apart, actBegin, &b); err != nil || !b.Runs {
		return err
	}
	u := &b.Unit
	u.Queue = siteQueue(f.prefix, u.Site)
	done, settle := workflow.NewFuture(apart)
	workflow.Go(ctx, func(ctx workflow.Context) { settle.SetError(f.do(ctx, u)) })
	cancelled := false
	workflow.NewSelector(apart).
		AddFuture(done, func(workflow.Future) {}).
		AddReceive(ctx.Done(), func(workflow.ReceiveChannel, bool) { cancelled = true }).
		Select(apart)
	if cancelled { // told at once; the device stays locked
		e := jobs.Ending{Status: fleet.DeviceCancelled, Message: "cancelled while its work ran"}
		if err := act.Write(apart, actFinish, nil, u.Device, ending(e)); err != nil {
			return err
		}
	}
	e := endingOf(done.Get(apart, nil)) // every activity has ended
	if !cancelled {
		if err := act.Write(apart, actFinish, nil, u.Device, ending(e)); err != nil {
			return err
		}
	}
	if cancelled || e.Status == fleet.DeviceCancelled {
		return act.Write(apart, actClose, nil, ending{Status: fleet.DeviceCancelled})
	}
	return nil
}

// ours tells a failure code from the names that Temporal gives to Go's errors.
var ours = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// endingOf says how a device ends whose work gave err.
func endingOf(err error) jobs.Ending {
	var lost *act.LostError
	var coded *temporal.ApplicationError
	switch {
	case err == nil:
		return jobs.Ending{Status: fleet.DeviceSucceeded}
	case temporal.IsCanceledError(err):
		return jobs.Ending{Status: fleet.DeviceCancelled, Message: "cancelled while its work ran"}
	case errors.As(err, &lost):
		return jobs.Ending{Status: fleet.DeviceFailed, Code: lost.Code, Message: clip(lost.Error())}
	case errors.As(err, &coded) && ours.MatchString(coded.Type()):
		return jobs.Ending{Status: fleet.DeviceFailed, Code: codes.Failure(coded.Type()), Message: clip(coded.Message())}
	}
	return jobs.Ending{Status: fleet.DeviceFailed, Code: codes.InternalError, Message: clip(err.Error())}
}

const longestMessage = 1024 // bytes

func clip(text string) string { return sources.CleanText(text, longestMessage) }
