package main

import (
	"fmt"
	"io"
	"strings"
)

// report collects tables in the order in which they are measured.
type report struct {
	tables []*table
	said   io.Writer // told of each table at once

	commit, loadBefore string // when the run began
}

// table is one measured piece of work, with what it should reach.
type table struct {
	title, note string
	header      []string
	rows        [][]string
	targets     []target
	remarks     []string
}

type target struct {
	what    string
	got     float64
	bound   bound
	limit   float64
	reached bool
}

// bound says on which side of the limit a figure should lie.
type bound string

const (
	atMost  bound = "≤"
	atLeast bound = "≥"
)

var raceHeader = []string{"contender", "CPU per op", "middle half", "of the first", "allocs", "bytes"}

// table starts a table; the one before is complete.
func (r *report) table(title, note string, args ...any) *table {
	r.say()
	t := &table{title: title, note: fmt.Sprintf(note, args...), header: raceHeader}
	r.tables = append(r.tables, t)
	return t
}

// say writes the table that was completed last.
func (r *report) say() {
	if len(r.tables) > 0 {
		fmt.Fprint(r.said, r.tables[len(r.tables)-1].markdown())
	}
}

// figures adds the results of one race.
func (t *table) figures(figures ...figure) {
	for _, f := range figures {
		t.rows = append(t.rows, []string{f.name, perOp(f.ns), perOp(f.low) + " – " + perOp(f.high), times(f.ratio), short(f.allocs), short(f.bytes)})
	}
}

// row adds a row of texts, for tables with a header of their own.
func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// target notes what a figure should be.
func (t *table) target(what string, got float64, b bound, limit float64) {
	reached := got <= limit
	if b == atLeast {
		reached = got >= limit
	}
	t.targets = append(t.targets, target{what, got, b, limit, reached})
}

// remark adds a sentence under the table.
func (t *table) remark(format string, args ...any) {
	t.remarks = append(t.remarks, fmt.Sprintf(format, args...))
}

func (t *table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### %s\n\n", t.title)
	if t.note != "" {
		fmt.Fprintf(&b, "%s.\n\n", upper(t.note))
	}
	writeRow(&b, t.header)
	writeRow(&b, strings.Split(strings.Repeat("---,", len(t.header)-1)+"---", ","))
	for _, row := range t.rows {
		writeRow(&b, row)
	}
	if len(t.targets) > 0 {
		b.WriteString("\n")
	}
	for _, g := range t.targets {
		fmt.Fprintf(&b, "- %s: **%s**, to reach %s %s: %s\n", g.what, short(g.got), g.bound, short(g.limit), verdict(g.reached))
	}
	if len(t.remarks) > 0 {
		b.WriteString("\n" + strings.Join(t.remarks, " ") + "\n")
	}
	return b.String()
}

// summary lists every target of the run.
func (r *report) summary() string {
	var b strings.Builder
	writeRow(&b, []string{"work", "figure", "got", "to reach", ""})
	writeRow(&b, []string{"---", "---", "---", "---", "---"})
	for _, t := range r.tables {
		for _, g := range t.targets {
			writeRow(&b, []string{t.title, g.what, short(g.got), string(g.bound) + " " + short(g.limit), verdict(g.reached)})
		}
	}
	return b.String()
}

func writeRow(b *strings.Builder, cells []string) {
	fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
}

func verdict(reached bool) string {
	if reached {
		return "reached"
	}
	return "missed"
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func times(ratio float64) string { return "× " + short(ratio) }

// short spells a figure with three digits that count.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.001:
		return fmt.Sprintf("%.1e", v)
	case v < 0.1:
		return fmt.Sprintf("%.4f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(int64(v + 0.5))
}

func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
