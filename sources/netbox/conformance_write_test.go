package netbox

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

func readOnlyToken(t *testing.T, e endpoint) {
	c := e.as(t, e.readOnly)
	d := e.fresh(t, c)
	if _, err := c.Update(t.Context(), d.Ref, Change{Status: "staged"}); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, ErrToken) {
		t.Errorf("%v", err)
	}
}

func limitedToken(t *testing.T, e endpoint) {
	id := e.foreign(t)
	c := e.connect(t, func(c *Config) { c.Token, c.Sites = e.limited, []string{e.other} })
	d, err := c.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	status := "staged"
	if d.Netbox.Status.Value == status {
		status = "planned"
	}
	if _, err := c.Update(t.Context(), id, Change{Status: status}); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func writesStatus(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	sent := time.Now()
	got, err := c.Update(t.Context(), d.Ref, Change{Status: "staged", If: d.Version, Note: "muster:42"})
	if err != nil || got.Netbox.Status.Value != "staged" || got.Version == d.Version || got.At.Before(sent) {
		t.Fatalf("%+v %v", got, err)
	}
	again, err := c.Update(t.Context(), d.Ref, Change{Status: "staged"})
	if err != nil || again.Version != got.Version {
		t.Errorf("what is so already was written: %+v %v", again, err)
	}
	if back, err := c.Update(t.Context(), d.Ref, Change{Status: "active"}); err != nil || !reflect.DeepEqual(back.Netbox, d.Netbox) {
		t.Errorf("back: %+v %v, was %+v", back, err, d.Netbox)
	}
	if _, err := c.Update(t.Context(), "999999999", Change{Status: "active"}); !errors.Is(err, sources.ErrGone) {
		t.Errorf("an unknown device: %v", err)
	}
}

func writesTags(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	got, err := c.Update(t.Context(), d.Ref, Change{AddTags: []string{e.tag}})
	if err != nil || !slices.Contains(got.Netbox.Tags, e.tag) || len(got.Netbox.Tags) != len(d.Netbox.Tags)+1 {
		t.Fatalf("%+v %v", got, err)
	}
	if again, err := c.Update(t.Context(), d.Ref, Change{AddTags: []string{e.tag}, RemoveTags: []string{"never-there"}}); err != nil || again.Version != got.Version {
		t.Errorf("what is so already was written: %v", err)
	}
	if back, err := c.Update(t.Context(), d.Ref, Change{RemoveTags: []string{e.tag}}); err != nil || !reflect.DeepEqual(back.Netbox, d.Netbox) {
		t.Errorf("back: %+v %v, was %+v", back, err, d.Netbox)
	}
}

func writesFields(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	got, err := c.Update(t.Context(), d.Ref, Change{CustomFields: map[string]Value{
		e.choice.name: Set(e.choice.values[1]), e.choices.name: Set(e.choices.values), e.number: Set(4711),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{e.choice.name: e.choice.values[1], e.number: float64(4711)}
	for name, value := range want {
		if got.Netbox.CustomFields[name] != value {
			t.Errorf("%s is %v, want %v", name, got.Netbox.CustomFields[name], value)
		}
	}
	if list, _ := got.Netbox.CustomFields[e.choices.name].([]any); len(list) != len(e.choices.values) {
		t.Errorf("%s is %v", e.choices.name, got.Netbox.CustomFields[e.choices.name])
	}
	// What was read goes back as it was read.
	back := map[string]Value{e.number: Clear()}
	for _, name := range []string{e.choice.name, e.choices.name} {
		back[name] = Set(d.Netbox.CustomFields[name])
	}
	after, err := c.Update(t.Context(), d.Ref, Change{CustomFields: back})
	if err != nil {
		t.Fatal(err)
	}
	if value, has := after.Netbox.CustomFields[e.number]; value != nil || !has {
		t.Errorf("the cleared field is %v", value)
	}
	for _, name := range []string{e.choice.name, e.choices.name} {
		if !reflect.DeepEqual(after.Netbox.CustomFields[name], d.Netbox.CustomFields[name]) {
			t.Errorf("%s is %v, was %v", name, after.Netbox.CustomFields[name], d.Netbox.CustomFields[name])
		}
	}
	for name, was := range d.Netbox.CustomFields {
		if name != e.number && !reflect.DeepEqual(after.Netbox.CustomFields[name], was) {
			t.Errorf("%s was not to be changed: %v, was %v", name, after.Netbox.CustomFields[name], was)
		}
	}
}

func refusedValue(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	for name, change := range map[string]Change{
		"a status": {Status: "bogus"},
		"a choice": {Status: "staged", CustomFields: map[string]Value{e.choice.name: Set("bogus")}},
	} {
		if _, err := c.Update(t.Context(), d.Ref, change); sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "bogus") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := c.Read(t.Context(), d.Ref); err != nil || after.Version != d.Version {
		t.Errorf("it was changed: %+v %v", after, err)
	}
}

func unknownNames(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	for name, change := range map[string]Change{
		"a tag":          {AddTags: []string{"nosuchthing"}},
		"a custom field": {CustomFields: map[string]Value{"nosuchthing": Set("x")}},
		"neither":        {CustomFields: map[string]Value{"nosuchthing": {}}},
	} {
		if _, err := c.Update(t.Context(), d.Ref, change); sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "nosuchthing") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func oldReading(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	e.rest(t, "PATCH", "devices/"+d.Ref+"/", map[string]any{"tags": []map[string]string{{"slug": e.tag}}}, nil)
	_, err := c.Update(t.Context(), d.Ref, Change{If: d.Version, Status: "staged"})
	if sources.KindOf(err) != sources.KindConflict || !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	if after, err := c.Read(t.Context(), d.Ref); err != nil || after.Netbox.Status.Value != "active" {
		t.Errorf("it was written: %+v %v", after, err)
	}
	if _, err := c.Update(t.Context(), d.Ref, Change{RemoveTags: []string{e.tag}}); err != nil {
		t.Errorf("without a reading: %v", err)
	}
}
