package netbox

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// owners are the kinds that keep what they refer to from being deleted; a
// platform and a location's own place do not.
var owners = []string{world.KindDevice, world.KindRack, world.KindDeviceType}

// delete removes one object that nothing depends on.
func (x *exchange) delete(k *kind, id int) {
	var before *world.Object
	x.world.Read(func(s *world.State) { before = s.Object(k.name, id) })
	err := x.world.Do(x.effect("delete", k, before, id), func(s *world.State) error {
		o := s.Object(k.name, id)
		if o == nil {
			return refused(http.StatusNotFound, x.noSuch(k))
		}
		return x.remove(s, k, o)
	})
	if !x.refusedWith(err) {
		x.w.WriteHeader(http.StatusNoContent)
	}
}

// deleteAll removes every object of a list, or none.
func (x *exchange) deleteAll(k *kind) {
	list, ok := x.listed()
	if !ok {
		return
	}
	err := x.world.Do(world.Effect{Face: "netbox", Op: "delete " + k.name, Subject: fmt.Sprintf("%d objects", len(list))}, func(s *world.State) error {
		ids, _, r := x.found(s, k, list)
		if r != nil {
			return r
		}
		for _, id := range ids {
			if err := x.remove(s, k, s.Object(k.name, id)); err != nil {
				return err
			}
		}
		return nil
	})
	if !x.refusedWith(err) {
		x.w.WriteHeader(http.StatusNoContent)
	}
}

// remove deletes an object, unless others need it.
func (x *exchange) remove(s *world.State, k *kind, o *world.Object) error {
	v := &view{related: map[string]*world.Object{}}
	var dependents []string
	for _, owner := range owners {
		for _, other := range s.Objects.Of(owner) {
			for member, kindName := range references {
				if kindName == k.name && kindName != world.KindPlatform && kindName != world.KindIP && other.Int(member) == o.ID {
					dependents = append(dependents, fmt.Sprintf("%s (%d)", v.display(other), other.ID))
					break
				}
			}
		}
	}
	if len(dependents) > 0 {
		return refused(http.StatusConflict, fmt.Sprintf("Unable to delete object. %d dependent objects were found: %s", len(dependents), strings.Join(dependents, ", ")))
	}
	x.forget(s, k, o)
	s.DeleteObject(o)
	return nil
}

// forget takes an object out of those that only mention it.
func (x *exchange) forget(s *world.State, k *kind, o *world.Object) {
	var rows []*world.Object
	for _, other := range s.Objects.Of(world.KindDevice) {
		if k.name == world.KindTag && slices.Contains(other.Tags, o.ID) || k.name == world.KindPlatform && other.Int("platform") == o.ID ||
			k.name == world.KindIP && (other.Int("oob_ip") == o.ID || other.Int("primary_ip4") == o.ID) {
			rows = append(rows, other)
		}
	}
	for _, row := range rows {
		edit := s.Objects.Edit(row.Key())
		if k.name == world.KindTag {
			edit.Tags = slices.DeleteFunc(edit.Tags, func(id int) bool { return id == o.ID })
		}
		for member, kindName := range references {
			if kindName == k.name && edit.Int(member) == o.ID {
				delete(edit.Fields, member)
			}
		}
		s.Objects.Put(edit.Key(), edit)
	}
}
