package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/engine"
)

func (a *app) testCommand() *cobra.Command {
	var coverage, verbose bool
	limits := newLimits()
	c := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run the tests of a bundle of policies",
		Long: `Test runs the policy tests (*_tests.cue) of the bundle in DIR through the engine
that production runs. It needs no server. The work is done in a process with
bounded memory, CPU and time.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := outputFlag(c)
	c.RunE = a.limited(limits, func(args []string) error {
		dir := dirOf(args)
		tree, err := bundle.Open(dir)
		if err != nil {
			return usage("%w", err)
		}
		b, findings, err := engine.Load(tree, engine.Options{Tests: true, Schema: muster.Bundle()})
		var vet *engine.VetError
		if errors.As(err, &vet) {
			if err := render.Findings(a.stderr, "text", dir, withoutNotes(findings)); err != nil {
				return err
			}
			return nope("the policies do not load: mend them first (`muster vet` tells more)")
		} else if err != nil {
			return err
		}
		results, err := engine.RunTests(tree, b)
		if err != nil {
			return err
		}
		report := render.TestReport{Dir: dir, Results: results, Verbose: verbose}
		if coverage {
			report.Coverage, report.Uncovered = true, b.Uncovered(results)
		}
		if err := report.Write(a.stdout, output.value); err != nil {
			return err
		}
		if failed := report.Failed(); failed > 0 {
			return no()
		}
		if len(results) == 0 {
			fmt.Fprintln(a.stderr, "there are no tests: *_tests.cue beside a policy holds them")
		}
		return nil
	})
	c.Flags().BoolVar(&coverage, "coverage", false, "list the rungs, gates and branches that no test reaches")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "list every test")
	limits.flags(c)
	return c
}
