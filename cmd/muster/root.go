package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// root is the whole tree of commands.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "muster",
		Short: "Decide what every machine of a fleet is fit for, and say why",
		Long: `muster reads what NetBox, Ironic, SLURM and the machines' BMCs say, and decides by
policies that you write in CUE what each machine is fit for.

Begin with ` + "`muster dev`" + `: it brings its own database and a simulated fleet.
`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
		// Cobra looks at the groups of flags only after this.
		PersistentPreRunE: func(c *cobra.Command, _ []string) error {
			err := errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups())
			a.begun = err == nil
			return err
		},
	}
	root.SetHelpTemplate(root.HelpTemplate() + "\n" + exitCodes)
	root.AddGroup(
		&cobra.Group{ID: "run", Title: "Run:"},
		&cobra.Group{ID: "ask", Title: "Ask a running server:"},
		&cobra.Group{ID: "policy", Title: "Write policies (no server, no database):"},
		&cobra.Group{ID: "admin", Title: "Administer (with the database's credential):"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.devCommand(), a.serveCommand(), a.simulatorCommand(), a.migrateCommand(), a.configCommand())
	add("ask", a.deviceCommand(), a.explainCommand(), a.eligibilityCommand(), a.jobCommand(), a.operationCommand(), a.sourceCommand(), a.bmcCommand())
	add("policy", a.vetCommand(), a.testCommand(), a.fmtCommand(), a.ruleCommand())
	add("admin", a.policyCommand(), a.siteCommand(), a.tokenCommand(), a.snapshotCommand())
	root.InitDefaultCompletionCmd()
	return root
}

// parent is a command that only holds others.
func parent(use, short string, children ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
		}
		return nil
	}, RunE: func(c *cobra.Command, _ []string) error {
		names := make([]string, len(children))
		for i, child := range children {
			names[i] = child.Name()
		}
		return usage("%s wants one of: %s", c.CommandPath(), strings.Join(names, ", "))
	}}
	c.AddCommand(children...)
	return c
}

// choice is a flag with a closed set of values.
type choice struct {
	value   string
	allowed []string
}

func newChoice(allowed ...string) *choice { return &choice{value: allowed[0], allowed: allowed} }

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(value string) error {
	if !slices.Contains(c.allowed, value) {
		return errors.New("it is one of " + strings.Join(c.allowed, ", "))
	}
	c.value = value
	return nil
}

// outputFlag adds --output.
func outputFlag(c *cobra.Command) *choice {
	output := newChoice("table", "json")
	c.Flags().VarP(output, "output", "o", "how to print it")
	return output
}
