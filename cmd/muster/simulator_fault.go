package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
)

func (a *app) simulatorFaultCommand() *cobra.Command {
	var f control.Fault
	c := &cobra.Command{
		Use:   "fault [KIND [DEVICE]] | clear [NUMBER]",
		Short: "Make the simulated fleet misbehave",
		Long:  faultHelp(),
		Example: `  muster simulator fault bmc-dead sim1-r01-c01
  muster simulator fault health sim1-r01-c01 --part gpus --state Critical
  muster simulator fault status --site sim1 --face ironic --code 429 --retry-after 10s
  muster simulator fault            # the rules in force
  muster simulator fault clear      # all systems answer well again`,
		Args: cobra.MaximumNArgs(2),
	}
	output := outputFlag(c)
	dial := a.simulatorFlags(c)
	c.Flags().StringVar(&f.Site, "site", "", "of this site alone")
	c.Flags().StringVar(&f.Face, "face", "", "of this system alone: ironic, keystone, placement, nova, slurm, netbox, redfish, dhcp, credentials, topology")
	c.Flags().StringVar(&f.Method, "method", "", "requests with this method alone")
	c.Flags().StringVar(&f.Path, "path", "", "requests whose path has this in it alone, or with a $ at its end, ends so")
	c.Flags().IntVar(&f.Code, "code", 0, "the status of status (default 503)")
	c.Flags().DurationVar(&f.RetryAfter, "retry-after", 0, "what status says of a later try")
	c.Flags().DurationVar(&f.For, "for", 0, "how long delay, stall, skew, drip, bmc-slow and bmc-not-ready are")
	c.Flags().IntVar(&f.Times, "times", 0, "so many requests, then no more (default all)")
	c.Flags().Float64Var(&f.Share, "share", 0, "this share of the requests alone, by chance (default all)")
	c.Flags().Uint64Var(&f.Seed, "seed", 0, "of the chance of --share")
	c.Flags().StringVar(&f.Part, "part", "", "the part of health: gpus, memory, thermal, …")
	c.Flags().StringVar(&f.State, "state", "", "the state of health: OK, Warning, Critical")
	c.Flags().StringVar(&f.Reason, "reason", "", "what drain is for")
	c.RunE = func(c *cobra.Command, args []string) error {
		client, err := dial()
		if err != nil {
			return err
		}
		switch {
		case len(args) == 0:
			rules, err := client.Faults(c.Context())
			if err != nil {
				return simulated(err)
			}
			return a.printRules(rules, output.value)
		case args[0] == "clear":
			return a.clearFaults(c.Context(), client, args[1:])
		}
		if f.Kind = faultproxy.Kind(args[0]); len(args) == 2 {
			f.Device = args[1]
		} else if isNamed(args[0]) {
			return usage("%s is of a machine or a site: name it", args[0])
		}
		done, err := client.Fault(c.Context(), f)
		if err != nil {
			return simulated(err)
		}
		if output.value == "json" {
			return render.JSON(a.stdout, done)
		}
		if f.Device != "" {
			fmt.Fprintf(a.stdout, "%s: %s\n", f.Device, f.Kind)
			return nil
		}
		fmt.Fprintf(a.stdout, "fault %d is in force: `muster simulator fault clear %d` ends it\n", done.ID, done.ID)
		return nil
	}
	return c
}

// isNamed tells whether a fault is of a machine or a site, which is named.
func isNamed(kind string) bool {
	return slices.ContainsFunc(control.Machines(), func(m control.Machine) bool { return m.Kind == kind }) ||
		slices.ContainsFunc(control.Sites(), func(s control.Site) bool { return s.Kind == kind })
}

func faultHelp() string {
	var b strings.Builder
	b.WriteString("Fault makes a system of the simulated fleet answer wrongly, or something become\nof one of its machines.\n\nOf systems, until they are cleared or the simulator ends:\n")
	for _, k := range faultproxy.Kinds() {
		fmt.Fprintf(&b, "  %-15s %s\n", k, faultproxy.Meaning(k))
	}
	b.WriteString("\nOf a DEVICE, for good:\n")
	for _, m := range control.Machines() {
		fmt.Fprintf(&b, "  %-15s %s\n", m.Kind, m.Meaning)
	}
	b.WriteString("\nOf a site, which is named in the place of DEVICE, for good:\n")
	for _, s := range control.Sites() {
		fmt.Fprintf(&b, "  %-15s %s\n", s.Kind, s.Meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}

func (a *app) clearFaults(ctx context.Context, client *control.Client, args []string) error {
	id := 0
	if len(args) == 1 {
		var err error
		if id, err = strconv.Atoi(args[0]); err != nil || id < 1 {
			return usage("%q is no number of a fault", args[0])
		}
	}
	n, err := client.Clear(ctx, id)
	if err != nil {
		return simulated(err)
	}
	fmt.Fprintf(a.stdout, "%s cleared\n", render.Plural(n, "fault"))
	return nil
}

func (a *app) printRules(rules []faultproxy.Rule, output string) error {
	if output == "json" {
		return render.JSON(a.stdout, rules)
	}
	rows := make([][]string, len(rules))
	for i, r := range rules {
		times := "all"
		if r.Times > 0 {
			times = strconv.Itoa(r.Times) + " more"
		}
		if r.Share > 0 {
			times += fmt.Sprintf(", %g of 1", r.Share)
		}
		what := string(r.Kind)
		switch r.Kind {
		case faultproxy.Status:
			what += " " + strconv.Itoa(r.Code)
		case faultproxy.Delay, faultproxy.Stall, faultproxy.Skew, faultproxy.Drip:
			what += " " + r.For.String()
		}
		rows[i] = []string{strconv.Itoa(r.ID), what, orDash(r.Site), orDash(r.Face), orDash(strings.TrimSpace(r.Method + " " + r.Path)), times, strconv.Itoa(r.Hits)}
	}
	return render.Table(a.stdout, []string{"FAULT", "WHAT", "SITE", "FACE", "REQUESTS", "TIMES", "HITS"}, rows)
}
