package render

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/musterhq/muster/engine"
)

// TestReport is one run of policy tests.
type TestReport struct {
	Dir       string
	Results   []engine.TestResult
	Verbose   bool // every test, not the failed ones alone
	Coverage  bool
	Uncovered []engine.Uncovered
}

// Failed counts the tests that did not pass.
func (r *TestReport) Failed() int {
	failed := 0
	for i := range r.Results {
		if !r.Results[i].Passed {
			failed++
		}
	}
	return failed
}

// Write prints the report, format table or json.
func (r *TestReport) Write(w io.Writer, format string) error {
	if format == "json" {
		return r.json(w)
	}
	if err := r.table(w); err != nil {
		return err
	}
	for i := range r.Results {
		t := &r.Results[i]
		switch {
		case !t.Passed:
			fmt.Fprintf(w, "\n%s: %s: %s\n  want %s\n  got  %s\n", r.place(t.Pos), t.Policy, t.Name, t.Want, t.Got)
		case r.Verbose:
			fmt.Fprintf(w, "%s: %s: %s: %s\n", r.place(t.Pos), t.Policy, t.Name, t.Got)
		}
	}
	if r.Coverage {
		for _, u := range r.Uncovered {
			fmt.Fprintf(w, "%s: %s: no test reaches %s\n", r.place(u.Pos), u.Policy, u.Part)
		}
	}
	failed := r.Failed()
	fmt.Fprintf(w, "\n%s, %d failed", Plural(len(r.Results), "test"), failed)
	if r.Coverage {
		fmt.Fprintf(w, ", %s not reached", Plural(len(r.Uncovered), "part"))
	}
	_, err := fmt.Fprintln(w)
	return err
}

// table counts by policy, in the order of the run.
func (r *TestReport) table(w io.Writer) error {
	type count struct{ all, failed int }
	counts := map[string]*count{}
	var order []string
	for i := range r.Results {
		policy := r.Results[i].Policy
		c := counts[policy]
		if c == nil {
			c = &count{}
			counts[policy] = c
			order = append(order, policy)
		}
		c.all++
		if !r.Results[i].Passed {
			c.failed++
		}
	}
	var rows [][]string
	for _, policy := range order {
		c := counts[policy]
		verdict := "ok"
		if c.failed > 0 {
			verdict = "FAILED"
		}
		rows = append(rows, []string{policy, strconv.Itoa(c.all), strconv.Itoa(c.failed), verdict})
	}
	return Table(w, []string{"POLICY", "TESTS", "FAILED", ""}, rows)
}

func (r *TestReport) place(p engine.Pos) string {
	p.File = filepath.Join(r.Dir, filepath.FromSlash(p.File))
	return p.Short()
}

func (r *TestReport) json(w io.Writer) error {
	type test struct {
		Policy  string   `json:"policy"`
		Name    string   `json:"name"`
		Pos     string   `json:"pos"`
		Passed  bool     `json:"passed"`
		Want    string   `json:"want"`
		Got     string   `json:"got"`
		Reached []string `json:"reached"`
	}
	type part struct {
		Policy string `json:"policy"`
		Part   string `json:"part"`
		Pos    string `json:"pos"`
	}
	report := struct {
		Tests     []test  `json:"tests"`
		Failed    int     `json:"failed"`
		Uncovered *[]part `json:"uncovered,omitempty"`
	}{Tests: []test{}, Failed: r.Failed()}
	for _, t := range r.Results {
		report.Tests = append(report.Tests, test{t.Policy, t.Name, r.place(t.Pos), t.Passed, t.Want, t.Got, t.Reached})
	}
	if r.Coverage {
		parts := []part{}
		for _, u := range r.Uncovered {
			parts = append(parts, part{u.Policy, u.Part, r.place(u.Pos)})
		}
		report.Uncovered = &parts
	}
	return JSON(w, report)
}
