package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/sources"
)

// Change says what Update writes of a device. What it does not name stays as
// it is.
type Change struct {
	If     Version // refuse where the device has changed since this reading; the zero Version: whatever it is
	Status string  // a slug; "" leaves it: a device has one always

	AddTags    []string // slugs of tags that NetBox has
	RemoveTags []string

	CustomFields map[string]Value
	Note         string // for NetBox's change log, from 4.4 on
}

// Value is what a custom field becomes. The zero Value is none: leave the field
// out of the Change instead.
type Value struct {
	given bool
	value any
}

// Set gives a field a value as Get gives it: a choice by its value, several
// choices as a list of them, a related object by its id or by {id}.
func Set(value any) Value { return Value{given: true, value: value} }

// Clear empties a field.
func Clear() Value { return Value{given: true} }

// Update reads a device, writes what of the change is not so yet, and gives the
// device as a later reading shows it: the change is done only if that has it.
// What is so already is not written.
//
// The kinds of its errors: missing (ErrGone), forbidden, refused (NetBox does
// not take the value, or took it and did not store it), conflict (ErrChanged:
// somebody else changed the device; read it again and decide), transient.
func (c *Client) Update(ctx context.Context, id string, change Change) (*Device, error) {
	op := "change NetBox device " + sources.CleanText(id, 32)
	before, err := c.Read(ctx, id)
	if err != nil {
		return nil, during(op, err)
	}
	if change.If != (Version{}) && change.If != before.Version {
		return nil, &sources.Error{Kind: sources.KindConflict, Op: op, Message: "the device was changed since it was read: read it again and decide anew", Err: ErrChanged}
	}
	body, err := change.against(before)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	if body == nil {
		return before, nil
	}
	_, fault := c.call(ctx, op, request{method: "PATCH", url: c.path("dcim/devices/"+id+"/", nil), body: body, ifMatch: before.Version.etag})
	switch {
	case fault == nil:
	case fault.Kind == sources.KindMissing:
		// It was there a moment ago. To a token that may not change a device
		// NetBox says that there is none.
		fault.Kind = sources.KindForbidden
		fault.Message += ": the token may read this device and not change it, or the device was deleted just now"
		return nil, fault
	case fault.Kind != sources.KindTransient:
		return nil, fault
	}
	after, err := c.Read(ctx, id)
	if err != nil {
		if fault != nil {
			err = fault
		}
		return nil, during(op, err)
	}
	wrong := change.missing(after)
	switch {
	case wrong == "":
		return after, nil // an answer that was lost took effect, too
	case fault != nil:
		return nil, fault
	}
	return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: "NetBox took the change and a later reading does not show it: " + wrong}
}

// during names the write that a reading failed for.
func during(op string, err error) error {
	var e *sources.Error
	if errors.As(err, &e) {
		return &sources.Error{Kind: e.Kind, Op: op, Message: e.Message, RetryAfter: e.RetryAfter, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}

// against gives the body of the request that makes the change, nil where all of
// it is so already.
func (ch Change) against(d *Device) ([]byte, error) {
	if d.Undecodable != "" {
		return nil, errors.New(d.Undecodable)
	}
	body := map[string]any{}
	if ch.Status != "" && !(d.Netbox.Status.Known && d.Netbox.Status.Value == ch.Status) {
		body["status"] = ch.Status
	}
	tags, err := ch.tags(d)
	if err != nil {
		return nil, err
	}
	if tags != nil {
		body["tags"] = tags
	}
	fields := map[string]any{}
	for name, value := range ch.CustomFields {
		now, has := d.Netbox.CustomFields[name]
		switch unread := d.Netbox.Unreadable["custom_fields."+name] != ""; {
		case !value.given:
			return nil, fmt.Errorf("custom field %q: it is neither set nor cleared", name)
		case !has && !unread:
			// 4.4 would take it, and store nothing.
			return nil, fmt.Errorf("NetBox has no custom field %q for devices: make it there, or correct its name", sources.CleanText(name, maxName))
		case unread || !same(value.value, now):
			fields[name] = written(value.value)
		}
	}
	if len(fields) > 0 {
		body["custom_fields"] = fields
	}
	if len(body) == 0 {
		return nil, nil
	}
	if ch.Note != "" {
		body["changelog_message"] = sources.CleanText(ch.Note, 200)
	}
	return json.Marshal(body)
}

// tags gives all tags of the device as they are to be, nil to leave them. They
// are written whole: before 4.6 NetBox knows no other way.
func (ch Change) tags(d *Device) ([]map[string]string, error) {
	if len(ch.AddTags)+len(ch.RemoveTags) == 0 {
		return nil, nil
	}
	if d.Netbox.Unreadable["tags"] != "" || d.Netbox.Tags == nil {
		return nil, errors.New("the device's tags cannot be read, and writing would lose the others")
	}
	want := map[string]bool{}
	for _, slug := range d.Netbox.Tags {
		want[slug] = true
	}
	for _, slug := range ch.AddTags {
		want[slug] = true
	}
	for _, slug := range ch.RemoveTags {
		if slices.Contains(ch.AddTags, slug) {
			return nil, fmt.Errorf("tag %q is to be added and removed", slug)
		}
		delete(want, slug)
	}
	slugs := slices.Sorted(maps.Keys(want))
	if slices.Equal(slugs, d.Netbox.Tags) {
		return nil, nil
	}
	tags := make([]map[string]string, 0, len(slugs))
	for _, slug := range slugs {
		tags = append(tags, map[string]string{"slug": slug})
	}
	return tags, nil
}

// missing says what of the change a reading does not show, "" for nothing.
func (ch Change) missing(d *Device) string {
	if d.Undecodable != "" {
		return d.Undecodable
	}
	var wrong []string
	if ch.Status != "" && d.Netbox.Status.Value != ch.Status {
		wrong = append(wrong, fmt.Sprintf("status is %q", d.Netbox.Status.Value))
	}
	for _, slug := range ch.AddTags {
		if !slices.Contains(d.Netbox.Tags, slug) {
			wrong = append(wrong, fmt.Sprintf("tag %q is not there", slug))
		}
	}
	for _, slug := range ch.RemoveTags {
		if slices.Contains(d.Netbox.Tags, slug) {
			wrong = append(wrong, fmt.Sprintf("tag %q is there", slug))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ch.CustomFields)) {
		if now, has := d.Netbox.CustomFields[name]; !has || !same(ch.CustomFields[name].value, now) {
			wrong = append(wrong, fmt.Sprintf("custom field %q is %s", name, sources.CleanText(fmt.Sprint(now), 64)))
		}
	}
	return strings.Join(wrong, ", ")
}
