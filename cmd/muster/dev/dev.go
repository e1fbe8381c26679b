package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/server"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/store"
)

const (
	databaseName = "muster"
	stopLimit    = 30 * time.Second // to end PostgreSQL in order
	startPause   = 200 * time.Millisecond
	startTries   = 150 // of another dev that is just starting
	actor        = "dev"
)

// Options are what a development server starts from.
type Options struct {
	DataDir     string
	Fresh       bool // the data directory is moved aside first
	Listen      string
	PostgresURL string // a server of somebody else's; "" brings one along
	PostgresBin string // where its programs are; "" looks for them
	// A Temporal of somebody else's, HOST:PORT; "" brings one along as soon as
	// its program is there.
	TemporalAddress string
	TemporalProgram string // "" is the one beside muster's own
	Policies        string // the folder to watch; "" is DATA/policies, written out when missing
	Sites           []fleet.SiteSpec
	Fleet           *world.Shape // a simulated fleet, of what is not 0; nil: none
	Program         string       // muster itself, to run the fleet; "" is the one that runs
	Log             hclog.Logger
	Now             func() time.Time

	// Ready is told once the server answers.
	Ready func(ctx context.Context, r Running)
}

// Running is how to reach a development server.
type Running struct {
	client.Credentials
	DataDir  string
	Policies string
	Moved    string // where --fresh moved the directory that was there
	Fleet    bool   // there is a simulated one
	Temporal Temporal
}

// RunningError says that one runs already; its Owner.URL names it.
type RunningError = embedded.RunningError

// instance is one run.
type instance struct {
	Options
	moved    string
	data     *embedded.DataDir
	postgres *embedded.Postgres
	url      string // of the database
	db       *store.DB
	policy   *devices.Policy
	listener net.Listener
	fleet    *simulation // nil: none
	temporal *workflows
}

// Run runs a development server until ctx ends. A *RunningError says that one
// runs on the data directory already.
func Run(ctx context.Context, o Options) (err error) {
	i := &instance{Options: o}
	if i.Program == "" {
		if i.Program, err = ownProgram(); err != nil {
			return err
		}
	}
	if i.TemporalProgram == "" {
		i.TemporalProgram = filepath.Join(filepath.Dir(i.Program), embedded.TemporalProgram)
	}
	defer func() { err = errors.Join(err, i.close(ctx)) }()
	if err := i.open(ctx); err != nil {
		return err
	}
	if err := i.simulate(ctx); err != nil {
		return err
	}
	if err := i.policies(ctx); err != nil {
		return err
	}
	if err := i.fleetSites(ctx); err != nil {
		return err
	}
	seed := server.Seed{Policies: os.DirFS(i.Policies), Sites: i.Sites, Actor: actor}
	if err := seed.Apply(ctx, i.db, i.policy, i.Log); err != nil {
		return err
	}
	i.tellSites(ctx)
	credentials, err := i.credentials(ctx)
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{
		DB: i.db, Policies: i.policy, Roles: server.Roles(), Log: i.Log,
		Listener: i.listener, Auth: httpapi.Tokens{DB: i.db, Clock: i.db.Now},
		Temporal: i.temporal.client, Namespace: embedded.TemporalNamespace,
	})
	if err != nil {
		return err
	}
	if err := i.data.Announce(credentials.URL); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	i.listener = nil // the server closes it
	group.Go(func() error { return s.Run(ctx) })
	group.Go(func() error { return i.watch(ctx) })
	group.Go(func() error { return i.outlive(ctx) })
	group.Go(func() error { return i.keepFleet(ctx) })
	group.Go(func() error {
		i.Ready(ctx, Running{Credentials: credentials, DataDir: i.DataDir, Policies: i.Policies, Moved: i.moved, Fleet: i.fleet != nil, Temporal: i.temporal.told()})
		return nil
	})
	return group.Wait()
}

