package enrol

import (
	"errors"
	"strings"
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

const (
	actRemovalPlan    = "unenrol_plan"
	actPreflight      = "unenrol_preflight"
	actDeclare        = "unenrol_declare"
	actDeleteNode     = "unenrol_delete_node"
	actDeleteProvider = "unenrol_delete_provider"
	actStage          = "unenrol_stage"
	actSync           = "unenrol_sync"
	actResetBMC       = "unenrol_reset_bmc"
	actForget         = "unenrol_forget_credential"
)

// removing is the activities of node_unenrollment at one site.
type removing struct{ site *act.Site }

// unenrollment lets a device go: nothing is torn down before it is certain that
// nobody's instance is on it, and its BMC's credential goes last, since every
// earlier step may need it.
func unenrollment(ctx workflow.Context, u *act.Unit) error {
	var r removal
	step := func(phase string, percent int, name string, lost codes.Failure) act.Step {
		return act.Step{Phase: phase, Percent: percent, Name: name, Lost: lost}
	}
	if err := u.Do(ctx, step("read the device", 1, actRemovalPlan, codes.IronicUnavailable), u.Target(), &r); err != nil {
		return err
	}
	if err := u.Do(ctx, step("see that nobody holds the node", 5, actPreflight, codes.NovaUnavailable), r, &r.Stale); err != nil {
		return err
	}
	if err := u.Do(ctx, step("declare the removal to the topology service", 15, actDeclare, codes.TopologySyncIntentFailed), r, &r.Declared); err != nil {
		return err
	}
	if r.Node != "" {
		if err := u.Do(ctx, step("delete the node", 25, actDeleteNode, codes.IronicNodeDeleteFailed), r, nil); err != nil {
			return err
		}
		if err := u.Do(ctx, step("delete the resource provider", 45, actDeleteProvider, codes.PlacementUnavailable), r, nil); err != nil {
			return err
		}
	}
	if err := staged(ctx, u, &r); err != nil {
		return err
	}
	var w warnings
	if r.Declared {
		if err := synced(ctx, u, r, &w); err != nil {
			return err
		}
	}
	if r.BMC {
		unknown, err := reset(ctx, u, r)
		if err != nil {
			return err
		}
		if unknown {
			workflow.GetLogger(ctx).Warn("the reset of a BMC is not confirmed: the credential is kept", "device", u.Name)
			w = append(w, "kept the credential: the reset is not confirmed; run the job again once the BMC answers")
		} else if err := u.Do(ctx, step("remove the credential", 90, actForget, codes.CredentialStoreUnavailable), r, nil); err != nil {
			return err
		}
	}
	if len(w) == 0 {
		return nil
	}
	return u.Tell(ctx, "warning: "+strings.Join(w, "; "), 99)
}

// staged takes the device out of the topology service's sight. One that came into it
// meanwhile is declared first; what was declared stays so in the history, whichever
// step fails.
func staged(ctx workflow.Context, u *act.Unit, r *removal) error {
	for range 3 {
		if r.NetBox != "" && !r.Declared {
			late := act.Step{Phase: "see whether the device came into sight meanwhile", Percent: 50, Name: actDeclare, Lost: codes.TopologySyncIntentFailed}
			if err := u.Do(ctx, late, *r, &r.Declared); err != nil {
				return err
			}
		}
		var again bool
		stage := act.Step{Phase: "move the device to staged", Percent: 55, Name: actStage, Lost: codes.NetboxUnavailable}
		if err := u.Do(ctx, stage, *r, &again); err != nil || !again {
			return err
		}
	}
	return act.Final(codes.NetboxUnavailable, "somebody sets the device's status in NetBox again and again: run the job again once it stays")
}

// warnings are what people are left with of a run that succeeds.
type warnings []string

// synced has the topology service begin again, now that the device is out of its
// sight. That it cannot be asked is told and fails nothing.
func synced(ctx workflow.Context, u *act.Unit, r removal, w *warnings) error {
	again := act.Step{Phase: "have the topology synced", Percent: 65, Name: actSync, Lost: codes.TopologySyncIntentFailed, Tries: 3}
	err := u.Do(ctx, again, r, nil)
	if err == nil || ctx.Err() != nil {
		return err
	}
	workflow.GetLogger(ctx).Warn("the topology was not synced after a device was removed: its next own sync shows it", "device", u.Name, "error", err)
	*w = append(*w, "the topology was not synced: "+act.Message(err))
	return nil
}

const (
	resetTries = 4
	resetPause = 30 * time.Second
)

// reset sets the BMC to what it came with. A request that may have been made is
// never made again: if its answer is lost, or the worker, it is unknown whether the
// BMC was reset.
func reset(ctx workflow.Context, u *act.Unit, r removal) (unknown bool, err error) {
	once := act.Step{Phase: "reset the BMC", Percent: 75, Name: actResetBMC, Lost: codes.BMCUnreachable, Tries: 1}
	for try := 1; ; try++ {
		err := u.Do(ctx, once, r, &unknown)
		var lost *act.LostError
		switch {
		case err == nil:
			return unknown, nil
		case errors.As(err, &lost):
			return true, nil
		case ctx.Err() != nil || try == resetTries || act.IsFinal(err) || act.Code(err) != codes.BMCUnreachable:
			return false, err
		}
		if err := workflow.Sleep(ctx, resetPause); err != nil {
			return false, err
		}
	}
}
