package engine

import (
	"strings"

	"cuelang.org/go/cue"
)

// tied lists what must be unified with which definition of the schema, by
// package and path, "*" for each field: without it the schema checks nothing,
// and neither does anything else. What the definition alone brings along tells
// that it is there.
var tied = []struct{ dir, path, definition, brings string }{
	{"policies/failures", "failures.*", "#Failure", "#tied"},
	{"policies/conditions", "writers.*", "#Writer", "#conditions"},
	{"policies/conditions", "conditions.*", "#ConditionType", "#writers"},
	{"policies/workflows", "workflows.*", "#Workflow", "#failureCode"},
	{"policies/operations", "operations.*", "#Operation", "#tied"},
	{"policies/operations", "locks.*", "#OperationLocks", "#tied"},
	{"policies/operations", "resets.*", "#OperationResets", "#tied"},
	{"policies/operations", "defaults", "#OperationDefaults", "#tied"},
	{"policies/status", "operational", "#Ladder", "#gives"},
	{"policies/status", "health", "#Ladder", "#gives"},
	{"policies/status", "freeze", "#Ladder", "#gives"},
	{"policies/status", "customer_ready", "#Ladder", "#gives"},
	{"policies/status", "entered_service", "#Ladder", "#gives"},
	{"policies/eligibility", "eligibility.*", "#Eligibility", "#short"},
	{"policies/eligibility", "refusals.*", "#Refusal", "#tied"},
	{"policies/inventory", "inventory.*.device_class", "#Ladder", "#gives"},
	{"policies/inventory", "inventory.*.inventory_status", "#Ladder", "#gives"},
	{"policies/inventory", "progress", "#ProgressTags", "#tied"},
	{"policies/limits", "limits", "#Limits", "#tied"},
	{"policies/hardware", "hardware.*", "#Hardware", "#tied"},
	{"policies/workflows", "clean_removes_trait", "#Ladder", "#gives"},
}

// ties tells of policies that were cut loose from the schema.
func (c *compiler) ties(values packages) {
	for _, t := range tied {
		brings := cue.MakePath(cue.Def(t.brings))
		if !values["schema"].LookupPath(cue.MakePath(cue.Def(t.definition), cue.Def(t.brings))).Exists() {
			continue // a schema of another make
		}
		c.tie(values[t.dir], t.path, "", func(name string, v cue.Value) {
			if !v.LookupPath(brings).Exists() {
				c.fail(writtenStruct(v), "%s is not tied to the schema: unify it with schema.%s, as the shipped policies do", name, t.definition)
			}
		})
	}
}

// tie calls check on every value that a path leads to, with its name.
func (c *compiler) tie(v cue.Value, path, above string, check func(name string, v cue.Value)) {
	name, rest, more := strings.Cut(path, ".")
	each := func(name string, field cue.Value) {
		name = strings.TrimPrefix(above+"."+name, ".")
		if more {
			c.tie(field, rest, name, check)
		} else {
			check(name, field)
		}
	}
	if name != "*" {
		if field := v.LookupPath(cue.MakePath(cue.Str(name))); field.Exists() {
			each(name, field)
		}
		return
	}
	fields, err := v.Fields()
	for err == nil && fields.Next() {
		each(fields.Selector().Unquoted(), fields.Value())
	}
}
