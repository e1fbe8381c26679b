package netbox

import (
	"fmt"
	"net/http"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// bad is what is wrong with one of many objects.
type bad struct {
	by     string // id or index
	at     int
	errors map[string]any
}

// bulkRefusal tells what is wrong with some of many objects. Up to 4.6 it is the
// first one's errors, without saying whose they are.
func (f *face) bulkRefusal(detail string, all []bad) *refusal {
	if f.generation < 47 {
		return &refusal{status: http.StatusBadRequest, body: wire.Value(nil, all[0].errors)}
	}
	b := append(wire.Quote([]byte(`{"detail":`), detail), `,"errors":[`...)
	for i, one := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{%q:%d,"errors":%s}`, one.by, one.at, wire.Value(nil, one.errors))
	}
	return &refusal{status: http.StatusBadRequest, body: append(b, "]}"...)}
}

func about(text string) map[string]any { return map[string]any{"id": []string{text}} }

// create makes one object of a body that is one, or all of a list or none.
func (x *exchange) create(k *kind) {
	body, ok := x.body()
	if !ok {
		return
	}
	list, many := body.([]any)
	if !many {
		list = []any{body}
	}
	if len(k.inputs) == 0 {
		x.detail(http.StatusForbidden, noPermission)
		return
	}
	var made []*world.Object
	subject := k.name
	if first, ok := first(list)["name"].(string); ok {
		subject = first
	}
	err := x.world.Do(world.Effect{Face: "netbox", Op: "create " + k.name, Subject: subject}, func(s *world.State) error {
		var wrong []bad
		for i, one := range list {
			fields, ok := one.(map[string]any)
			c := &change{face: x.face, s: s, k: k, problems: map[string]any{}}
			o := &world.Object{Kind: k.name, Fields: map[string]any{}, Custom: map[string]any{}}
			if !ok {
				c.problem(x.general(), "Invalid data. Expected a dictionary, but got "+typeName(one)+".")
			} else if crash := c.fresh(o, fields); crash != "" {
				return x.crash(crash)
			}
			if len(c.problems) > 0 {
				wrong = append(wrong, bad{"index", i, c.problems})
				continue
			}
			made = append(made, s.AddObject(o))
		}
		switch {
		case len(wrong) > 0 && many:
			return x.bulkRefusal(fmt.Sprintf("%d of %d objects could not be created.", len(wrong), len(list)), wrong)
		case len(wrong) > 0:
			return &refusal{status: http.StatusBadRequest, body: wire.Value(nil, wrong[0].errors)}
		}
		return nil
	})
	if x.refusedWith(err) {
		return
	}
	if !many {
		x.show(http.StatusCreated, k, made[0], k.full)
		return
	}
	x.showAll(http.StatusCreated, k, made)
}

func first(list []any) map[string]any {
	if len(list) == 0 {
		return nil
	}
	o, _ := list[0].(map[string]any)
	return o
}

// fresh fills a new object.
func (c *change) fresh(o *world.Object, body map[string]any) (crash string) {
	for _, in := range c.k.inputs {
		if in.name == "status" && in.form == "choice" {
			o.Fields["status"] = "active"
		}
	}
	if c.k.name == world.KindIP && body["assigned_object_type"] == "dcim.interface" {
		if id, ok := number(body["assigned_object_id"]); ok {
			o.Fields["device"] = int(id) // the BMC's interface has the device's id
		}
	}
	return c.apply(o, body, true)
}

func (x *exchange) showAll(status int, k *kind, list []*world.Object) {
	v := x.view(k, list)
	b := []byte{'['}
	for i, o := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = v.print(b, k, k.full, o)
	}
	x.send(status, append(b, ']'))
}

// listed reads a body that must be a list of objects with ids.
func (x *exchange) listed() ([]map[string]any, bool) {
	body, ok := x.body()
	if !ok {
		return nil, false
	}
	list, ok := body.([]any)
	if !ok {
		if x.generation >= 47 {
			x.detail(http.StatusBadRequest, "Expected a list of objects, but got "+typeName(body)+".")
		} else {
			x.send(http.StatusBadRequest, wire.Value(nil, map[string][]string{x.general(): {fmt.Sprintf("Expected a list of items but got type \"%s\".", typeName(body))}}))
		}
		return nil, false
	}
	var objects []map[string]any
	var wrong []bad
	for i, one := range list {
		o, _ := one.(map[string]any)
		if _, ok := number(o["id"]); !ok {
			wrong = append(wrong, bad{"index", i, about("This field is required.")})
		}
		objects = append(objects, o)
	}
	if len(wrong) == 0 {
		return objects, true
	}
	if x.generation < 47 {
		x.send(http.StatusBadRequest, wire.Value(nil, []map[string]any{wrong[0].errors}))
	} else {
		x.refusedWith(x.bulkRefusal(fmt.Sprintf("%d of %d objects failed validation.", len(wrong), len(list)), wrong))
	}
	return nil, false
}

// found gives the objects of a bulk request, the last of those named twice. What
// is not there is dropped up to 4.6, and so is what is named twice; 4.7 refuses
// both.
func (x *exchange) found(s *world.State, k *kind, list []map[string]any) (ids []int, bodies map[int]map[string]any, r *refusal) {
	bodies = map[int]map[string]any{}
	times := map[int]int{}
	var unknown, twice []bad
	for _, body := range list {
		n, _ := number(body["id"])
		id := int(n)
		if times[id]++; times[id] > 1 {
			bodies[id] = body
			if times[id] == 2 {
				twice = append(twice, bad{by: "id", at: id})
			}
			continue
		}
		o := s.Object(k.name, id)
		if o == nil || !x.mine(s, o) {
			unknown = append(unknown, bad{"id", id, about(fmt.Sprintf("Object with ID %d does not exist", id))})
			continue
		}
		ids = append(ids, id)
		bodies[id] = body
	}
	for i := range twice {
		twice[i].errors = about(fmt.Sprintf("Each object may be specified only once; ID %d is listed %d times", twice[i].at, times[twice[i].at]))
	}
	switch {
	case x.generation < 47:
	case len(twice) > 0:
		return nil, nil, x.bulkRefusal(fmt.Sprintf("%d of %d objects are listed more than once.", len(twice), len(list)), twice)
	case len(unknown) > 0:
		return nil, nil, x.bulkRefusal(fmt.Sprintf("%d of %d objects could not be found.", len(unknown), len(list)), unknown)
	}
	return ids, bodies, nil
}

// patchAll changes every object of a list, or none.
func (x *exchange) patchAll(k *kind) {
	list, ok := x.listed()
	if !ok {
		return
	}
	var written []*world.Object
	err := x.world.Do(world.Effect{Face: "netbox", Op: "patch " + k.name, Subject: fmt.Sprintf("%d objects", len(list))}, func(s *world.State) error {
		ids, bodies, r := x.found(s, k, list)
		if r != nil {
			return r
		}
		var wrong []bad
		for _, id := range ids {
			o := edit(s, k, id)
			c := &change{face: x.face, s: s, k: k, problems: map[string]any{}}
			if crash := c.apply(o, bodies[id], false); crash != "" {
				return x.crash(crash)
			}
			if len(c.problems) > 0 {
				wrong = append(wrong, bad{"id", id, c.problems})
				continue
			}
			s.ChangeObject(o)
			written = append(written, o)
		}
		if len(wrong) > 0 {
			return x.bulkRefusal(fmt.Sprintf("%d of %d objects could not be updated.", len(wrong), len(list)), wrong)
		}
		return nil
	})
	if !x.refusedWith(err) {
		x.showAll(http.StatusOK, k, written)
	}
}
