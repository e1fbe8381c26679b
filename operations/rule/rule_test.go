package rule_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/operations/rule"
)

var update = flag.Bool("update", false, "write what the validator says into the golden files")

var compiled = sync.OnceValues(func() (*rule.Validator, error) { return rule.New(muster.Bundle()) })

func validator(t testing.TB) *rule.Validator {
	t.Helper()
	v, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// oddRule is one entry of testdata/messages: a document, and what is said of it.
type oddRule struct {
	name string
	form []string // yaml or json; batch, rule or steps; of steps their operation
	text string
	says string
}

func (o *oddRule) check(v *rule.Validator) string {
	d := rule.Document{Name: "rule." + o.form[0], Data: []byte(o.text)}
	var c *rule.Checked
	var err error
	switch o.form[1] {
	case "batch":
		c, err = v.Batch(d)
	case "rule":
		c, err = v.Rule(d)
	default:
		c, err = v.Steps(d, rule.Head{Name: "a rule", OperationType: o.form[2], Operation: o.form[3]})
	}
	var invalid *rule.Invalid
	switch {
	case err == nil:
		said := "accepted\n"
		if lines := rule.Lines("", c.Warnings); lines != "" {
			said += lines + "\n"
		}
		return said
	case errors.As(err, &invalid):
		// The name of the file is the same everywhere.
		return rule.Lines("", invalid.Problems) + "\n"
	}
	return "failed: " + err.Error() + "\n"
}

func oddRules(t testing.TB, file string) []oddRule {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []oddRule
	for _, entry := range strings.Split("\n"+string(data), "\n=== ")[1:] {
		head, rest, _ := strings.Cut(entry, "\n")
		name, form, _ := strings.Cut(head, " | ")
		text, says, found := strings.Cut("\n"+rest+"\n", "\n--- says\n")
		if !found {
			t.Fatalf("%s: %s has no --- says", file, name)
		}
		text = strings.TrimPrefix(text, "\n")
		if text != "" {
			text += "\n"
		}
		all = append(all, oddRule{name, strings.Fields(form), text, strings.TrimSuffix(says, "\n")})
	}
	return all
}

// What is said of every bad or odd rule, in full.
func TestMessagesTellWhatIsWrong(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/messages/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no testdata/messages/*.txt", err)
	}
	v, seen := validator(t), 0
	for _, file := range files {
		var b strings.Builder
		for _, o := range oddRules(t, file) {
			seen++
			said := o.check(v)
			b.WriteString("=== " + o.name + " | " + strings.Join(o.form, " ") + "\n" + o.text + "--- says\n" + said)
			if !*update {
				t.Run(o.name, func(t *testing.T) {
					if diff := cmp.Diff(strings.TrimSuffix(o.says, "\n"), strings.TrimSuffix(said, "\n")); diff != "" {
						t.Error(diff)
					}
				})
			}
			for _, raw := range []string{"_|_", "=~", "conflicting values", "disjunction", "out of bound", "the schema refuses it", "#"} {
				if strings.Contains(said, raw) {
					t.Errorf("%s: the message is CUE's own, not ours:\n%s", o.name, said)
				}
			}
			if o.form[1] != "odd" && !strings.Contains(file, "odd") && strings.HasPrefix(said, "accepted") {
				t.Errorf("%s: it is accepted", o.name)
			}
		}
		if *update {
			if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d rules are tried", seen)
	}
}

// The examples of the format's own documentation are accepted as they stand.
func TestExamplesOfTheFormatAreAccepted(t *testing.T) {
	t.Parallel()
	v := validator(t)
	for file, operation := range map[string]string{"graceful_power_on": "power_on", "graceful_power_off": "power_off", "forceful_power_on": "force_power_on"} {
		data, err := os.ReadFile(filepath.Join("testdata", "examples", file+".json"))
		if err != nil {
			t.Fatal(err)
		}
		head := rule.Head{Name: file, OperationType: "power_control", Operation: operation}
		c, err := v.Steps(rule.Document{Name: file + ".json", Data: data}, head)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if len(c.Warnings) > 0 {
			t.Errorf("%s: %s", file, rule.Lines("", c.Warnings))
		}
		// JSON is YAML.
		again, err := v.Steps(rule.Document{Name: file + ".yaml", Data: data}, head)
		if err != nil || string(again.Rules[0].JSON()) != string(c.Rules[0].JSON()) {
			t.Errorf("%s as YAML: %v, another rule", file, err)
		}
	}
}

func TestTheShippedBatchIsAccepted(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/examples/operation-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := validator(t).Batch(rule.Document{Name: "operation-rules.yaml", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Rules) != 3 || len(c.Warnings) > 0 {
		t.Errorf("%d rules, and %s", len(c.Rules), rule.Lines("", c.Warnings))
	}
}

// A rule that was read and written is the same bytes when it is read again.
func roundTrip(t *testing.T, v *rule.Validator, r *rule.Rule) {
	t.Helper()
	first := r.JSON()
	c, err := v.Rule(rule.Document{Data: first})
	if err != nil {
		t.Fatalf("the normal form is refused: %v\n%s", err, first)
	}
	if second := c.Rules[0].JSON(); string(second) != string(first) {
		t.Fatalf("written again it is\n%s\nafter\n%s", second, first)
	}
	if !json.Valid(first) {
		t.Fatalf("it is no JSON: %s", first)
	}
}
