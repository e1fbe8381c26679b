package httpapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations/rule"
)

// step draws a step: itself, its actions, and its components.
func (c *charting) step(stage int, s *rule.Step) []chartRow {
	id := fmt.Sprintf("chart-%d-%s", stage, s.ComponentType)
	head := chartRow{ID: id, Kind: "step", Label: fmt.Sprintf("Stage %d · %s", stage, s.ComponentType)}
	n := len(c.of[s.ComponentType])
	if n == 0 {
		head.Status, head.Says = string(fleet.EntrySkipped), "skipped: the task has no such component"
		return []chartRow{head}
	}
	head.About = counted(n, "component")
	rows := []chartRow{head}
	var all []*entryView
	each := map[int64][]told{}
	for _, p := range phasesOf(s) {
		for i := range p.actions {
			a := &p.actions[i]
			entries := c.entries(entryKey{stage, s.ComponentType, p.name, i, 0}, a.PerComponent())
			all = append(all, entries...)
			if i < actionsDrawn {
				rows = append(rows, c.action(fmt.Sprintf("%s-%s-%d", id, p.name, i), p.name, a, entries))
			}
			if a.PerComponent() {
				for j, device := range c.of[s.ComponentType] {
					each[device] = append(each[device], told{p.name + " " + a.Name, entries[j]})
				}
			}
		}
	}
	rows[0].Status, rows[0].Says, rows[0].Bars = c.together(all)
	if len(each) == 0 {
		return rows
	}
	return append(rows, c.components(id, s.ComponentType, each)...)
}

// told is an entry of a component with what was done.
type told struct {
	what  string
	entry *entryView
}

var neverBegun = entryView{Status: statusPlanned}

// entries gives the entries of an action: one of the whole step, or one a
// component. What the report does not hold yet is planned.
func (c *charting) entries(key entryKey, perComponent bool) []*entryView {
	get := func(device int64) *entryView {
		key.device = device
		if e := c.found[key]; e != nil {
			return e
		}
		return &neverBegun
	}
	if !perComponent {
		return []*entryView{get(0)}
	}
	var all []*entryView
	for _, device := range c.of[key.kind] {
		all = append(all, get(device))
	}
	return all
}

// order ranks statuses: what a person should see first comes first.
var order = []string{
	string(fleet.EntryFailed), string(fleet.EntryTimedOut), string(fleet.EntryTerminated), string(fleet.EntryCancelled), string(fleet.EntryRunning), string(fleet.EntrySucceeded),
	statusPlanned, string(fleet.EntrySkipped),
}

// status is that of several entries as one: failed where one failed, running
// where some have ended and others will.
func (c *charting) status(entries []*entryView) string {
	has := map[string]bool{}
	for _, e := range entries {
		has[e.Status] = true
	}
	partly := has[string(fleet.EntrySucceeded)] && has[statusPlanned]
	for _, one := range order {
		if partly && one == string(fleet.EntrySucceeded) {
			if c.report.Task.Ended {
				return statusPlanned
			}
			return string(fleet.EntryRunning)
		}
		if has[one] {
			return one
		}
	}
	return statusPlanned
}

// together tells of entries as one: how they are, in words, and the while from
// the first start to the last end.
func (c *charting) together(entries []*entryView) (as, says string, bars []bar) {
	as = c.status(entries)
	var from, to *time.Time
	runs := false
	counts := map[string]int{}
	for _, e := range entries {
		counts[e.Status]++
		runs = runs || e.Status == string(fleet.EntryRunning)
		if e.StartedAt != nil && (from == nil || e.StartedAt.Before(*from)) {
			from = e.StartedAt
		}
		if e.FinishedAt != nil && (to == nil || e.FinishedAt.After(*to)) {
			to = e.FinishedAt
		}
	}
	if runs || as == string(fleet.EntryRunning) && !c.report.Task.Ended {
		to = nil
	}
	if len(counts) == 1 {
		says = c.word(as)
	} else {
		var parts []string
		for _, one := range order {
			if counts[one] > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", counts[one], c.word(one)))
			}
		}
		says = strings.Join(parts, ", ")
	}
	if as == string(fleet.EntrySkipped) {
		return as, says, nil
	}
	if from != nil {
		says += c.took(from, to)
	}
	return as, says, c.bar(from, to, as, says)
}

// word is a status as it is read.
func (c *charting) word(status string) string {
	switch {
	case status == statusPlanned && c.report.Task.Ended:
		return "never started"
	case status == statusPlanned:
		return "not started yet"
	}
	return strings.ReplaceAll(status, "_", " ")
}

func (c *charting) action(id, phase string, a *rule.Action, entries []*entryView) chartRow {
	row := chartRow{ID: id, Kind: "action", Label: phase + " " + a.Name, About: saysAction(a, c.rule.Operation)}
	row.Status, row.Says, row.Bars = c.together(entries)
	if !a.PerComponent() && len(entries) == 1 {
		row.Failure = entries[0].Failure
		if m := entries[0].Message; m != nil && row.Failure == nil {
			row.Says += ": " + *m
		}
	}
	return row
}

// components draws what was done with each component of a step.
func (c *charting) components(id, kind string, each map[int64][]told) []chartRow {
	var rows []chartRow
	ids := c.of[kind]
	for _, device := range ids[:min(len(ids), componentsEach)] {
		row := chartRow{ID: fmt.Sprintf("%s-%d", id, device), Kind: "component", Label: c.names[device], Device: device}
		entries := make([]*entryView, len(each[device]))
		var says []string
		for i, t := range each[device] {
			e := t.entry
			entries[i] = e
			text := c.word(e.Status) + c.took(e.StartedAt, e.FinishedAt)
			if e.Attempts > 1 {
				text += fmt.Sprintf(", %d tries", e.Attempts)
			}
			row.Bars = append(row.Bars, c.bar(e.StartedAt, e.FinishedAt, e.Status, t.what+" "+text)...)
			if e.Failure == nil && e.Message != nil {
				text += ": " + *e.Message
			}
			row.Failure = cmp.Or(row.Failure, e.Failure)
			if len(each[device]) > 1 {
				text = t.what + " " + text
			}
			says = append(says, text)
		}
		row.Status, row.Says = c.status(entries), strings.Join(says, "; ")
		rows = append(rows, row)
	}
	if len(ids) > componentsEach {
		rows = append(rows, c.rest(id, ids[componentsEach:], each))
	}
	return rows
}

// rest tells of the components that have no row of their own.
func (c *charting) rest(id string, ids []int64, each map[int64][]told) chartRow {
	row := chartRow{ID: id + "-more", Kind: "more", Label: fmt.Sprintf("%d more", len(ids))}
	var all []*entryView
	var failed []string
	for _, device := range ids {
		for _, t := range each[device] {
			all = append(all, t.entry)
			if t.entry.Failure != nil && !slices.Contains(failed, c.names[device]) {
				failed = append(failed, c.names[device])
			}
		}
	}
	row.Status, row.Says, row.Bars = c.together(all)
	if len(failed) > 0 {
		row.Says += ". Failed: " + strings.Join(failed[:min(len(failed), namesTold)], ", ")
		if len(failed) > namesTold {
			row.Says += fmt.Sprintf(" and %d more", len(failed)-namesTold)
		}
	}
	return row
}
