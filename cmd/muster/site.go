package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

func (a *app) siteCommand() *cobra.Command {
	return parent("site", "Say which sites there are and where they are read", a.siteApplyCommand(), a.siteListCommand())
}

func (a *app) siteApplyCommand() *cobra.Command {
	var o devices.SiteOptions
	c := &cobra.Command{
		Use:   "apply FILE…",
		Short: "Store sites as files describe them",
		Long: `Apply checks the files, CUE, YAML or JSON of one #Site each (schema/site.cue), and
stores them as new revisions. Their sources are read and their devices judged
again at once. Recordings are named relative to the file. Nothing is stored
unless every file is good.`,
		Args: cobra.MinimumNArgs(1),
	}
	output := outputFlag(c)
	admin := a.adminFlags(c)
	c.Flags().BoolVar(&o.DryRun, "dry-run", false, "say what would change and, read from here, whom its sources would join; change nothing")
	c.Flags().BoolVar(&o.RemoveSource, "remove-source", false, "a source may be taken away from a site")
	c.RunE = func(c *cobra.Command, args []string) error {
		specs, err := siteFiles(args)
		if err != nil {
			return err
		}
		o.Actor = a.actor()
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			changes := make([]devices.SiteChange, len(specs))
			for i, spec := range specs { // all of them could be applied, before the first is
				dry := o
				dry.DryRun = true
				if changes[i], err = devices.ApplySite(c.Context(), db, spec, dry); err != nil {
					return &exitError{code: exitNo, err: err}
				}
			}
			for i, spec := range specs {
				if o.DryRun {
					continue
				}
				if changes[i], err = devices.ApplySite(c.Context(), db, spec, o); err != nil {
					return err
				}
			}
			foreseen := make([][]reconciler.Foreseen, len(changes))
			if o.DryRun {
				clients := registry.New(registry.Options{Clock: db.Now, Rand: rand.Float64})
				defer clients.Close()
				for i := range changes {
					foreseen[i] = reconciler.Foresee(c.Context(), db, clients, &changes[i].Site)
				}
			}
			return a.printChanges(changes, foreseen, o.DryRun, output.value)
		})
	}
	return c
}

func siteFiles(paths []string) ([]fleet.SiteSpec, error) {
	var specs []fleet.SiteSpec
	named := map[string]string{}
	for _, path := range paths {
		spec, err := recording.ReadSite(path)
		if err != nil {
			return nil, usage("%w", err)
		}
		if other := named[spec.Name]; other != "" {
			return nil, usage("%s and %s are both the site %s", other, path, spec.Name)
		}
		named[spec.Name] = path
		if spec.NetBox != nil {
			for _, slug := range spec.NetBox.Sites {
				key := "site " + slug + " of NetBox " + spec.NetBox.Instance
				if other := named[key]; other != "" {
					return nil, usage("%s and %s both are the %s", other, path, key)
				}
				named[key] = path
			}
		}
		specs = append(specs, spec)
	}
	return specs, nil
}

func (a *app) printChanges(changes []devices.SiteChange, foreseen [][]reconciler.Foreseen, dry bool, output string) error {
	type item struct {
		Site     string                `json:"site"`
		New      bool                  `json:"new"`
		Revision int64                 `json:"revision"`
		Added    []string              `json:"sources_added"`
		Removed  []string              `json:"sources_removed"`
		Devices  int                   `json:"devices"`
		DryRun   bool                  `json:"dry_run"`
		Foreseen []reconciler.Foreseen `json:"foreseen,omitempty"`
	}
	if output == "json" {
		items := make([]item, len(changes))
		for i, ch := range changes {
			items[i] = item{ch.Site.Spec.Name, ch.New, ch.Site.Revision, ch.Added, ch.Removed, ch.Devices, dry, foreseen[i]}
		}
		return render.JSON(a.stdout, items)
	}
	for i, ch := range changes {
		what, did := "site %s: %s", "revision "+strconv.FormatInt(ch.Site.Revision, 10)+" is stored"
		switch {
		case dry && ch.New:
			did = "it would be new"
		case dry:
			did = "it would change"
		}
		if len(ch.Added) > 0 {
			did += ", reads from now on " + strings.Join(ch.Added, ", ")
		}
		if len(ch.Removed) > 0 {
			did += ", reads no more " + strings.Join(ch.Removed, ", ")
		}
		fmt.Fprintf(a.stdout, what+" (%s)\n", ch.Site.Spec.Name, did, render.Plural(ch.Devices, "device"))
		for _, f := range foreseen[i] {
			fmt.Fprintf(a.stdout, "  %s: %s\n", f.Source, foresight(&f))
		}
	}
	return nil
}

// foresight says in words what a source's next listing would come to.
func foresight(f *reconciler.Foreseen) string {
	if f.Error != "" {
		return "cannot be read from here: " + f.Error
	}
	said := render.Plural(f.Records, "record")
	for _, part := range []struct {
		n    int
		what string
	}{
		{f.Known, "known"}, {f.Joined, "would join a device"}, {f.Moved, "would bring one from another site"}, {f.Born, "would be new devices"},
		{f.Ambiguous, "ambiguous"}, {f.Unmatched, "nobody's"}, {f.Missing, "missing"},
	} {
		if part.n > 0 {
			said += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	if len(f.Examples) > 0 {
		said += ": " + strings.Join(f.Examples, ", ")
	}
	return said
}

func (a *app) siteListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the sites", Args: cobra.NoArgs}
	output := outputFlag(c)
	admin := a.adminFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			sites, err := store.Sites(c.Context(), db)
			if err != nil {
				return err
			}
			if output.value == "json" {
				type item struct {
					Revision  int64          `json:"revision"`
					AppliedAt time.Time      `json:"applied_at"`
					AppliedBy string         `json:"applied_by"`
					Spec      fleet.SiteSpec `json:"spec"`
				}
				items := make([]item, len(sites))
				for i, s := range sites {
					items[i] = item{s.Revision, s.AppliedAt.UTC(), s.AppliedBy, s.Spec}
				}
				return render.JSON(a.stdout, items)
			}
			var rows [][]string
			for _, s := range sites {
				rows = append(rows, []string{
					s.Spec.Name, strconv.FormatInt(s.Revision, 10), s.Spec.EngagementMode.String(), s.Spec.InventorySource(),
					strings.Join(s.Spec.SourceNames(), ","), render.Age(s.AppliedAt, db.Now()), s.AppliedBy,
				})
			}
			return render.Table(a.stdout, []string{"SITE", "REVISION", "ENGAGEMENT", "INVENTORY", "SOURCES", "APPLIED", "BY"}, rows)
		})
	}
	return c
}
