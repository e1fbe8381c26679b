package engine

import (
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// catalogues looks at the families that are data: what one names and another
// lacks, and what is in none of the others.
func (l *linter) catalogues(values packages) {
	workflows := entriesOf(values["policies/workflows"], "workflows")
	policies := entriesOf(values["policies/eligibility"], "eligibility")
	var ofTasks []string
	if operations := values["policies/operations"]; operations.Exists() { // a bundle may have none
		ofTasks = textsOf(operations, "failure_codes")
	}
	l.failures(entriesOf(values["policies/failures"], "failures"), workflows, ofTasks)
	l.refusals(entriesOf(values["policies/eligibility"], "refusals"), policies)
	for _, workflow := range workflows {
		l.parameters(workflow)
	}
	counted := slices.Clone(workflows)
	for _, operation := range entriesOf(values["policies/operations"], "operations") {
		counted = append(counted, entry{operationPrefix + operation.name, operation.value})
	}
	l.caps(entriesOf(values["policies/limits"].LookupPath(cue.ParsePath("limits")), "blast_caps"), counted)
}

// caps tells of caps that never count a device.
func (l *linter) caps(caps, workflows []entry) {
	disruptive := map[string]bool{}
	for _, workflow := range workflows {
		disruptive[workflow.name] = flagOf(workflow.value, "disruptive")
	}
	for _, one := range caps {
		counted := textsOf(one.value, "workflows")
		if len(counted) > 0 && !slices.ContainsFunc(counted, func(name string) bool { return disruptive[name] }) {
			l.say(writtenAt(one.value.LookupPath(cue.ParsePath("workflows"))), Warning, "limits.blast_caps.%s counts no device: none of its workflows is disruptive", one.name)
		}
	}
}

// entry is one field of a catalogue.
type entry struct {
	name  string
	value cue.Value
}

func entriesOf(v cue.Value, field string) []entry {
	catalogue := v.LookupPath(cue.MakePath(cue.Str(field)))
	if !catalogue.Exists() {
		return nil
	}
	var all []entry
	fields, err := catalogue.Fields()
	for err == nil && fields.Next() {
		all = append(all, entry{fields.Selector().Unquoted(), fields.Value()})
	}
	return all
}

// failures tells of failure codes that no workflow raises.
func (l *linter) failures(codes, workflows []entry, ofTasks []string) {
	raised := map[string]bool{}
	for _, code := range ofTasks {
		raised[code] = true
	}
	for _, workflow := range workflows {
		for _, code := range textsOf(workflow.value, "failure_codes") {
			raised[code] = true
		}
	}
	for _, code := range codes {
		if len(workflows) > 0 && !raised[code.name] && !flagOf(code.value, "of_any_workflow") {
			l.say(entryField(code.value, "meaning"), Warning, "failures.%s: no workflow raises it", code.name)
		}
	}
}

// refusals tells of refusal codes of gates that no gate has. What the schema's own
// gates refuse with is there for who writes the field that stands for them.
func (l *linter) refusals(codes, policies []entry) {
	raised := map[string]bool{}
	for code := range shorthands {
		raised[code] = true
	}
	for _, policy := range policies {
		gates, err := policy.value.LookupPath(cue.ParsePath("gates")).List()
		for err == nil && gates.Next() {
			raised[textOf(gates.Value(), "code")] = true
		}
	}
	for _, code := range codes {
		if flagOf(code.value, "gate") && !raised[code.name] {
			l.say(entryField(code.value, "meaning"), Warning, "refusals.%s: no gate refuses with it", code.name)
		}
	}
}

// parameters tells of devices that are held by what no submission says, and of
// what a submission could say although the server knows it.
func (l *linter) parameters(workflow entry) {
	parameters := workflow.value.LookupPath(cue.MakePath(cue.Def(parametersDef)))
	held, err := workflow.value.LookupPath(cue.ParsePath("held_device_parameters")).List()
	for err == nil && held.Next() {
		name, _ := held.Value().String()
		if !parameters.LookupPath(cue.MakePath(cue.Str(name))).Exists() {
			l.say(posOf(held.Value().Pos()), Error, "workflows.%s has no parameter %s to hold devices by", workflow.name, name)
		}
	}
	stamped := map[string]string{}
	for _, fact := range facts.Fields {
		if site, ok := strings.CutPrefix(fact.Path, "site."); ok {
			stamped[site] = "it is a fact of the site"
		}
	}
	for _, stamp := range entriesOf(workflow.value, "stamped") {
		stamped[stamp.name] = "the server stamps it"
	}
	fields, err := parameters.Fields(cue.Optional(true))
	for err == nil && fields.Next() {
		if why, ok := stamped[fields.Selector().Unquoted()]; ok {
			l.say(posOf(fields.Value().Pos()), Error, "workflows.%s: no submission may say %s: %s", workflow.name, fields.Selector().Unquoted(), why)
		}
	}
}
