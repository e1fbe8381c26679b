package enrol

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/sources/topology"
	"github.com/musterhq/muster/workflows/act"
)

// declarer is a topology service.
type declarer interface {
	Declare(ctx context.Context, want topology.Intent) error
}

// discovered is the status in NetBox by which a topology service sees a device.
const discovered = "active"

// preserved are the statuses of a device that is on its way out: it is not made
// ready for another enrolment.
var preserved = []string{"rma", "decommissioning", "decommissioned"}

// declare tells the topology service of the removal where it sees the device, and
// whether it was told. It comes before anything is torn down, and once more before the device
// goes out of sight.
func (r *removing) declare(ctx context.Context, in removal) (told bool, err error) {
	if in.NetBox == "" {
		return false, nil
	}
	client, release, err := use[inventory](ctx, r.site, "netbox", codes.NetboxUnavailable)
	if err != nil {
		return false, err
	}
	defer release()
	d, err := r.read(ctx, client, in.NetBox)
	if err != nil || d == nil || d.Netbox.Status.Value != discovered {
		return false, err
	}
	return r.tell(ctx, in)
}

// read reads the device, nil where NetBox does not have it any more.
func (r *removing) read(ctx context.Context, client inventory, id string) (*netbox.Device, error) {
	d, err := readDevice(ctx, client, id)
	if act.Code(err) == codes.NetboxDeviceMissing {
		return nil, nil
	}
	return d, err
}

// tell declares the removal; false at a site without a topology service.
func (r *removing) tell(ctx context.Context, in removal) (told bool, err error) {
	row, err := r.site.Row(ctx)
	if err != nil || !row.Spec.Serves("topology") {
		return false, err
	}
	client, release, err := use[declarer](ctx, r.site, "topology", codes.TopologySyncIntentFailed)
	if err != nil {
		return false, err
	}
	defer release()
	err = client.Declare(ctx, topology.Intent{
		Name: fmt.Sprintf("unenrollment-%s-%d", in.Name, in.Job), Device: in.Name, Site: row.Spec.Name, Action: topology.ActionRemove,
	})
	if err != nil {
		return false, failed(ctx, err, codes.TopologySyncIntentFailed, codes.TopologySyncIntentFailed)
	}
	return true, nil
}

// stage moves the device to staged, out of the topology service's sight. One that
// is in sight and is not declared is left alone: seen, it is to be declared first.
func (r *removing) stage(ctx context.Context, in removal) (seen bool, err error) {
	if in.NetBox == "" {
		return false, nil
	}
	row, err := r.site.Row(ctx)
	if err != nil {
		return false, err
	}
	bundle, err := r.site.Bundle(ctx)
	if err != nil {
		return false, err
	}
	client, release, err := use[inventory](ctx, r.site, "netbox", codes.NetboxUnavailable)
	if err != nil {
		return false, err
	}
	defer release()
	d, err := r.read(ctx, client, in.NetBox)
	switch {
	case err != nil || d == nil:
		return false, err
	case d.Netbox.Status.Value == discovered && !in.Declared && row.Spec.Serves("topology"):
		return true, nil
	}
	change := netbox.Change{If: d.Version, Note: note(in.Job)}
	if !slices.Contains(preserved, d.Netbox.Status.Value) {
		change.Status = "staged"
	}
	for _, tag := range bundle.ProgressTags().All() {
		if slices.Contains(d.Netbox.Tags, tag) {
			change.RemoveTags = append(change.RemoveTags, tag)
		}
	}
	if _, err = client.Update(ctx, in.NetBox, change); errors.Is(err, sources.ErrGone) {
		return false, nil
	}
	return false, netboxFailed(ctx, err)
}

// sync declares the removal once more, by which the topology service begins anew.
func (r *removing) sync(ctx context.Context, in removal) error {
	_, err := r.tell(ctx, in)
	return err
}
