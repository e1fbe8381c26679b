package enrol

import (
	"time"

	"go.temporal.io/sdk/workflow"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

const (
	actPlan      = "enrol_plan"
	actReserve   = "enrol_reserve_addresses"
	actBMC       = "enrol_configure_bmc"
	actActivate  = "enrol_activate"
	actTag       = "enrol_tag"
	actNode      = "enrol_node"
	actRest      = "enrol_await_rest"
	actPorts     = "enrol_ports"
	actManage    = "enrol_manage"
	actInspect   = "enrol_inspect"
	actInspected = "enrol_await_inspection"
	actValidate  = "enrol_validate"
	actLease     = "enrol_lease"
	actProvide   = "enrol_provide"
	actCleaned   = "enrol_await_clean"
	actProve     = "enrol_prove"
	actUnprove   = "enrol_unprove"
)

// enrolling is the activities of enrollment at one site.
type enrolling struct{ site *act.Site }

// work is what a step of an enrolment knows.
type work struct {
	act.Target
	NetBox    string `json:"netbox,omitempty"`    // id of the device there; "" at a site without NetBox
	Node      string `json:"node,omitempty"`      // uuid in Ironic, once it is known
	Inspected bool   `json:"inspected,omitempty"` // by this run
}

// enrolment is one run of the workflow.
type enrolment struct {
	unit *act.Unit
	work work

	// pinned is the node that the run is about: the device's own when it was asked
	// for, then the one that was found or made.
	pinned string
}

// enrollment brings a device under control. With run_inspection its machine is
// compared with what its resource class says, and only then is the node proven.
func enrollment(ctx workflow.Context, u *act.Unit) error {
	e := enrolment{unit: u, work: work{Target: u.Target()}, pinned: u.Text("infrastructure_ref")}
	err := e.run(ctx)
	if err == nil {
		return nil
	}
	apart, stop := workflow.NewDisconnectedContext(ctx) // a cancelled run has failed, too
	defer stop()
	unproven := e.step("", 0, actUnprove, codes.EnrollmentProofUnavailable) // people keep the phase that failed
	if failed := u.Do(apart, unproven, failure{Target: u.Target(), Pinned: e.pinned}, nil); failed != nil {
		workflow.GetLogger(apart).Warn("the failure of an enrolment could not be noted with the proof, which it would not have revoked", "device", u.Name, "error", failed)
	}
	return err
}

func (e *enrolment) step(phase string, percent int, name string, lost codes.Failure) act.Step {
	return act.Step{Phase: phase, Percent: percent, Name: name, Lost: lost}
}

// do runs a step that is told the run's work.
func (e *enrolment) do(ctx workflow.Context, s act.Step, out any) error {
	return e.unit.Do(ctx, s, e.work, out)
}

// wanted is the node that the run is about, as far as it is known before it is found.
func (e *enrolment) wanted(p plan) wanted {
	return wanted{work: e.work, Pinned: e.unit.Text("node_uuid"), Mint: p.Mint}
}

func (e *enrolment) run(ctx workflow.Context) error {
	var p plan
	if err := e.do(ctx, e.step("read the device", 1, actPlan, codes.InternalError), &p); err != nil {
		return err
	}
	e.work.NetBox = p.NetBox
	if p.DHCP {
		if err := e.do(ctx, e.step("reserve addresses", 3, actReserve, codes.DHCPConfigurationFailed), nil); err != nil {
			return err
		}
		if err := e.tag(ctx, 5, stageDHCP); err != nil {
			return err
		}
	}
	if p.BMC {
		if err := e.unit.Do(ctx, e.step("configure the BMC", 7, actBMC, codes.BMCUnreachable), e.wanted(p), nil); err != nil {
			return err
		}
		if err := e.tag(ctx, 10, stageBMC); err != nil {
			return err
		}
	}
	if e.work.NetBox != "" {
		if err := e.do(ctx, e.step("make the device active", 12, actActivate, codes.NetboxUnavailable), nil); err != nil {
			return err
		}
	}
	if !p.Ironic { // what else the site has was done: nothing is shown of the machine
		return nil
	}
	return e.ironic(ctx, p)
}

// ironic is the part of the run that is about the node.
func (e *enrolment) ironic(ctx workflow.Context, p plan) error {
	inspects := e.unit.Flag("run_inspection")
	find := e.step("find or create the node", 15, actNode, codes.IronicUnavailable)
	if err := e.unit.Do(ctx, find, e.wanted(p), &e.work.Node); err != nil {
		return err
	}
	e.pinned = e.work.Node
	var n found
	rest := e.step("wait for the node to come to rest", 17, actRest, codes.IronicUnavailable)
	rest.Within, rest.Tries = restWithin+time.Hour, -1
	if err := e.do(ctx, rest, &n); err != nil {
		return err
	}
	if !n.Kept {
		if err := e.managed(ctx, inspects); err != nil {
			return err
		}
	}
	if err := e.tag(ctx, 50, stageIronic); err != nil {
		return err
	}
	if inspects {
		if err := e.do(ctx, e.step("validate the hardware", 55, actValidate, codes.IronicUnavailable), nil); err != nil {
			return err
		}
	}
	if !n.Kept {
		if err := e.provided(ctx); err != nil {
			return err
		}
	}
	if err := e.tag(ctx, 97, stageProvisioned); err != nil {
		return err
	}
	if !inspects {
		return nil
	}
	prove := e.step("prove the enrolment", 98, actProve, codes.EnrollmentProofUnavailable)
	prove.Tries = 20 // a swapped machine's device may carry the old node until Ironic has been listed again
	return e.do(ctx, prove, nil)
}

// managed takes the node under management and has it inspected.
func (e *enrolment) managed(ctx workflow.Context, inspects bool) error {
	if err := e.do(ctx, e.step("give the node its ports", 20, actPorts, codes.IronicUnavailable), nil); err != nil {
		return err
	}
	if err := e.do(ctx, e.step("take the node under management", 25, actManage, codes.IronicUnavailable), nil); err != nil || !inspects {
		return err
	}
	if err := e.do(ctx, e.step("begin to inspect", 30, actInspect, codes.IronicUnavailable), nil); err != nil {
		return err
	}
	wait := e.step("inspect", 32, actInspected, codes.IronicUnavailable)
	wait.Within, wait.Tries = inspectWithin+time.Hour, -1
	err := e.do(ctx, wait, nil)
	e.work.Inspected = err == nil
	return err
}

// provided keeps customers off the node and has it cleaned.
func (e *enrolment) provided(ctx workflow.Context) error {
	if err := e.do(ctx, e.step("lease the node to the enrolment", 60, actLease, codes.IronicUnavailable), nil); err != nil {
		return err
	}
	if err := e.do(ctx, e.step("begin to clean", 65, actProvide, codes.IronicUnavailable), nil); err != nil {
		return err
	}
	wait := e.step("clean", 67, actCleaned, codes.IronicUnavailable)
	wait.Within, wait.Tries = restWithin+time.Hour, -1
	return e.do(ctx, wait, nil)
}

// tag shows in NetBox how far the enrolment came.
func (e *enrolment) tag(ctx workflow.Context, percent int, stage stage) error {
	if e.work.NetBox == "" {
		return nil
	}
	return e.unit.Do(ctx, e.step("tag the device "+string(stage), percent, actTag, codes.NetboxUnavailable), tagging{Target: e.work.Target, NetBox: e.work.NetBox, Stage: stage}, nil)
}
