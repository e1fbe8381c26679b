package devices

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/store"
)

// familyOf gives the part of f that a source fills, nil for a source without
// one. A recorded inventory has NetBox's form.
func familyOf(f *facts.Facts, source string) any {
	switch source {
	case "ironic":
		return &f.Ironic
	case "placement":
		return &f.Placement
	case "slurm":
		return &f.Slurm
	case "netbox", "file":
		return &f.Netbox
	case "bmc":
		return &f.BMC
	}
	return nil
}

// goneBody is what is stored of a thing that a complete listing does not have.
// What Placement does not list has neither a provider nor an allocation; of the
// inventory's machine the tenant stays, within which its name is its own.
func goneBody(source string, was []byte) ([]byte, error) {
	var family any = &struct {
		Listed bool `json:"listed"`
	}{}
	switch source {
	case "placement":
		family = &facts.Placement{ProviderExists: facts.False, Allocated: facts.False}
	case "netbox", "file":
		var f facts.Facts
		decode(&f, source, was)
		family = &facts.Netbox{Listed: facts.False, Tenant: f.Netbox.Tenant}
	}
	body, err := json.Marshal(family)
	if err != nil {
		return nil, fmt.Errorf("encode that %s lists it no more: %w", source, err)
	}
	return body, nil
}

// said puts into kept what is kept of what a source said, without derived facts
// and with what a record says by being there, and gives that family of it.
func said(f *facts.Facts, source string, kept *facts.Facts) (facts.Canonical, error) {
	switch source {
	case "ironic":
		n := &kept.Ironic
		*n = f.Ironic
		n.LesseeRole, n.CustomerTrait, n.Settled, n.Overdue = 0, 0, 0, 0
		n.Listed = facts.True
		return n, nil
	case "slurm":
		n := &kept.Slurm
		*n = f.Slurm
		n.Drained, n.Listed = 0, facts.True
		return n, nil
	case "netbox", "file":
		n := &kept.Netbox
		*n = f.Netbox
		n.Listed = facts.True
		return n, nil
	case "placement":
		return &f.Placement, nil
	case "bmc":
		return &f.BMC, nil
	}
	return nil, fmt.Errorf("facts of %q are not modelled", source)
}

// hasher names what sources said. One goroutine uses it.
type hasher struct {
	kept facts.Facts
	form []byte
}

// hash names what a source said: it changes exactly when what is kept of it
// does.
func (h *hasher) hash(f *facts.Facts, source string) ([16]byte, error) {
	family, err := said(f, source, &h.kept)
	if err != nil {
		return [16]byte{}, err
	}
	h.form = family.AppendCanonical(h.form[:0])
	return facts.Hash(h.form), nil
}

// bodyOf gives the body to store of what a source said, in a form that
// PostgreSQL takes.
func bodyOf(f *facts.Facts, source string) ([]byte, error) {
	var kept facts.Facts
	family, err := said(f, source, &kept)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(family)
	if err != nil {
		return nil, fmt.Errorf("encode facts of %s: %w", source, err)
	}
	if body, err = store.CleanJSON(body); err != nil {
		return nil, fmt.Errorf("clean facts of %s: %w", source, err)
	}
	return body, nil
}

// decode reads a stored body into f. A fact that this build cannot read, of an
// older or newer one, stays null: what rests on it is not read.
func decode(f *facts.Facts, source string, body []byte) {
	family := familyOf(f, source)
	if family == nil || json.Unmarshal(body, family) == nil {
		return
	}
	var loose map[string]json.RawMessage
	if json.Unmarshal(body, &loose) != nil {
		return
	}
	var fresh facts.Facts
	whole := familyOf(&fresh, source)
	for name, value := range loose {
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil {
			continue
		}
		var probe facts.Facts
		if json.Unmarshal(one, familyOf(&probe, source)) == nil {
			_ = json.Unmarshal(one, whole) // it was read just now
		}
	}
	switch source {
	case "ironic":
		f.Ironic = fresh.Ironic
	case "placement":
		f.Placement = fresh.Placement
	case "slurm":
		f.Slurm = fresh.Slurm
	case "netbox", "file":
		f.Netbox = fresh.Netbox
	case "bmc":
		f.BMC = fresh.BMC
	}
}

// unreadableOf lists the facts of a source that its record had and that could
// not be decoded.
func unreadableOf(f *facts.Facts, family string) map[string]string {
	switch family {
	case "ironic":
		return f.Ironic.Unreadable
	case "slurm":
		return f.Slurm.Unreadable
	case "netbox":
		return f.Netbox.Unreadable
	case "bmc":
		return f.BMC.Unreadable
	}
	return nil
}
