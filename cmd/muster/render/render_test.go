package render_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/engine"
)

func TestFindingsAreWrittenForPeopleAndMachines(t *testing.T) {
	t.Parallel()
	findings := []engine.Finding{
		{File: "policies/a.cue", Line: 3, Col: 7, Severity: engine.Error, Message: "100% wrong:\nsee, there"},
		{File: "policies/b.cue", Line: 1, Col: 1, Severity: engine.Note, Message: "well"},
	}
	for format, want := range map[string]string{
		"text":   "x/policies/a.cue:3:7: 100% wrong:\nsee, there\nx/policies/b.cue:1:1: note: well\n",
		"github": "::error file=x/policies/a.cue,line=3,col=7::100%25 wrong:%0Asee, there\n::notice file=x/policies/b.cue,line=1,col=1::well\n",
	} {
		var out strings.Builder
		if err := render.Findings(&out, format, "x", findings); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", format, err, out.String(), want)
		}
	}
	var out strings.Builder
	if err := render.Findings(&out, "json", ".", nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("no findings are %q, %v", out.String(), err)
	}
	if errs, warnings := render.Count(findings); errs != 1 || warnings != 0 {
		t.Errorf("counted %d errors, %d warnings", errs, warnings)
	}
}

func TestWhatOtherSystemsSayMovesNoCursor(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := render.Table(&out, []string{"A", "B"}, [][]string{{"a\x1b[31m\nb", ""}, {"ä\u009b", "é"}}); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\u009b") || strings.Count(text, "\n") != 3 || !strings.Contains(text, "é") {
		t.Errorf("it prints %q", text)
	}
}

func TestAgesAreReadAtAGlance(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		0: "now", 900 * time.Millisecond: "now", 59 * time.Second: "59s ago", time.Minute: "1m ago", 61 * time.Minute: "1h1m ago",
		50 * time.Hour: "2d ago", -90 * time.Second: "in 1m",
	} {
		if got := render.Age(now.Add(-ago), now); got != want {
			t.Errorf("%s ago is %q, not %q", ago, got, want)
		}
	}
	if got := render.Age(time.Time{}, now); got != "never" {
		t.Errorf("the zero instant is %q", got)
	}
}

func TestAHeldStatusSaysWhy(t *testing.T) {
	t.Parallel()
	why, rung := "rung validation would make it validation, but it rests on what is stale: SlurmSchedulable", "validation-unschedulable"
	e := render.Explanation{Status: "quarantine", Rung: &rung, Derived: true, Held: true, Operational: &render.StatusTrace{
		Trace: render.Trace{Ladder: "operational", Outcome: "quarantine", Rung: "validation", Pos: "p.cue:1"},
		Hold:  "held", HeldWhy: &why, Stale: []string{"SlurmMember", "SlurmSchedulable"}, NoRow: []string{"SlurmMember"}, PastHold: []string{"SlurmSchedulable"},
	}}
	var out strings.Builder
	if err := e.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"HELD: " + why, "stale: SlurmMember (never read), SlurmSchedulable (past its hold limit)", "NOT FRESH"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
