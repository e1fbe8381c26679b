package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/config"
	"github.com/musterhq/muster/cmd/muster/render"
)

func (a *app) configCommand() *cobra.Command {
	return parent("config", "Look at the server's configuration", a.configCheckCommand())
}

func (a *app) configCheckCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration and show what it comes to",
		Long: `Check resolves the configuration as ` + "`muster serve`" + ` would, from the file and the
environment, and prints every key with where its value came from. Passwords are
masked. It connects to nothing.`,
		Args: cobra.MaximumNArgs(1),
	}
	output := outputFlag(c)
	c.Flags().StringVar(&file, "config", "", "the file, as for serve (MUSTER_CONFIG)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			file = args[0]
		}
		if file == "" {
			file = a.getenv("MUSTER_CONFIG")
		}
		r, err := config.Load(config.Input{Schema: muster.Bundle(), File: file, Environ: a.environ})
		if err != nil {
			return usage("%w", err)
		}
		for _, name := range r.Unknown {
			fmt.Fprintf(a.stderr, "%s is no key of the configuration: is it misspelt?\n", name)
		}
		values, err := r.Values()
		if err != nil {
			return err
		}
		if output.value == "json" {
			return render.JSON(a.stdout, values)
		}
		var rows [][]string
		for _, v := range values {
			rows = append(rows, []string{v.Key, spelt(v.Value), string(v.Origin), config.Variable(v.Key)})
		}
		return render.Table(a.stdout, []string{"KEY", "VALUE", "FROM", "VARIABLE"}, rows)
	}
	return c
}

// spelt spells a value as the environment would.
func spelt(value any) string {
	list, ok := value.([]any)
	if !ok {
		return fmt.Sprint(value)
	}
	words := make([]string, len(list))
	for i, one := range list {
		words[i] = fmt.Sprint(one)
	}
	return strings.Join(words, ",")
}
