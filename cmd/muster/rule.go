package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/operations/rule"
)

func (a *app) ruleCommand() *cobra.Command {
	return parent("rule", "Keep the rules by which racks are operated",
		a.ruleCreateCommand(), a.ruleListCommand(), a.ruleGetCommand(), a.ruleDeleteCommand(), a.ruleSetDefaultCommand(), a.ruleAssociateCommand(), a.ruleDisassociateCommand(), a.rulePlanCommand())
}

// ruleFlags are the flags that say what a rule is besides its steps.
type ruleFlags struct {
	head      rule.Head
	file      string
	fromYAML  string
	isDefault bool
	overwrite bool
	dryRun    bool
}

func (a *app) ruleCreateCommand() *cobra.Command {
	flags := &ruleFlags{}
	c := &cobra.Command{
		Use:   "create (--from-yaml FILE | --name NAME --operation-type TYPE --operation CODE --rule-file FILE)",
		Short: "Store operation rules, or say what is wrong with them",
		Long: `Create checks a batch of rules, or one rule whose steps a file holds, says with
file, line and column all that is wrong, and what is odd, and stores what is good: a
batch all of it or nothing. The exit code is 1 where a rule is refused.

Of a batch, operations that have a rule already are skipped; with --overwrite what
that rule says is replaced, its id, its being the default and its racks stay. With
--dry-run nothing is stored and no server is needed.`,
		Example: `  muster rule create --from-yaml docs/examples/operation-rules.yaml --dry-run
  muster rule create --from-yaml docs/examples/operation-rules.yaml --overwrite
  muster rule create --name "Power on" --operation-type power_control --operation power_on --rule-file my-rule.json --is-default`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.Flags().StringVar(&flags.fromYAML, "from-yaml", "", "a file with a batch of rules")
	c.Flags().StringVar(&flags.file, "rule-file", "", "a file with version and steps of one rule, as JSON or YAML")
	c.Flags().StringVar(&flags.head.Name, "name", "", "the rule's name")
	c.Flags().StringVar(&flags.head.Description, "description", "", "what it is for")
	c.Flags().StringVar(&flags.head.OperationType, "operation-type", "", "power_control, firmware_control or decommission")
	c.Flags().StringVar(&flags.head.Operation, "operation", "", "the operation's code, such as power_on")
	c.Flags().BoolVar(&flags.isDefault, "is-default", false, "it is to be the default of its operation")
	c.Flags().BoolVar(&flags.overwrite, "overwrite", false, "replace what the rules of a batch's operations say")
	c.Flags().BoolVar(&flags.dryRun, "dry-run", false, "check and store nothing")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := flags.complete(c); err != nil {
			return err
		}
		v, err := rule.New(muster.Bundle())
		if err != nil {
			return err
		}
		checked, name, err := flags.read(v)
		if err != nil {
			return a.refusedRules(err)
		}
		if !flags.dryRun {
			a.warnOfRules(name, checked.Warnings)
			return a.storeRules(c.Context(), conn, flags, checked, output.value)
		}
		return a.printChecked(checked, name, output.value)
	}
	return c
}

// complete says which flags are missing, or do not go together.
func (f *ruleFlags) complete(c *cobra.Command) error {
	single := []string{"name", "description", "operation-type", "operation", "rule-file", "is-default"}
	if f.fromYAML != "" {
		for _, name := range single {
			if c.Flags().Changed(name) {
				return usage("--%s is of one rule and does not go with --from-yaml: the batch says it of each", name)
			}
		}
	} else {
		var missing []string
		for _, name := range []string{"name", "operation-type", "operation", "rule-file"} {
			if c.Flags().Lookup(name).Value.String() == "" {
				missing = append(missing, "--"+name)
			}
		}
		if len(missing) == 4 {
			return usage("which rules? Give --from-yaml FILE for a batch, or --name, --operation-type, --operation and --rule-file for one")
		}
		if len(missing) > 0 {
			return usage("one rule needs %s too", strings.Join(missing, ", "))
		}
	}
	if f.overwrite && f.fromYAML == "" {
		return usage("--overwrite is of a batch: a single rule is new, or replaced by its id over the API")
	}
	return nil
}

// read reads what the flags name, and gives the file's name.
func (f *ruleFlags) read(v *rule.Validator) (*rule.Checked, string, error) {
	name := f.fromYAML
	if name == "" {
		name = f.file
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, name, usage("read the rules: %w", err)
	}
	d := rule.Document{Name: name, Data: data, YAML: !looksLikeJSON(data)}
	if f.fromYAML != "" {
		checked, err := v.Batch(d)
		return checked, name, err
	}
	checked, err := v.Steps(d, f.head)
	return checked, name, err
}

// looksLikeJSON tells the form of a file whose name does not tell it.
func looksLikeJSON(data []byte) bool {
	text := strings.TrimLeft(string(data), "\ufeff \t\r\n")
	return strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[")
}

// refusedRules prints what is wrong with rules.
func (a *app) refusedRules(err error) error {
	var invalid *rule.Invalid
	if !errors.As(err, &invalid) {
		return err
	}
	fmt.Fprintln(a.stdout, invalid)
	fmt.Fprintln(a.stderr, render.Plural(len(invalid.Problems), "problem"))
	return no()
}

// ruleResult is what a check gives as JSON.
type ruleResult struct {
	Rules    []rule.Rule    `json:"rules"`
	Warnings []rule.Problem `json:"warnings"`
}

func (a *app) printChecked(c *rule.Checked, name, output string) error {
	if output == "json" {
		return render.JSON(a.stdout, ruleResult{c.Rules, slices.Concat([]rule.Problem{}, c.Warnings)})
	}
	a.warnOfRules(name, c.Warnings)
	var rows [][]string
	for i := range c.Rules {
		r := &c.Rules[i]
		rows = append(rows, []string{r.OperationType, r.Operation, fmt.Sprint(len(r.Steps)), fmt.Sprint(len(r.Plan(nil).Stages)), render.Line(r.Name)})
	}
	if err := render.Table(a.stdout, []string{"TYPE", "OPERATION", "STEPS", "STAGES", "NAME"}, rows); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "\n%s valid, nothing stored\n", map[bool]string{true: "1 rule is", false: fmt.Sprintf("%d rules are", len(c.Rules))}[len(c.Rules) == 1])
	return nil
}

func (a *app) warnOfRules(name string, warnings []rule.Problem) {
	for _, w := range warnings {
		w.Message = "warning: " + w.Message
		fmt.Fprintln(a.stderr, rule.Lines(name, []rule.Problem{w}))
	}
}
