package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/dev"
	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator/world"
)

func (a *app) devCommand() *cobra.Command {
	var o dev.Options
	var facts, level string
	var sites []string
	shape := world.Shape{Sites: unsaid}
	c := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, with servers of its own",
		Long: `Dev starts a server with a PostgreSQL and a Temporal of its own on this machine.
Everything is kept in one directory and is there again at the next start,
whatever ended the last one. Temporal is muster-temporal, beside muster: while it
is not built yet, all but jobs goes on, and it is started when it appears. The
policies are written out to be edited: what is saved counts from the next
decision on, what does not load is told and changes nothing.

Without --facts and --site there is a simulated fleet behind it, a process that
ends with this one: ` + "`muster simulator`" + ` makes it misbehave. Its size, --sites and
--racks, is fixed when the directory is first used; --sites 0 begins with nothing.

With --facts the sources are recordings, DIR/<site>/<source>.json beside
site.cue, as ` + "`muster snapshot`" + ` writes them: editing a file is the world changing.
Sites are applied to an empty database only.`,
		Args: cobra.NoArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := a.devOptions(&o, facts, sites, level); err != nil {
			return err
		}
		if facts == "" && len(sites) == 0 {
			if err := devFleet(&o, shape); err != nil {
				return err
			}
		}
		o.Ready = func(ctx context.Context, r dev.Running) { a.welcome(ctx, r, facts) }
		err := dev.Run(c.Context(), o)
		var running *dev.RunningError
		switch {
		case errors.As(err, &running) && running.Owner.URL != "" && !o.Fresh:
			fmt.Fprintf(a.stdout, "muster is running already: %s\n", running.Owner.URL)
			return nil
		case c.Context().Err() != nil && errors.Is(err, context.Canceled):
			return nil // asked to end
		}
		return err
	}
	a.dataDirFlag(c, &o.DataDir)
	c.Flags().StringVar(&o.Listen, "listen", "127.0.0.1:8480", "address to answer at")
	c.Flags().StringVar(&facts, "facts", "", "folder of recordings to read instead of endpoints")
	c.Flags().StringArrayVar(&sites, "site", nil, "file of a site to begin with; may be repeated")
	c.Flags().IntVar(&shape.Sites, "sites", unsaid, "sites of the simulated fleet (default 2, or what the directory holds; 0: none)")
	c.Flags().Lookup("sites").DefValue = "0" // not shown
	c.Flags().IntVar(&shape.Racks, "racks", 0, "racks of each simulated site (default 3, or what the directory holds)")
	c.Flags().StringVar(&o.Policies, "policies", "", "folder of policies to watch (default DATA/policies, the shipped ones)")
	c.Flags().StringVar(&o.PostgresURL, "postgres-url", "", "use this PostgreSQL instead of one of its own")
	c.Flags().StringVar(&o.PostgresBin, "postgres-bin", "", "folder of PostgreSQL's programs (default: looked for)")
	c.Flags().StringVar(&o.TemporalAddress, "temporal-address", "", "use this Temporal, HOST:PORT, its namespace muster, instead of one of its own")
	c.Flags().BoolVar(&o.Fresh, "fresh", false, "begin anew: the data directory is moved aside, nothing is deleted")
	c.Flags().StringVar(&level, "log-level", "info", "what to log: debug, info, warn, error")
	c.MarkFlagsMutuallyExclusive("facts", "site", "sites")
	c.MarkFlagsMutuallyExclusive("facts", "site", "racks")
	c.MarkFlagsMutuallyExclusive("postgres-url", "postgres-bin")
	return c
}

// unsaid is a number of sites that nobody gave: 0 means none.
const unsaid = -1

// devFleet asks for the simulated fleet that the flags describe.
func devFleet(o *dev.Options, shape world.Shape) error {
	if shape.Sites == 0 {
		if shape.Racks != 0 {
			return usage("--racks is of the sites of a simulated fleet: --sites 0 has none")
		}
		return nil
	}
	if shape.Sites == unsaid {
		shape.Sites = 0
	}
	if !o.Fresh {
		if err := dev.CheckFleet(o.DataDir, shape); err != nil {
			return usage("%w", err)
		}
	}
	if err := shape.Check(); err != nil {
		return usage("%w", err)
	}
	o.Fleet = &shape
	return nil
}

// devOptions reads what the flags name.
func (a *app) devOptions(o *dev.Options, facts string, sites []string, level string) (err error) {
	if o.Log, err = a.logger(level, false); err != nil {
		return err
	}
	if o.DataDir, err = a.dataDir(o.DataDir); err != nil {
		return err
	}
	if o.DataDir, err = filepath.Abs(o.DataDir); err != nil {
		return err
	}
	o.Now = a.now
	if facts != "" {
		if o.Sites, err = recording.Sites(facts); err != nil {
			return usage("%w", err)
		}
	}
	for _, path := range sites {
		var spec fleet.SiteSpec
		if spec, err = recording.ReadSite(path); err != nil {
			return usage("%w", err)
		}
		o.Sites = append(o.Sites, spec)
	}
	return nil
}
