package engine

import (
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// operationPrefix goes before an operation's code where it stands beside the slugs
// of workflows: in eligibility, caps and breakers.
const operationPrefix = "operation_"

// Operation is one entry of the catalogue of rack operations.
type Operation struct {
	Code  string
	Type  string // power_control, firmware_control or decommission
	Title string
	Pos   Pos

	Disruptive bool // its devices count under the blast caps

	// Rule is the built-in rule as JSON, as policies/operations writes it. Package
	// operations/rule reads it.
	Rule []byte

	// Rack tells of each component type whether the operation on it locks every
	// device of the rack, else it locks the components.
	Rack map[string]bool

	// Resets gives for each component type the kinds of Redfish reset that carry
	// the operation out, the best first. None of a type: nothing is reset for it.
	Resets map[string][]string
}

// Policy is the name of the operation's eligibility, by which caps and breakers
// count it too. Its one parameter is override, a bool.
func (o *Operation) Policy() string { return operationPrefix + o.Code }

// OperationDefaults are what a request for an operation counts as where it does
// not say.
type OperationDefaults struct {
	Conflict string        // refuse or queue
	QueueFor time.Duration // how long a waiting task waits
}

// Operations lists the catalogue in the order of codes. The caller may not change
// it.
func (b *Bundle) Operations() []Operation { return b.operations }

// Operation finds an operation by its code.
func (b *Bundle) Operation(code string) (*Operation, bool) {
	i := slices.IndexFunc(b.operations, func(o Operation) bool { return o.Code == code })
	if i < 0 {
		return nil, false
	}
	return &b.operations[i], true
}

// OperationDefaults gives the defaults of requests.
func (b *Bundle) OperationDefaults() OperationDefaults { return b.rackDefault }

// ComponentType says as which component of a rack devices of a class count, "" for
// none.
func (b *Bundle) ComponentType(class facts.DeviceClass) string {
	for kind, classes := range b.components {
		if slices.Contains(classes, class.String()) {
			return kind
		}
	}
	return ""
}

// operations reads the catalogue of rack operations, which a bundle may lack. What
// its entries lack the schema tells.
func (c *compiler) operations(b *Bundle, v cue.Value) {
	entries := v.LookupPath(cue.ParsePath("operations"))
	if !entries.Exists() {
		return
	}
	locks, resets := v.LookupPath(cue.ParsePath("locks")), v.LookupPath(cue.ParsePath("resets"))
	c.each(entries, "operations", func(code string, entry cue.Value) {
		rule := entry.LookupPath(cue.ParsePath("rule"))
		o := Operation{Code: code, Type: textOf(rule, "operation_type"), Title: textOf(entry, "title"), Pos: entryField(entry, "title"), Disruptive: flagOf(entry, "disruptive"), Rack: map[string]bool{}, Resets: map[string][]string{}}
		var err error
		if o.Rule, err = rule.MarshalJSON(); err != nil {
			c.fail(o.Pos, "operations.%s: %s", code, brief(err))
		}
		own := locks.LookupPath(cue.MakePath(cue.Str(code)))
		if !own.Exists() {
			c.fail(o.Pos, "locks.%s is missing: say in policies/operations what the operation locks", code)
			return
		}
		c.each(own, "locks."+code, func(kind string, scope cue.Value) {
			text, _ := scope.String()
			o.Rack[kind] = text == "rack"
		})
		c.each(resets.LookupPath(cue.MakePath(cue.Str(code))), "resets."+code, func(kind string, kinds cue.Value) {
			var list []string
			if kinds.Decode(&list) == nil { // the schema has seen to it
				o.Resets[kind] = list
			}
		})
		b.operations = append(b.operations, o)
	})
	slices.SortFunc(b.operations, func(a, b Operation) int { return strings.Compare(a.Code, b.Code) })
	b.components = map[string][]string{}
	c.each(v.LookupPath(cue.ParsePath("components")), "components", func(kind string, classes cue.Value) {
		c.classesOf(b, kind, classes)
	})
	defaults := v.LookupPath(cue.ParsePath("defaults"))
	b.rackDefault = OperationDefaults{Conflict: textOf(defaults, "conflict"), QueueFor: c.duration(defaults, "queue_for")}
}

// classesOf reads the device classes of a component type; a class is of one type.
func (c *compiler) classesOf(b *Bundle, kind string, v cue.Value) {
	list, err := v.List()
	for err == nil && list.Next() {
		class, _ := list.Value().String()
		for other, classes := range b.components {
			if slices.Contains(classes, class) {
				c.fail(posOf(list.Value().Pos()), "components.%s: devices of class %s are of type %s already", kind, class, other)
			}
		}
		b.components[kind] = append(b.components[kind], class)
	}
}
