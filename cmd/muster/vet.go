package main

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/engine"
)

func (a *app) vetCommand() *cobra.Command {
	var strict, quiet bool
	format := newChoice("text", "json", "github")
	limits := newLimits()
	c := &cobra.Command{
		Use:   "vet [DIR]",
		Short: "Say what is wrong with a bundle of policies",
		Long: `Vet reads the bundle in DIR (cue.mod/, schema/, policies/; default: here), checks
it and says with file:line:col what is wrong. It needs no server. The work is
done in a process with bounded memory, CPU and time.`,
		Args: cobra.MaximumNArgs(1),
	}
	c.RunE = a.limited(limits, func(args []string) error {
		dir := dirOf(args)
		tree, err := bundle.Open(dir)
		if err != nil {
			return usage("%w", err)
		}
		_, findings, err := engine.Load(tree, engine.Options{Tests: true, Schema: muster.Bundle()})
		var vet *engine.VetError
		if err != nil && !errors.As(err, &vet) {
			return err
		}
		if quiet {
			findings = withoutNotes(findings)
		}
		if err := render.Findings(a.stdout, format.value, dir, findings); err != nil {
			return err
		}
		errs, warnings := render.Count(findings)
		if format.value == "text" {
			fmt.Fprintf(a.stderr, "%s, %s\n", render.Plural(errs, "error"), render.Plural(warnings, "warning"))
		}
		if errs > 0 || strict && warnings > 0 {
			return no()
		}
		return nil
	})
	c.Flags().Var(format, "format", "how to print findings")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "leave out the notes")
	c.Flags().BoolVar(&strict, "strict", false, "warnings fail it too")
	limits.flags(c)
	return c
}

// withoutNotes keeps the errors and warnings.
func withoutNotes(findings []engine.Finding) []engine.Finding {
	return slices.DeleteFunc(findings, func(f engine.Finding) bool { return f.Severity == engine.Note })
}

// dirOf gives the folder that a command was called with, by default this one.
func dirOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}
