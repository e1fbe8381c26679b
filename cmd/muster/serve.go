package main

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/cmd/muster/config"
	"github.com/musterhq/muster/cmd/muster/recording"
	"github.com/musterhq/muster/cmd/muster/server"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

func (a *app) serveCommand() *cobra.Command {
	var file, url, temporal, listen, roles, policies, level string
	var sites []string
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run a replica of the server",
		Long: `Serve runs one replica: the API, the reconciler, the worker of jobs, or all three. Any number of replicas
share one PostgreSQL. It is configured by a file (schema/config.cue says what may
stand in it), over that by the environment, over that by flags; ` + "`muster config check`" + `
shows what comes of it. The database is migrated by ` + "`muster migrate`" + `, never here.`,
		Args: cobra.NoArgs,
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, named, err := a.config(file, map[string]string{
			"database.url": url, "temporal.address": temporal, "listen": listen, "roles": roles, "policies": policies, "sites": strings.Join(sites, ","), "log.level": level,
		})
		if err != nil {
			return err
		}
		if !named {
			return usage("which database? Name it with --config, MUSTER_DATABASE_URL or --postgres-url (`muster dev` brings one along)")
		}
		err = a.serve(c.Context(), &r.Config)
		if c.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return nil // asked to end
		}
		return err
	}
	c.Flags().StringVar(&file, "config", "", "the configuration: CUE, YAML or JSON (MUSTER_CONFIG)")
	c.Flags().StringVar(&url, "postgres-url", "", "the database; with a password better MUSTER_DATABASE_URL or file:PATH")
	c.Flags().StringVar(&temporal, "temporal-address", "", "the Temporal that runs workflows, HOST:PORT")
	c.Flags().StringVar(&listen, "listen", "", "address of the API")
	c.Flags().StringVar(&roles, "roles", "", "what this replica does: api,reconciler,worker")
	c.Flags().StringVar(&policies, "policies", "", "folder of policies that an empty database begins with")
	c.Flags().StringArrayVar(&sites, "site", nil, "file of a site that an empty database begins with; may be repeated")
	c.Flags().StringVar(&level, "log-level", "", "what to log: debug, info, warn, error")
	return c
}

// checkRoles refuses a replica that would have nothing to do.
func checkRoles(c *config.Config) error {
	if c.Temporal == nil && slices.Equal(c.Roles, []string{server.RoleWorker}) {
		return usage("the role worker needs a Temporal: name it with temporal.address or --temporal-address, or give the replica other roles besides")
	}
	return nil
}

func (a *app) serve(ctx context.Context, c *config.Config) error {
	log, err := a.logger(c.Log.Level, c.Log.JSON)
	if err != nil {
		return err
	}
	if err := checkRoles(c); err != nil {
		return err
	}
	if c.Auth.OIDC != nil {
		return usage("auth.oidc: this build knows static tokens only: leave it out (`muster token create` makes one)")
	}
	if err := httpapi.CheckExposure(c.Listen, c.Auth.Tokens); err != nil {
		return usage("%w", err)
	}
	seed, err := a.seed(c)
	if err != nil {
		return err
	}
	url, err := resolved(c.Database.URL)
	if err != nil {
		return err
	}
	db, err := server.Open(ctx, url, store.Options{
		Application: "muster serve", MaxConns: c.Database.MaxConnections, StatementTimeout: time.Duration(c.Database.StatementTimeout),
	})
	if err != nil {
		return unreachable(err)
	}
	defer db.Close()
	policy, err := devices.OpenPolicy(db, muster.Bundle(), db.Now, log.Named("policy"))
	if err != nil {
		return err
	}
	if err := seed.Apply(ctx, db, policy, log); err != nil {
		return err
	}
	o := server.Options{
		DB: db, Policies: policy, Roles: c.Roles, Log: log,
		Sweeps: c.Reconciler.Sweeps, Lease: time.Duration(c.Reconciler.Lease), ShutdownTimeout: time.Duration(c.ShutdownTimeout),
	}
	if c.Temporal != nil {
		where := temporalOf(c.Temporal)
		if o.Temporal, err = server.ConnectTemporal(where, log); err != nil {
			return usage("%w", err)
		}
		defer o.Temporal.Close()
		o.Namespace, o.TaskQueuePrefix = where.Namespace, where.TaskQueuePrefix
	}
	return a.replica(ctx, c, o)
}

// temporalOf says where workflows run.
func temporalOf(c *config.Temporal) server.Temporal {
	t := server.Temporal{Address: c.Address, Namespace: c.Namespace, TaskQueuePrefix: c.TaskQueuePrefix, APIKey: c.APIKey}
	if c.TLS != nil {
		t.TLS, t.CA, t.Certificate, t.Key = true, c.TLS.CA, c.TLS.Certificate, c.TLS.Key
	}
	return t
}

// replica takes the address and runs the roles.
func (a *app) replica(ctx context.Context, c *config.Config, o server.Options) (err error) {
	if c.Auth.Tokens {
		o.Auth = httpapi.Tokens{DB: o.DB, Clock: o.DB.Now}
	}
	certificate, key := "", ""
	if c.TLS != nil {
		certificate, key = c.TLS.Certificate, c.TLS.Key
	}
	if o.Listener, err = server.Listen(c.Listen, certificate, key); err != nil {
		return err
	}
	s, err := server.New(o)
	if err != nil {
		return errors.Join(err, o.Listener.Close())
	}
	o.Log.Info("serving", "url", server.URL(o.Listener, c.TLS != nil), "roles", o.Roles)
	return s.Run(ctx)
}

// seed reads what an empty database begins with.
func (a *app) seed(c *config.Config) (server.Seed, error) {
	s := server.Seed{Policies: fs.FS(muster.Bundle()), Actor: "serve"}
	if c.Policies != "" {
		tree, err := bundle.Open(c.Policies)
		if err != nil {
			return s, usage("%w", err)
		}
		s.Policies = tree
	}
	for _, path := range c.Sites {
		var spec fleet.SiteSpec
		spec, err := recording.ReadSite(path)
		if err != nil {
			return s, usage("%w", err)
		}
		s.Sites = append(s.Sites, spec)
	}
	return s, nil
}
