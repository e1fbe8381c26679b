package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/store"
)

// explaining holds the flags of explain.
type explaining struct {
	facts, policies, name string
	event                 int64
	verbose               bool
	output                *choice
	conn                  *connection
	postgresURL           string
}

func (a *app) explainCommand() *cobra.Command {
	e, limits := &explaining{}, newLimits()
	c := &cobra.Command{
		Use:   "explain",
		Short: "Say why a device is what it is",
		Long: `Explain prints the whole trace of a device's status: every rung in order, which
one matched, why each earlier one did not, with actual values and file:line; what
is stale, what is held and why.

  muster explain device NAME|ID           as the server decides now
  muster explain device NAME --event ID   as it decided then, by the policy of that time
  muster explain --event ID               the same, finding the device in the database
  muster explain --facts DIR --device NAME
                                          from recordings, without a server

With --policies the work is done in a process with bounded memory, CPU and time.`,
		Args: cobra.NoArgs,
	}
	e.add(a, c)
	c.Flags().StringVar(&e.facts, "facts", "", "folder of recordings, as `muster snapshot` writes it")
	c.Flags().Lookup("facts").Usage = "folder of recordings to judge by, without a server"
	c.Flags().StringVar(&e.policies, "policies", "", "with --facts: the bundle to judge by (default: the shipped one)")
	c.Flags().StringVar(&e.name, "device", "", "name of the device")
	c.Flags().StringVar(&e.postgresURL, "postgres-url", "", "with --event alone: the database (MUSTER_DATABASE_URL; default: that of muster dev)")
	limits.flags(c)
	c.MarkFlagsMutuallyExclusive("facts", "event")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case e.facts != "" && e.name != "" && e.policies != "":
			return a.limited(limits, func([]string) error { return a.explainFacts(c.Context(), e) })(c, nil)
		case e.facts != "" && e.name != "":
			return a.explainFacts(c.Context(), e)
		case e.facts != "":
			return usage("which device? Name it with --device")
		case e.name != "":
			return a.explainDevice(c.Context(), e, e.name)
		case e.event != 0:
			return a.explainEvent(c.Context(), e)
		}
		return usage("explain what? `muster explain device NAME`, `muster explain --event ID`, or `muster explain --facts DIR --device NAME`")
	}
	c.AddCommand(a.explainDeviceCommand())
	return c
}

// add adds the flags that every form of explain has.
func (e *explaining) add(a *app, c *cobra.Command) {
	e.output = outputFlag(c)
	e.conn = a.connectFlags(c)
	c.Flags().Int64Var(&e.event, "event", 0, "id of an event of the history to replay")
	c.Flags().BoolVarP(&e.verbose, "verbose", "v", false, "print every ladder whole")
}

func (a *app) explainDeviceCommand() *cobra.Command {
	e := &explaining{}
	c := &cobra.Command{
		Use:   "device NAME|ID",
		Short: "Say why a device is what it is, as the server decides",
		Args:  cobra.ExactArgs(1),
		RunE:  func(c *cobra.Command, args []string) error { return a.explainDevice(c.Context(), e, args[0]) },
	}
	e.add(a, c)
	return c
}

func (a *app) explainDevice(ctx context.Context, e *explaining, nameOrID string) error {
	server, err := a.connect(e.conn)
	if err != nil {
		return err
	}
	id, err := device(ctx, server, nameOrID)
	if err != nil {
		return err
	}
	path, query := fmt.Sprintf("/devices/%d/explain/", id), url.Values{}
	if e.event != 0 {
		query.Set("event", strconv.FormatInt(e.event, 10))
		replay, err := show[render.Replay](ctx, a, server, path, query, e.output.value)
		if err != nil || e.output.value == "json" {
			return err
		}
		return replay.Write(a.stdout)
	}
	explanation, err := show[render.Explanation](ctx, a, server, path, query, e.output.value)
	if err != nil || e.output.value == "json" {
		return err
	}
	return explanation.Write(a.stdout, e.verbose)
}

// explainEvent finds out in the database whose event it is, then asks the server.
func (a *app) explainEvent(ctx context.Context, e *explaining) error {
	var id int64
	admin := &administration{url: e.postgresURL, dataDir: e.conn.dataDir}
	if err := a.administer(ctx, admin, func(db *store.DB) error {
		event, err := store.EventByID(ctx, db, e.event)
		id = event.DeviceID
		return notFound(err)
	}); err != nil {
		return err
	}
	return a.explainDevice(ctx, e, strconv.FormatInt(id, 10))
}

// explainFacts judges a device of a folder of recordings.
func (a *app) explainFacts(ctx context.Context, e *explaining) error {
	specs, err := recording.Sites(e.facts)
	if err != nil {
		return usage("%w", err)
	}
	tree := fs.FS(muster.Bundle())
	if e.policies != "" {
		if tree, err = bundle.Open(e.policies); err != nil {
			return usage("%w", err)
		}
	}
	found, err := recording.Find(ctx, specs, e.name, a.now())
	if errors.Is(err, recording.ErrNoDevice) {
		return &exitError{code: exitNo, err: err}
	}
	if err != nil {
		return err
	}
	b, findings, err := engine.Load(tree, engine.Options{Schema: muster.Bundle()})
	var vet *engine.VetError
	if errors.As(err, &vet) {
		if err := render.Findings(a.stderr, "text", e.policies, findings); err != nil {
			return err
		}
		return nope("the policies do not load")
	}
	if err != nil {
		return err
	}
	explanation := a.judged(recording.Judge(b, found, a.now()), b.Version())
	if e.output.value == "json" {
		return render.JSON(a.stdout, explanation)
	}
	return explanation.Write(a.stdout, e.verbose)
}

// judged gives a judgement in the form that is printed.
func (a *app) judged(j *recording.Judgement, version string) *render.Explanation {
	now := a.now()
	e := &render.Explanation{
		At: now, BundleVersion: version, Status: j.Facts.Device.OperationalStatus.String(), Derived: j.Derived, StatusFresh: true,
		Health: render.TraceOf(&j.Health), CustomerReady: render.TraceOf(&j.Ready), Conditions: []render.ConditionTrace{},
	}
	e.Device.Name, e.Device.Site = j.Device.Name, j.Device.Site.Name
	var decisive []string
	if j.Derived {
		e.Operational = render.StatusTraceOf(&j.Status)
		e.StatusFresh, e.Rung, decisive = j.Status.Fresh, &e.Operational.Rung, j.Status.Decisive
	}
	if j.Mapped {
		e.Class, e.Inventory = render.TraceOf(&j.Class), render.TraceOf(&j.Inventory)
	}
	for i := range j.Conditions {
		c := &j.Conditions[i]
		e.Conditions = append(e.Conditions, render.Observed(c.Type, slices.Contains(decisive, c.Type), &c.Trace, now))
	}
	for i := range j.Scopes {
		s := &j.Scopes[i]
		e.Writers = append(e.Writers, render.WriterTrace{Writer: s.Writer, InScope: s.In, Scope: render.TraceOf(&s.Trace)})
	}
	for _, source := range j.Device.Site.SourceNames() {
		s := render.SourceTrace{Source: source, SeenAt: now}
		if ref, listed := j.Device.Refs[source]; listed {
			s.Ref = &ref
		}
		e.Sources = append(e.Sources, s)
	}
	return e
}
