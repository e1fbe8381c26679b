package dev

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// policies prepares the folder of policies and makes it the active bundle. A
// folder that does not load keeps the bundle that was active before.
func (i *instance) policies(ctx context.Context) (err error) {
	if i.policy, err = devices.OpenPolicy(i.db, muster.Bundle(), i.db.Now, i.Log.Named("policy")); err != nil {
		return err
	}
	if i.Policies == "" {
		i.Policies = filepath.Join(i.DataDir, "policies")
		if err := i.ownFolder(); err != nil {
			return err
		}
	}
	tree, err := bundle.Open(i.Policies)
	if err != nil {
		return err
	}
	active, err := store.Active(ctx, i.db)
	if errors.Is(err, store.ErrNotFound) {
		return nil // the seed activates it
	}
	if err != nil {
		return err
	}
	stored, err := store.Bundle(ctx, i.db, active.Version)
	if err != nil {
		return err
	}
	if bundle.Same(tree, stored.Files) {
		_, err = i.policy.Refresh(ctx)
		return err
	}
	if _, _, err := i.policy.Activate(ctx, tree, actor); err == nil {
		return nil
	} else if _, rerr := i.policy.Refresh(ctx); rerr != nil {
		return errors.Join(err, rerr)
	} else {
		i.policy.Rejected(err, nil) // Refresh has taken the status back
		return nil
	}
}

// ownFolder writes the shipped bundle where there is none. The schema of one
// that an older build wrote is renewed: nobody edits that.
func (i *instance) ownFolder() error {
	if _, err := os.Stat(i.Policies); errors.Is(err, fs.ErrNotExist) {
		return bundle.Write(muster.Bundle(), i.Policies)
	}
	changed, err := bundle.WriteSchema(muster.Bundle(), i.Policies)
	if len(changed) > 0 {
		i.Log.Info("the schema of the policies is renewed", "files", changed)
	}
	return err
}

func sameSite(a, b fleet.SiteSpec) bool { return reflect.DeepEqual(a, b) }
