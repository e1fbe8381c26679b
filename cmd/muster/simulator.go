package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/world"
)

// simulatorDirName is where `muster dev` keeps its simulated fleet, in its data
// directory.
const simulatorDirName = "simulator"

func (a *app) simulatorCommand() *cobra.Command {
	var dir, dataDir, level string
	o := simulator.Options{Clock: a.now}
	c := &cobra.Command{
		Use:   "simulator",
		Short: "Run a simulated fleet, or command a running one",
		Long: `Simulator runs a simulated fleet behind Ironic, Keystone, Placement, Nova,
slurmrestd, NetBox and the BMCs of its machines, on the loopback alone. ` + "`muster dev`" + `
runs one by itself; the commands below make it misbehave and tell what was done
to it. Its size is fixed when its directory is first used.`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
			}
			return nil
		},
	}
	c.Flags().IntVar(&o.Shape.Sites, "sites", 0, "sites of the fleet (default 2, or what the directory holds)")
	c.Flags().IntVar(&o.Shape.Racks, "racks", 0, "racks of each site (default 3, or what the directory holds)")
	c.Flags().Uint64Var(&o.Shape.Seed, "seed", 0, "what its identities are made from (default 1, or what the directory holds)")
	c.Flags().BoolVar(&o.Still, "still", false, "nothing happens unless somebody asks for it")
	c.Flags().StringVar(&level, "log-level", "warn", "what to log: debug, info, warn, error")
	c.Flags().StringVar(&dir, "dir", "", "directory of the simulated fleet (default: that of muster dev)")
	replay := a.replayFlags(c)
	a.dataDirFlag(c, &dataDir)
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if o.Dir, err = a.simulatorDir(dir, dataDir); err != nil {
			return err
		}
		if o.Log, err = a.logger(level, false); err != nil {
			return err
		}
		if replay.File != "" {
			return a.replayBMC(c, replay, o.Dir, o.Log)
		}
		if o.Shape, err = shapeFor(o.Dir, o.Shape); err != nil {
			return usage("%w", err)
		}
		o.Ready = func(e simulator.Endpoints) {
			fmt.Fprintf(a.stdout, "the simulated fleet answers at %s: %s in %s, kept in %s\n",
				e.URL, render.Plural(e.Devices, "device"), render.Plural(len(e.Sites), "site"), o.Dir)
		}
		return simulator.Run(c.Context(), o)
	}
	c.AddCommand(a.simulatorFaultCommand(), a.simulatorAdvanceCommand(), a.simulatorEffectsCommand())
	return c
}

// shapeFor fills what was not said of a shape from what the directory holds.
func shapeFor(dir string, said world.Shape) (world.Shape, error) {
	held, there, err := world.ReadShape(dir)
	if err != nil || !there {
		return said, err
	}
	for _, one := range []struct{ said, held *int }{{&said.Sites, &held.Sites}, {&said.Racks, &held.Racks}} {
		if *one.said == 0 {
			*one.said = *one.held
		}
	}
	if said.Seed == 0 {
		said.Seed = held.Seed
	}
	if said != held {
		return said, &world.ShapeError{Dir: dir, Has: held, Wanted: said}
	}
	return said, nil
}

// simulatorDir gives the directory that was said, or the one of `muster dev`.
func (a *app) simulatorDir(dir, dataDir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	data, err := a.dataDir(dataDir)
	return filepath.Join(data, simulatorDirName), err
}

// simulatorFlags name a running simulator.
func (a *app) simulatorFlags(c *cobra.Command) func() (*control.Client, error) {
	var dir, dataDir string
	c.Flags().StringVar(&dir, "dir", "", "directory of the simulated fleet (default: that of muster dev)")
	a.dataDirFlag(c, &dataDir)
	return func() (*control.Client, error) {
		at, err := a.simulatorDir(dir, dataDir)
		if err != nil {
			return nil, err
		}
		said, there, err := simulator.ReadControl(at)
		if err != nil {
			return nil, err
		}
		if !there {
			return nil, &exitError{code: exitUnreachable, err: fmt.Errorf("no simulator ever ran in %s: start one with `muster dev` or `muster simulator`, or name its directory with --dir", at)}
		}
		return control.Dial(said.URL, said.Token), nil
	}
}

// simulated maps the simulator's errors to exit codes.
func simulated(err error) error {
	var refused *control.RefusedError
	switch {
	case errors.As(err, &refused):
		return &exitError{code: exitNo, err: err}
	case errors.Is(err, control.ErrUnreachable):
		return &exitError{code: exitUnreachable, err: err}
	}
	return err
}

func (a *app) simulatorAdvanceCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "advance DURATION", Short: "Move the simulated time on",
		Long: "Advance moves the simulated fleet's time on, such as 10m: what becomes due\nhappens, in its order. muster's own time is not changed.",
		Args: cobra.ExactArgs(1),
	}
	dial := a.simulatorFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		by, err := time.ParseDuration(args[0])
		if err != nil {
			return usage("%w", err)
		}
		client, err := dial()
		if err != nil {
			return err
		}
		now, err := client.Advance(c.Context(), by)
		if err != nil {
			return simulated(err)
		}
		fmt.Fprintf(a.stdout, "in the simulated fleet it is %s\n", now.Format(time.RFC3339))
		return nil
	}
	return c
}

func (a *app) simulatorEffectsCommand() *cobra.Command {
	var since int
	var face string
	c := &cobra.Command{
		Use: "effects", Short: "Tell what was done to the simulated fleet",
		Long: "Effects lists what was asked of the simulated fleet from outside and what its\nmachines went through, in its order.",
		Args: cobra.NoArgs,
	}
	output := outputFlag(c)
	dial := a.simulatorFlags(c)
	c.Flags().IntVar(&since, "since", 0, "from this number on")
	c.Flags().StringVar(&face, "face", "", "of one system alone: ironic, nova, slurm, netbox, redfish, dhcp, credentials, topology, control, machine")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if since < 0 {
			return usage("--since is the number of an effect")
		}
		client, err := dial()
		if err != nil {
			return err
		}
		out, err := client.Effects(c.Context(), since, face)
		if err != nil {
			return simulated(err)
		}
		if output.value == "json" {
			return render.JSON(a.stdout, out)
		}
		rows := make([][]string, len(out.Effects))
		for i, e := range out.Effects {
			rows[i] = []string{e.At.Format(time.RFC3339), e.Face, orDash(e.Site), e.Subject, e.Op, orDash(e.Detail)}
		}
		return render.Table(a.stdout, []string{"AT", "FACE", "SITE", "SUBJECT", "WHAT", "DETAIL"}, rows)
	}
	return c
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
