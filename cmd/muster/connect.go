package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/config"
	"github.com/musterhq/muster/cmd/muster/server"
	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// dataDirFlag adds --data-dir: where `muster dev` keeps its things.
func (a *app) dataDirFlag(c *cobra.Command, into *string) {
	c.Flags().StringVar(into, "data-dir", "", "data directory of `muster dev` (MUSTER_DATA_DIR; default $XDG_DATA_HOME/muster/dev)")
	c.Flags().Lookup("data-dir").Usage = "data directory of muster dev (MUSTER_DATA_DIR; default $XDG_DATA_HOME/muster/dev)"
}

// dataDir gives the data directory that was said, or the usual one.
func (a *app) dataDir(said string) (string, error) {
	if said == "" {
		said = a.getenv("MUSTER_DATA_DIR")
	}
	if said != "" {
		return said, nil
	}
	return embedded.DefaultDir(a.getenv)
}

// left reads the credentials that `muster dev` left, zero where it left none.
func (a *app) left(dataDir string) (client.Credentials, error) {
	dir, err := a.dataDir(dataDir)
	if err != nil {
		return client.Credentials{}, nil // no home, no credentials
	}
	return client.ReadCredentials(dir)
}

// connection holds the flags that name a running server.
type connection struct {
	url, token, dataDir string
}

func (a *app) connectFlags(c *cobra.Command) *connection {
	n := &connection{}
	c.Flags().StringVar(&n.url, "url", "", "the server to ask (MUSTER_URL; default: that of muster dev)")
	c.Flags().StringVar(&n.token, "token", "", "the token to show (better MUSTER_TOKEN: others see a command line)")
	a.dataDirFlag(c, &n.dataDir)
	return n
}

// connect makes the client of the server that flags, environment or
// `muster dev` name.
func (a *app) connect(n *connection) (*client.Client, error) {
	left, err := a.left(n.dataDir)
	if err != nil {
		return nil, err
	}
	said := client.Credentials{URL: n.url, Token: n.token}
	if said.URL == "" && n.dataDir == "" {
		said.URL = a.getenv("MUSTER_URL")
	}
	if said.Token == "" && n.dataDir == "" {
		said.Token = a.getenv("MUSTER_TOKEN")
	}
	picked, err := client.Pick(said, left)
	if err != nil {
		return nil, usage("%w", err)
	}
	c, err := client.New(picked)
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// administration holds the flags that name a database.
type administration struct {
	url, config, dataDir string
}

func (a *app) adminFlags(c *cobra.Command) *administration {
	n := &administration{}
	c.Flags().StringVar(&n.url, "postgres-url", "", "the database (MUSTER_DATABASE_URL; default: that of muster dev)")
	c.Flags().StringVar(&n.config, "config", "", "the server's configuration, which names the database (MUSTER_CONFIG)")
	a.dataDirFlag(c, &n.dataDir)
	return n
}

// databaseURL finds the database that flags, environment, a configuration or
// `muster dev` name.
func (a *app) databaseURL(n *administration) (string, error) {
	if n.dataDir == "" {
		r, named, err := a.config(n.config, map[string]string{"database.url": n.url})
		if err != nil {
			return "", err
		}
		if named {
			return resolved(r.Config.Database.URL)
		}
	}
	left, err := a.left(n.dataDir)
	if err != nil {
		return "", err
	}
	if left.Database == "" {
		return "", usage("which database? Name it with MUSTER_DATABASE_URL, --postgres-url or --config, or start `muster dev`")
	}
	return left.Database, nil
}

// config loads the configuration if anything names a database: the file, the
// environment or a flag. Empty flags say nothing.
func (a *app) config(file string, flags map[string]string) (r config.Resolved, named bool, err error) {
	if file == "" {
		file = a.getenv("MUSTER_CONFIG")
	}
	said := map[string]string{}
	for key, value := range flags {
		if value != "" {
			said[key] = value
		}
	}
	if file == "" && said["database.url"] == "" && a.getenv(config.Variable("database.url")) == "" {
		return r, false, nil
	}
	r, err = config.Load(config.Input{Schema: muster.Bundle(), File: file, Environ: a.environ, Flags: said})
	if err != nil {
		return r, false, usage("%w", err)
	}
	return r, true, nil
}

// resolved reads a database URL from where the configuration says it is.
func resolved(url string) (string, error) {
	if strings.HasPrefix(url, "env:") || strings.HasPrefix(url, "file:") {
		secret, err := registry.Secret(url)
		if err != nil {
			return "", usage("read the database's URL: %w", err)
		}
		return secret, nil
	}
	return url, nil
}

// administer opens the database for one command.
func (a *app) administer(ctx context.Context, n *administration, f func(db *store.DB) error) error {
	url, err := a.databaseURL(n)
	if err != nil {
		return err
	}
	db, err := server.Open(ctx, url, store.Options{Application: "muster cli", MaxConns: 4})
	if err != nil {
		return unreachable(err)
	}
	defer db.Close()
	return f(db)
}

// unreachable adds what to do where the database does not answer.
func unreachable(err error) error {
	if server.Unreachable(err) {
		return &exitError{code: exitUnreachable, err: fmt.Errorf("%w\nthe database does not answer: is it running? (`muster dev` brings one along)", err)}
	}
	return err
}

// actor names who administers, for the history.
func (a *app) actor() string {
	if u, err := user.Current(); err == nil {
		return "cli:" + u.Username
	}
	return "cli"
}

// logger logs to standard error.
func (a *app) logger(level string, json bool) (hclog.Logger, error) {
	parsed := hclog.LevelFromString(level)
	if parsed == hclog.NoLevel {
		return nil, usage("--log-level is one of debug, info, warn, error, not %q", level)
	}
	return hclog.New(&hclog.LoggerOptions{Name: "muster", Level: parsed, Output: a.stderr, JSONFormat: json}), nil
}

// notFound makes a missing row the answer no.
func notFound(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return &exitError{code: exitNo, err: err}
	}
	return err
}
