package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/store"
)

func (a *app) snapshotCommand() *cobra.Command {
	var only []string
	c := &cobra.Command{
		Use:   "snapshot DIR",
		Short: "Write the facts of the fleet to a folder",
		Long: `Snapshot writes what every source said last to DIR/<site>/<source>.json, beside a
site.cue without endpoints: the form that ` + "`muster dev --facts`, `muster explain --facts`" + `
and sites with recorded sources read. It holds names, serials and addresses, no
secrets.`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(c)
	admin := a.adminFlags(c)
	c.Flags().StringSliceVar(&only, "site", nil, "only these sites")
	c.RunE = func(c *cobra.Command, args []string) error {
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			sites, err := store.Sites(c.Context(), db)
			if err != nil {
				return err
			}
			written, found := []recording.Written{}, 0
			for i := range sites {
				if len(only) > 0 && !slices.Contains(only, sites[i].Spec.Name) {
					continue
				}
				found++
				one, err := recording.Snapshot(c.Context(), db, args[0], &sites[i])
				if err != nil {
					return err
				}
				written = append(written, one...)
			}
			if found == 0 || found < len(only) {
				return nope("there is no such site: `muster site list` shows them")
			}
			if output.value == "json" {
				return render.JSON(a.stdout, written)
			}
			var rows [][]string
			for _, w := range written {
				rows = append(rows, []string{w.Site, w.Source, strconv.Itoa(w.Records), render.Age(w.At, db.Now())})
			}
			if err := render.Table(a.stdout, []string{"SITE", "SOURCE", "RECORDS", "AS OF"}, rows); err != nil {
				return err
			}
			fmt.Fprintf(a.stderr, "written to %s\n", args[0])
			return nil
		})
	}
	return c
}
