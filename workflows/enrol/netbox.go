package enrol

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/workflows/act"
)

// inventory is a NetBox, as far as enrolment goes.
type inventory interface {
	Read(ctx context.Context, id string) (*netbox.Device, error)
	Update(ctx context.Context, id string, change netbox.Change) (*netbox.Device, error)
}

// stage is how far an enrolment came, as NetBox shows it.
type stage string

const (
	stageDHCP        stage = "dhcp configured"
	stageBMC         stage = "bmc configured"
	stageIronic      stage = "ironic enrolled"
	stageProvisioned stage = "provisioned"
)

// of gives the tag of the stage, "" for none.
func (s stage) of(t engine.ProgressTags) string {
	return map[stage]string{stageDHCP: t.DHCPConfigured, stageBMC: t.BMCConfigured, stageIronic: t.IronicEnrolled, stageProvisioned: t.Provisioned}[s]
}

// tagging asks for the tag of a stage.
type tagging struct {
	act.Target
	NetBox string `json:"netbox"`
	Stage  stage  `json:"stage"`
}

// tag sets the tag of a stage and takes those of the others off.
func (e *enrolling) tag(ctx context.Context, in tagging) error {
	bundle, err := e.site.Bundle(ctx)
	if err != nil {
		return err
	}
	tags := bundle.ProgressTags()
	slug := in.Stage.of(tags)
	if slug == "" {
		return nil
	}
	client, release, err := use[inventory](ctx, e.site, "netbox", codes.NetboxUnavailable)
	if err != nil {
		return err
	}
	defer release()
	others := slices.DeleteFunc(tags.All(), func(other string) bool { return other == slug })
	_, err = client.Update(ctx, in.NetBox, netbox.Change{AddTags: []string{slug}, RemoveTags: others, Note: note(in.Job)})
	return netboxFailed(ctx, err)
}

// activate moves the device from staged to active. Whatever else somebody made of
// it meanwhile stays.
func (e *enrolling) activate(ctx context.Context, in work) error {
	client, release, err := use[inventory](ctx, e.site, "netbox", codes.NetboxUnavailable)
	if err != nil {
		return err
	}
	defer release()
	d, err := readDevice(ctx, client, in.NetBox)
	if err != nil || d.Netbox.Status.Value != "staged" {
		return err
	}
	_, err = client.Update(ctx, in.NetBox, netbox.Change{If: d.Version, Status: "active", Note: note(in.Job)})
	return netboxFailed(ctx, err)
}

func note(job int64) string { return fmt.Sprintf("muster job %d", job) }

// readDevice reads a device of NetBox, whose status must be known.
func readDevice(ctx context.Context, client inventory, id string) (*netbox.Device, error) {
	d, err := client.Read(ctx, id)
	if err != nil {
		return nil, netboxUnread(ctx, err)
	}
	if d.Netbox == nil || !d.Netbox.Status.Known {
		return nil, act.Retry(codes.NetboxUnavailable, "what NetBox says of the device %s could not be read whole", id)
	}
	return d, nil
}

// netboxUnread gives an error of reading NetBox its code.
func netboxUnread(ctx context.Context, err error) error {
	if kind := sources.KindOf(err); ctx.Err() == nil && (kind == sources.KindForbidden || kind == sources.KindRefused) {
		return act.Final(codes.NetboxUnavailable, "%v", err)
	}
	return netboxFailed(ctx, err)
}

// netboxFailed gives an error of changing NetBox its code.
func netboxFailed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, netbox.ErrChanged):
		return act.Retry(codes.NetboxUnavailable, "%v", err)
	case sources.KindOf(err) == sources.KindMissing:
		return act.Final(codes.NetboxDeviceMissing, "%v", err)
	}
	return failed(ctx, err, codes.NetboxUnavailable, codes.NetboxUpdateRefused)
}
