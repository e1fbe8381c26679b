package enrol

import (
	"context"
	"regexp"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
	"go.temporal.io/sdk/activity"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources/ironic"
	"github.com/musterhq/muster/workflows/act"
	"github.com/musterhq/muster/workflows/node"
)

// inspectWithin bounds one inspection from its first look on: a machine boots once
// or twice.
const inspectWithin = time.Hour

// ports gives the node the ports that NetBox has of its machine. Those that an
// inspection finds besides are Ironic's own.
func (e *enrolling) ports(ctx context.Context, in work) error {
	row, err := e.site.Row(ctx)
	if err != nil {
		return err
	}
	if in.NetBox == "" || row.Spec.Enrolment.Node == nil {
		return nil
	}
	all, err := e.interfaces(ctx, in.NetBox)
	if err != nil {
		return err
	}
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	wanted := pattern(row.Spec.Enrolment.Node.Ports)
	for i := range all {
		if all[i].MgmtOnly || all[i].MAC == "" || !wanted.MatchString(all[i].Name) {
			continue
		}
		if err := client.AddPort(ctx, in.Node, ironic.NewPort{MAC: all[i].MAC, PXE: true}); err != nil {
			return conflictOr(ctx, err)
		}
	}
	return nil
}

// pattern reads a text in which * stands for any text and ? for any one character,
// whatever the case; "" fits all.
func pattern(text string) *regexp.Regexp {
	if text == "" {
		text = "*"
	}
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(text))
	return regexp.MustCompile("(?is)^" + quoted + "$")
}

// manage brings the node to manageable, which shows that Ironic reaches its BMC.
func (e *enrolling) manage(ctx context.Context, in work) error {
	const doing = "take the node under management"
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, in.Node)
	if err != nil {
		return err
	}
	if f.Maintenance == facts.True {
		if _, err := client.ClearMaintenance(ctx, in.Node, node.MarkOf(f, in.Job), ironic.Repair{CleanFailure: true}); err != nil {
			return node.Failed(ctx, err)
		}
	}
	switch state := f.ProvisionState; {
	case f.InstanceBound == facts.True:
		return node.Unexpected(f, doing+": an instance is bound to it by now")
	case state == facts.ProvisionStateManageable:
		return nil
	case state == facts.ProvisionStateEnroll || state == facts.ProvisionStateCleanFailed || state == facts.ProvisionStateInspectFailed:
		if _, err := client.SetProvision(ctx, in.Node, nodes.ProvisionStateOpts{Target: nodes.TargetManage}); err != nil {
			return node.Failed(ctx, err)
		}
	case state.Stable():
		return node.Unexpected(f, doing)
	}
	r, err := client.Settle(ctx, in.Node, managingWithin)
	switch {
	case err != nil:
		return node.Failed(ctx, err)
	case r.Ironic.ProvisionState == facts.ProvisionStateManageable:
		return nil
	case r.Ironic.ProvisionState == f.ProvisionState || r.Ironic.ProvisionState == facts.ProvisionStateEnroll:
		return act.Final(codes.IronicManageFailed, "Ironic did not take the node under management%s", node.Why(r.Ironic))
	}
	return node.Unexpected(r.Ironic, doing)
}

// inspect has Ironic look into the machine. That destroys nothing.
func (e *enrolling) inspect(ctx context.Context, in work) error {
	const doing = "begin to inspect"
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	f, err := node.Read(ctx, client, in.Node)
	if err != nil {
		return err
	}
	switch state := f.ProvisionState; {
	case f.InstanceBound == facts.True:
		return node.Unexpected(f, doing+": an instance is bound to it by now")
	case state == facts.ProvisionStateInspecting || state == facts.ProvisionStateInspectWait || state == facts.ProvisionStateInspectFailed:
		return nil // by an earlier try
	case state != facts.ProvisionStateManageable:
		return node.Unexpected(f, doing)
	}
	if _, err := client.SetProvision(ctx, in.Node, nodes.ProvisionStateOpts{Target: nodes.TargetInspect}); err != nil {
		return node.Failed(ctx, err)
	}
	return nil
}

// inspected waits until the inspection has ended. One that takes too long is
// aborted.
func (e *enrolling) inspected(ctx context.Context, in work) error {
	client, release, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer release()
	until := activity.GetInfo(ctx).ScheduledTime.Add(inspectWithin)
	for {
		f, err := node.Read(ctx, client, in.Node)
		late := e.site.Clock().After(until)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && act.IsFinal(err):
			return err
		case err == nil && f.ProvisionState.Stable() && f.Reservation.Value == "":
			return inspection(f)
		case late && err != nil:
			return act.Final(codes.IronicUnavailable, "the inspection was not seen to end within %s: %v", inspectWithin, err)
		case late:
			return e.abort(ctx, client, in.Node, f)
		}
		if !act.Wait(ctx, e.site.Poll) {
			return ctx.Err()
		}
	}
}

// abort ends an inspection that nobody answers any more.
func (e *enrolling) abort(ctx context.Context, client enroller, uuid string, f *facts.Ironic) error {
	told := "it goes on in Ironic, unwatched"
	if f.ProvisionState == facts.ProvisionStateInspectWait {
		told = "it was aborted"
		if _, err := client.SetProvision(ctx, uuid, nodes.ProvisionStateOpts{Target: nodes.TargetAbort}); err != nil {
			told = "it could not be aborted: " + err.Error()
		}
	}
	return act.Final(codes.IronicInspectionFailed, "after %s the node was still in %q; %s", inspectWithin, f.ProvisionState, told)
}

// inspection judges the state in which the node came to rest.
func inspection(f *facts.Ironic) error {
	switch {
	case f.ProvisionState == facts.ProvisionStateManageable:
		return nil
	case f.ProvisionState != facts.ProvisionStateInspectFailed:
		return node.Unexpected(f, "inspect")
	case imageMissing.MatchString(f.LastError.Value):
		return act.Final(codes.IronicInspectionIPAImageNotFound, "the inspection failed%s", node.Why(f))
	}
	return act.Final(codes.IronicInspectionFailed, "the inspection failed%s", node.Why(f))
}

// imageMissing fits what Ironic says where the image that an inspection boots is
// not to be had: by its own words, by those of Glance and by a web server's.
var imageMissing = regexp.MustCompile(`(?is)\b(image|kernel|ramdisk|iso|deploy_kernel|deploy_ramdisk|deploy_iso|boot_iso)\b.*\b(not found|could not be found|cannot be found|does not exist|no such file|404)\b|\b(ImageNotFound|ImageRefValidationFailed)\b`)
