package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/store"
)

func (a *app) policyCommand() *cobra.Command {
	return parent("policy", "Write out, activate and follow policies", a.policyInitCommand(), a.policyActivateCommand(), a.policyStatusCommand())
}

func (a *app) policyInitCommand() *cobra.Command {
	var schema bool
	c := &cobra.Command{
		Use:   "init DIR",
		Short: "Write the shipped policies to a folder",
		Long: `Init writes the shipped bundle, a whole CUE module, to a folder that is missing or
empty: begin your own policies from it. With --schema it renews cue.mod/ and
schema/ of a bundle after an upgrade and leaves policies/ alone.`,
		Args: cobra.ExactArgs(1),
	}
	c.Flags().BoolVar(&schema, "schema", false, "renew the schema of the bundle that is there")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if schema {
			changed, err := bundle.WriteSchema(muster.Bundle(), args[0])
			if err != nil {
				return err
			}
			for _, name := range changed {
				fmt.Fprintln(a.stdout, name)
			}
			return nil
		}
		err := bundle.Write(muster.Bundle(), args[0])
		if errors.Is(err, bundle.ErrNotEmpty) {
			return &exitError{code: exitNo, err: err}
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "the shipped policies are in %s: edit policies/, then `muster vet %s` and `muster test %s`\n", args[0], quoted(args[0]), quoted(args[0]))
		return nil
	}
	return c
}

func (a *app) policyActivateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "activate DIR",
		Short: "Make a bundle the one that decides",
		Long: `Activate vets the bundle in DIR, stores it and makes it the active one: every
replica follows within seconds and judges every device again. A bundle with
errors changes nothing.`,
		Args: cobra.ExactArgs(1),
	}
	admin := a.adminFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		tree, err := bundle.Open(args[0])
		if err != nil {
			return usage("%w", err)
		}
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			policy, err := devices.OpenPolicy(db, muster.Bundle(), db.Now, hclog.NewNullLogger())
			if err != nil {
				return err
			}
			b, findings, err := policy.Activate(c.Context(), tree, a.actor())
			if ferr := render.Findings(a.stderr, "text", args[0], withoutNotes(findings)); ferr != nil {
				return ferr
			}
			var vet *engine.VetError
			switch {
			case errors.As(err, &vet):
				return nope("the bundle has errors: nothing was changed")
			case err != nil:
				return err
			}
			fmt.Fprintf(a.stdout, "%s decides from now on\n", b.Version())
			return nil
		})
	}
	return c
}

// policyStatus is what a replica decides by, as the API tells it.
type policyStatus struct {
	Active      *string    `json:"active"`
	ActivatedAt *time.Time `json:"activated_at"`
	ActivatedBy *string    `json:"activated_by"`
	Loaded      *string    `json:"loaded"`
	LoadedAt    *time.Time `json:"loaded_at"`
	Current     bool       `json:"current"`
	Error       *string    `json:"error"`
	ErrorAt     *time.Time `json:"error_at"`
}

func (a *app) policyStatusCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Say by which policies a server decides",
		Long: `Status says which bundle is active, which one the server that answers has loaded,
and why the newest candidate does not load. Exit code 1: it does not, or the
active one is not loaded.`,
		Args: cobra.NoArgs,
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		s, err := show[policyStatus](c.Context(), a, server, "/policies/status/", nil, output.value)
		if err != nil {
			return err
		}
		if output.value != "json" {
			a.printStatus(&s)
		}
		if s.Error != nil || !s.Current {
			return no()
		}
		return nil
	}
	return c
}

func (a *app) printStatus(s *policyStatus) {
	line := func(what string, version *string, at *time.Time, by *string) {
		text := "none"
		if version != nil {
			text = *version
		}
		if at != nil {
			text += ", " + render.Age(*at, a.now())
		}
		if by != nil {
			text += " by " + render.Line(*by)
		}
		fmt.Fprintf(a.stdout, "%-7s %s\n", what, text)
	}
	line("active", s.Active, s.ActivatedAt, s.ActivatedBy)
	line("loaded", s.Loaded, s.LoadedAt, nil)
	if s.Error != nil {
		fmt.Fprintf(a.stdout, "the newest candidate does not load, the loaded one goes on:\n%s\n", *s.Error)
	}
}
