package component

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/netbox"
	"github.com/musterhq/muster/workflows/act"
)

// Decommission takes components out of service.
type Decommission interface {
	// Decommission asks for it. That it was taken is no end: Decommissioning tells.
	Decommission(ctx context.Context, p Part, note string) error
	// Decommissioning tells how far it is, in the words of operation rules: Ready,
	// Maintenance(…), Decommissioning/…, Decommissioned, or another state.
	Decommissioning(ctx context.Context, p Part) (string, error)
}

// Inventory is a NetBox, as far as the life of a device goes.
type Inventory interface {
	Read(ctx context.Context, id string) (*netbox.Device, error)
	Update(ctx context.Context, id string, change netbox.Change) (*netbox.Device, error)
}

// The statuses of a device in NetBox that this is about.
const (
	leaving = "decommissioning"
	gone    = "decommissioned"
)

// inventory asks NetBox for decommissionings: the device becomes decommissioning,
// and whoever takes it away makes it decommissioned.
type inventory struct{ *Systems }

func (i *inventory) open(ctx context.Context, p *Part) (Inventory, func(), error) {
	if p.NetBox == "" {
		return nil, nil, act.Final(codes.NetboxDeviceMissing, "NetBox has not been seen to list %s: its inventory says when a component is decommissioned", p.Name)
	}
	client, release, err := i.NetBox(ctx)
	switch {
	case err == nil:
		return client, release, nil
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	}
	return nil, nil, act.Final(codes.NetboxUnavailable, "%v", err)
}

// Decommission asks for a component to be decommissioned.
func (i *inventory) Decommission(ctx context.Context, p Part, note string) error {
	client, release, err := i.open(ctx, &p)
	if err != nil {
		return err
	}
	defer release()
	d, err := client.Read(ctx, p.NetBox)
	if err != nil {
		return inventoryFailed(ctx, err)
	}
	if status := statusOf(d); status == leaving || status == gone {
		return nil
	}
	_, err = client.Update(ctx, p.NetBox, netbox.Change{If: d.Version, Status: leaving, Note: note})
	return inventoryFailed(ctx, err)
}

// Decommissioning tells how far it is.
func (i *inventory) Decommissioning(ctx context.Context, p Part) (string, error) {
	client, release, err := i.open(ctx, &p)
	if err != nil {
		return "", err
	}
	defer release()
	d, err := client.Read(ctx, p.NetBox)
	if err != nil {
		return "", inventoryFailed(ctx, err)
	}
	switch status := statusOf(d); status {
	case gone:
		return "Decommissioned", nil
	case leaving:
		return "Decommissioning/Inventory", nil
	case "offline", "failed":
		return fmt.Sprintf("Maintenance(%s)", status), nil
	case "active", "staged", "planned", "inventory":
		return "Ready", nil
	default:
		return status, nil
	}
}

func statusOf(d *netbox.Device) string {
	if d == nil || d.Netbox == nil {
		return ""
	}
	return d.Netbox.Status.Value
}

func inventoryFailed(ctx context.Context, err error) error {
	switch kind := sources.KindOf(err); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, sources.ErrGone) || kind == sources.KindMissing:
		return act.Final(codes.NetboxDeviceMissing, "%v", err)
	case errors.Is(err, netbox.ErrChanged):
		return act.Retry(codes.NetboxUnavailable, "%v", err)
	case kind == sources.KindForbidden || kind == sources.KindRefused || kind == sources.KindConflict:
		return act.Final(codes.DecommissionRefused, "%v", err)
	}
	return act.Retry(codes.NetboxUnavailable, "%v", err)
}
