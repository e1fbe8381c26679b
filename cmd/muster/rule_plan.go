package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/operations/rule"
)

// planFlags say which rule is planned, and for how many components.
type planFlags struct {
	operation  string
	components string
	policies   string
	rack       int64
}

func (a *app) rulePlanCommand() *cobra.Command {
	flags := &planFlags{}
	c := &cobra.Command{
		Use:   "plan [FILE] (--components TYPE=COUNT,… | --rack ID)",
		Short: "Say what a rule would do, in which order and how long at most",
		Long: `Plan prints the stages of a rule, the components that each step would take at once,
and the longest that each may take with every retry used up. Nothing is run, and with
--components no server is needed. With --rack the server counts the rack's components,
and without FILE it takes the rule that applies to the rack. The figure ends nothing: a run ends by its own attempts.

FILE holds a batch, one rule, or the version and steps of one, for which --operation
says what it is a rule for. Of a batch --operation plans one rule, else all are
planned. Without FILE the built-in rule of --operation is planned.

The exit code is 1 where the rule is refused, or where something in it cannot be
done by any component manager.`,
		Example: `  muster rule plan docs/examples/operation-rules.yaml --operation power_off --components compute=18,nvswitch=9,powershelf=8
  muster rule plan --operation upgrade --components compute=18,nvswitch=9,powershelf=8`,
		Args: cobra.MaximumNArgs(1),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.Flags().Int64Var(&flags.rack, "rack", 0, "id of the rack that the rule is planned for")
	c.Flags().StringVar(&flags.operation, "operation", "", "the operation's code, such as power_on")
	c.Flags().StringVar(&flags.components, "components", "", "how many components of each type the rack has, as compute=18,nvswitch=9")
	c.Flags().StringVar(&flags.policies, "policies", "", "the bundle whose built-in rule is planned (default: the shipped one)")
	c.MarkFlagsMutuallyExclusive("rack", "components")
	c.MarkFlagsMutuallyExclusive("rack", "policies")
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := rule.New(muster.Bundle())
		if err != nil {
			return err
		}
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		if flags.rack != 0 {
			return a.planForRack(c.Context(), conn, flags, v, name, output.value)
		}
		counts, err := flags.counts(v)
		if err != nil {
			return err
		}
		checked, err := flags.read(v, name)
		if err != nil {
			return a.refusedRules(err)
		}
		for i := range checked.Rules {
			if r := &checked.Rules[i]; len(r.Steps) == 0 { // which its warning says
				shipped, err := flags.shipped(v, r.Operation)
				if err != nil {
					return err
				}
				r.Steps = shipped.Rules[0].Steps
			}
		}
		return a.printPlans(checked, counts, name, output.value)
	}
	return c
}

// counts reads --components.
func (f *planFlags) counts(v *rule.Validator) (rule.Counts, error) {
	if f.components == "" {
		return nil, usage("how many components has the rack? Say it as --components compute=18,nvswitch=9,powershelf=8, or name one of the server's by --rack")
	}
	counts, types := rule.Counts{}, v.ComponentTypes()
	for part := range strings.SplitSeq(f.components, ",") {
		kind, text, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(text)
		switch {
		case !slices.Contains(types, kind):
			return nil, usage("--components: %q is no component type: there are %s", kind, strings.Join(types, ", "))
		case err != nil || n < 0 || n > 100_000:
			return nil, usage("--components: %q: write %s=COUNT, with a whole number from 0 to 100000", part, kind)
		}
		counts[kind] = n
	}
	return counts, nil
}

// kind finds the kind of the operation that --operation names.
func (f *planFlags) kind(v *rule.Validator) (string, error) {
	var all []string
	for _, kind := range v.OperationTypes() {
		codes := v.Operations(kind)
		if slices.Contains(codes, f.operation) {
			return kind, nil
		}
		all = append(all, codes...)
	}
	if f.operation == "" {
		return "", usage("what is the rule for? Say it as --operation CODE, one of %s", strings.Join(all, ", "))
	}
	return "", usage("--operation: %q is no operation: there are %s", f.operation, strings.Join(all, ", "))
}

// read reads the rules of the file, or the built-in one.
func (f *planFlags) read(v *rule.Validator, name string) (*rule.Checked, error) {
	if name == "" {
		return f.builtIn(v)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("read the rule: %w", err)
	}
	d := rule.Document{Name: name, Data: data, YAML: !looksLikeJSON(data)}
	var checked *rule.Checked
	switch rule.FormOf(d) {
	case rule.FormSteps:
		kind, err := f.kind(v)
		if err != nil {
			return nil, err
		}
		return v.Steps(d, rule.Head{Name: name, OperationType: kind, Operation: f.operation})
	case rule.FormBatch:
		checked, err = v.Batch(d)
	default:
		checked, err = v.Rule(d)
	}
	if err != nil || f.operation == "" {
		return checked, err
	}
	checked.Rules = slices.DeleteFunc(checked.Rules, func(r rule.Rule) bool { return r.Operation != f.operation })
	checked.Warnings = nil // they are of all rules
	if len(checked.Rules) == 0 {
		return nil, nope("%s has no rule for %s", name, f.operation)
	}
	return checked, nil
}

