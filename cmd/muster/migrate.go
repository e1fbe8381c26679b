package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/migrations"
)

func (a *app) migrateCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the database to this build's schema",
		Long: `Migrate brings the database to the schema of this build. Run it before the new
replicas start; the old ones go on meanwhile. Running it again changes nothing.`,
		Args: cobra.NoArgs,
	}
	admin := a.adminFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		url, err := a.databaseURL(admin)
		if err != nil {
			return err
		}
		version, err := migrations.Up(c.Context(), url)
		if err != nil {
			return unreachable(err)
		}
		fmt.Fprintf(a.stdout, "the database has schema %d\n", version)
		return nil
	}
	return c
}