// open takes the data directory and the address, and brings up the database.
func (i *instance) open(ctx context.Context) error {
	if i.Fresh {
		moved, err := embedded.MoveAside(i.DataDir, i.Now())
		if err != nil {
			return err
		}
		i.moved = moved
	}
	versions := embedded.Versions{Muster: embedded.Layout, Schema: int(migrations.Newest())}
	var programs embedded.Binaries
	if i.PostgresURL == "" {
		var err error
		if programs, err = embedded.FindPostgres(ctx, i.PostgresBin, filepath.Join(i.DataDir, "postgres")); err != nil {
			return err
		}
		versions.Postgres = programs.Version
	}
	if i.TemporalAddress == "" {
		versions.Temporal = embedded.TemporalSchema
	}
	if err := i.take(ctx, versions); err != nil {
		return err
	}
	var err error
	if i.listener, err = server.Listen(i.Listen, "", ""); err != nil {
		return err
	}
	if err := i.workflows(ctx); err != nil {
		return err
	}
	if err := i.database(ctx, programs); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, i.url); err != nil {
		return err
	}
	i.db, err = server.Open(ctx, i.url, store.Options{Application: "muster dev"})
	return err
}

// take owns the data directory. Another dev that is just starting on it is
// waited for, so that its address can be told.
func (i *instance) take(ctx context.Context, versions embedded.Versions) (err error) {
	for range startTries {
		i.data, err = embedded.OpenDataDir(i.DataDir, versions)
		var running *embedded.RunningError
		if !errors.As(err, &running) || running.Owner.URL != "" {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(startPause):
		}
	}
	return err
}

func (i *instance) database(ctx context.Context, programs embedded.Binaries) (err error) {
	if i.PostgresURL != "" {
		i.url = i.PostgresURL
		return nil
	}
	i.postgres, err = embedded.StartPostgres(ctx, embedded.PostgresOptions{
		Dir: i.data.Path("postgres"), BinDir: programs.Dir,
		Log: i.Log.Named("postgres").StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	})
	if err != nil {
		return err
	}
	i.url, err = i.postgres.CreateDatabase(ctx, databaseName)
	return err
}

// outlive ends the run when PostgreSQL ends under it.
func (i *instance) outlive(ctx context.Context) error {
	if i.postgres == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-i.postgres.Done():
		return errors.New("the embedded PostgreSQL has ended: start `muster dev` again, nothing that was stored is lost")
	}
}

// tellSites says of the sites that were given and are not what is stored: an
// operator may have changed them since.
func (i *instance) tellSites(ctx context.Context) {
	if i.fleet != nil {
		return // they follow the fleet, and an operator's changes to them stay
	}
	for _, spec := range i.Sites {
		stored, err := store.SiteByName(ctx, i.db, spec.Name)
		if err == nil && sameSite(stored.Spec, spec) {
			continue
		}
		i.Log.Warn("the site is not as it was given: there were sites already; `muster site apply FILE` changes it", "site", spec.Name)
	}
}

// credentials makes the token of the commands, or keeps the one that is good.
func (i *instance) credentials(ctx context.Context) (client.Credentials, error) {
	c, err := client.ReadCredentials(i.DataDir)
	if err != nil {
		return c, err
	}
	token, err := store.TokenByHash(ctx, i.db, httpapi.HashToken(c.Token))
	good := err == nil && token.RevokedAt.IsZero() && (token.ExpiresAt.IsZero() || i.db.Now().Before(token.ExpiresAt))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return c, err
	}
	if !good {
		plain, hash := httpapi.NewToken()
		if _, err := store.CreateToken(ctx, i.db, store.Token{Name: "dev", Hash: hash, Scopes: httpapi.Scopes(), CreatedBy: actor}); err != nil {
			return c, err
		}
		c.Token = plain
	}
	c.URL, c.Database = server.URL(i.listener, false), i.url
	return c, c.Write(i.DataDir)
}

// close ends what was started, the last first. It does so although ctx has
// ended.
func (i *instance) close(ctx context.Context) error {
	var errs []error
	if i.listener != nil {
		errs = append(errs, i.listener.Close())
	}
	errs = append(errs, i.fleet.stop(ctx), i.temporal.stop())
	if i.db != nil {
		i.db.Close()
	}
	if i.postgres != nil {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		if err := i.postgres.Stop(ending); err != nil {
			errs = append(errs, fmt.Errorf("stop PostgreSQL: %w", err))
		}
	}
	if i.data != nil {
		errs = append(errs, i.data.Close())
	}
	return errors.Join(errs...)
}