// builtIn reads the built-in rule of a bundle.
func (f *planFlags) builtIn(v *rule.Validator) (*rule.Checked, error) {
	if _, err := f.kind(v); err != nil {
		return nil, err
	}
	return f.shipped(v, f.operation)
}

// shipped reads what the policies have for an operation.
func (f *planFlags) shipped(v *rule.Validator, operation string) (*rule.Checked, error) {
	tree := muster.Bundle()
	if f.policies != "" {
		var err error
		if tree, err = bundle.Open(f.policies); err != nil {
			return nil, usage("%w", err)
		}
	}
	b, _, err := engine.Load(tree, engine.Options{Schema: muster.Bundle()})
	if err != nil {
		return nil, fmt.Errorf("load the policies: %w", err)
	}
	o, ok := b.Operation(operation)
	if !ok {
		return nil, nope("the policies have no rule for %s", operation)
	}
	return v.Rule(rule.Document{Name: o.Pos.File, Data: o.Rule})
}

// planResult is one planned rule as JSON.
type planResult struct {
	Operation string         `json:"operation"`
	Name      string         `json:"name"`
	Plan      rule.Plan      `json:"plan"`
	Missing   []rule.Need    `json:"missing"`
	Warnings  []rule.Problem `json:"warnings"`
}

func (a *app) printPlans(c *rule.Checked, counts rule.Counts, name, output string) error {
	a.warnOfRules(name, c.Warnings)
	var results []planResult
	missing := false
	for i := range c.Rules {
		r := &c.Rules[i]
		result := planResult{Operation: r.Operation, Name: r.Name, Plan: r.Plan(counts), Missing: rule.Missing(r.Needs(counts), rule.Managers()), Warnings: r.WarningsFor(counts)}
		missing = missing || len(result.Missing) > 0
		results = append(results, result)
	}
	return a.printPlanned(results, missing, output)
}

func (a *app) printPlanned(results []planResult, missing bool, output string) error {
	if output == "json" {
		if err := render.JSON(a.stdout, results); err != nil {
			return err
		}
	} else {
		var b bytes.Buffer
		for i := range results {
			if i > 0 {
				b.WriteString("\n")
			}
			results[i].print(&b)
		}
		_, _ = a.stdout.Write(b.Bytes()) // nobody reads it where this fails
	}
	if missing {
		return no()
	}
	return nil
}

func (p *planResult) print(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s: %s\n", p.Operation, render.Line(p.Name))
	for i := range p.Plan.Stages {
		stage := &p.Plan.Stages[i]
		if slices.ContainsFunc(stage.Steps, func(s rule.StepPlan) bool { return s.Components > 0 }) {
			fmt.Fprintf(b, "\nstage %d, at most %s\n", stage.Stage, stage.Worst)
		} else {
			fmt.Fprintf(b, "\nstage %d, nothing to do\n", stage.Stage)
		}
		for j := range stage.Steps {
			printStep(b, &stage.Steps[j])
		}
	}
	fmt.Fprintf(b, "\nat most %s in all\n", p.Plan.Worst)
	for _, need := range p.Missing {
		fmt.Fprintf(b, "✗ capability_missing: no component manager has %s for %s (%s)\n", need.Capability, need.ComponentType, need.Path)
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(b, "! %s\n", rule.Lines("", []rule.Problem{w}))
	}
}

func printStep(b *bytes.Buffer, s *rule.StepPlan) {
	if s.Components == 0 {
		fmt.Fprintf(b, "  %s: skipped, the rack has none\n", s.ComponentType)
		return
	}
	fmt.Fprintf(b, "  %s: %s, %d at once, at most %s\n", s.ComponentType, render.Plural(s.Components, "component"), s.InFlight, s.Worst)
	for i := range s.Actions {
		action := &s.Actions[i]
		times := ""
		if action.Rounds > 1 {
			times = fmt.Sprintf(" in %d rounds", action.Rounds)
		}
		fmt.Fprintf(b, "    %-4s  %s%s, at most %s\n", strings.TrimSuffix(action.Phase, "_operation"), said(&action.Action), times, action.Worst)
	}
}

// said names an action with what tells it from others of its kind.
func said(a *rule.Action) string {
	words := []string{a.Name}
	for _, word := range append([]string{a.Parameters.Operation, a.Parameters.ExpectedStatus}, a.Parameters.ComponentTypes...) {
		if word != "" {
			words = append(words, word)
		}
	}
	if a.Parameters.RequireAll {
		words = append(words, "(all)")
	}
	return strings.Join(words, " ")
}
