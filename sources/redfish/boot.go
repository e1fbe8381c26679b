package redfish

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/musterhq/muster/sources"
)

// Boot is an override of where a machine boots from.
type Boot struct {
	Target  string // Pxe, Hdd, Cd, UefiHttp, None, ...
	Enabled string // Once, Continuous or Disabled
	Mode    string // UEFI or Legacy; "" leaves it
}

// BootOverride sets where a machine boots from and reads it back. What is so
// already is not written. A BMC that reports another thing than it was told ends
// with ErrNoEffect, a lost answer without it being read back with
// ErrUnknownOutcome.
func (c *Client) BootOverride(ctx context.Context, target Target, boot Boot) error {
	op := "set the boot override of " + target.Name
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return fault
	}
	defer b.close()
	var outcome sent
	for try := 0; ; try++ {
		uri, system, err := b.machine(ctx)
		if err != nil {
			return c.classified(op, system, err)
		}
		if is, _ := overridden(system.doc, boot); is {
			return nil
		}
		declared := system.doc.object("Boot").texts("BootSourceOverrideTarget@Redfish.AllowableValues")
		if len(declared) > 0 && boot.Target != "" && !slices.Contains(declared, boot.Target) {
			return refusedf(op, ErrNotAllowed, "the machine boots from %v and not from %q", declared, boot.Target)
		}
		outcome = b.send(ctx, c.config.Timeout, func(api *gofish.APIClient) error { return patchBoot(api, uri, etag(system), boot) })
		if ClassOf(outcome.err) != ClassStale || try > 0 { // changed since it was read: once more with what it is now
			break
		}
	}
	if outcome.err != nil && !outcome.lost {
		return c.classified(op, nil, outcome.err)
	}
	seen := ""
	done, err := c.until(ctx, c.bootSettle, c.bootSettle/10, func(ctx context.Context) (is bool, err error) {
		_, system, err := b.machine(ctx)
		if err != nil {
			return false, err
		}
		is, seen = overridden(system.doc, boot)
		return is, nil
	})
	switch {
	case done:
		return nil
	case outcome.lost || err != nil && seen == "":
		return unknown(op, outcome.err)
	}
	return &sources.Error{Kind: sources.KindConflict, Op: op, Err: ErrNoEffect, Message: fmt.Sprintf("%s: it reports %s", ErrNoEffect, seen)}
}

func etag(a *answer) string {
	if tag := a.header.Get("ETag"); tag != "" {
		return tag
	}
	return a.doc.text("@odata.etag")
}

func overridden(system document, boot Boot) (is bool, seen string) {
	now := system.object("Boot")
	target, enabled, mode := now.text("BootSourceOverrideTarget"), now.text("BootSourceOverrideEnabled"), now.text("BootSourceOverrideMode")
	seen = fmt.Sprintf("%s %s %s", target, enabled, mode)
	if boot.Enabled == "Disabled" {
		return enabled == "Disabled", seen
	}
	return target == boot.Target && enabled == boot.Enabled && (boot.Mode == "" || mode == boot.Mode), seen
}

// patchBoot sends an override through gofish, on a System built from what this
// needs, with the ETag that was read just before.
func patchBoot(api *gofish.APIClient, uri, etag string, boot Boot) error {
	raw, err := json.Marshal(map[string]any{"@odata.id": uri, "Id": id(uri)})
	if err != nil {
		return err
	}
	var system schemas.ComputerSystem
	if err := json.Unmarshal(raw, &system); err != nil {
		return err
	}
	system.SetClient(api)
	system.SetETag(etag)
	override := schemas.Boot{BootSourceOverrideEnabled: schemas.BootSourceOverrideEnabled(boot.Enabled), BootSourceOverrideMode: schemas.BootSourceOverrideMode(boot.Mode)}
	if boot.Enabled != "Disabled" {
		override.BootSourceOverrideTarget = schemas.BootSource(boot.Target)
	}
	return system.SetBoot(&override)
}
