// Package storetest sets databases up for the tests of the packages above the
// store. It decides nothing: what is made active is told.
package storetest

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/store"
)

// Bundle is what a database must know of a bundle that is active in it.
type Bundle struct {
	Version   string
	Semantics int
	Types     []string          // of conditions, in the order in which bits are given
	Files     map[string]string // of policies/; none where nobody loads them
}

// Migrated migrates the empty database at url; no bundle is active in it.
func Migrated(url string) error {
	_, err := migrations.Up(context.Background(), url)
	return err
}

// Active migrates the empty database at url and makes a bundle active; more is
// done in the same transaction, before.
func Active(url string, b Bundle, more ...func(ctx context.Context, tx pgx.Tx) error) error {
	ctx := context.Background()
	if err := Migrated(url); err != nil {
		return err
	}
	db, err := store.Open(ctx, url, store.Options{MaxConns: 2})
	if err != nil {
		return err
	}
	defer db.Close()
	if b.Files == nil {
		b.Files = map[string]string{}
	}
	return db.Tx(ctx, func(tx pgx.Tx) error {
		if _, err := store.GiveBits(ctx, tx, b.Types, b.Version); err != nil {
			return err
		}
		if err := store.StoreBundle(ctx, tx, store.PolicyBundle{Version: b.Version, Semantics: b.Semantics, Files: b.Files, StoredBy: "test"}); err != nil {
			return err
		}
		for _, do := range more {
			if err := do(ctx, tx); err != nil {
				return err
			}
		}
		return store.Activate(ctx, tx, b.Version, "test")
	})
}
