package devices

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// SiteChange is what applying a site would do, or did.
type SiteChange struct {
	Site    fleet.Site
	New     bool
	Added   []string // sources that it reads from now on
	Removed []string // sources that it reads no more
	Devices int      // devices of the site at this moment
}

// SiteOptions say how far an apply may go.
type SiteOptions struct {
	Actor        string
	RemoveSource bool // a source may be taken away
	DryRun       bool // say what would change, change nothing
}

// ApplySite stores a checked site. Its sources are swept and its devices are
// derived again at once. What a site is by birth (inventory_only) never
// changes, and a source is not taken away by leaving it out: SiteOptions must
// say so, since every value that it gave would go stale for good. With another
// NetBox its ids mean other machines: what the old one said is forgotten, and
// every device counts as listed before by the new one.
func ApplySite(ctx context.Context, db *store.DB, spec fleet.SiteSpec, o SiteOptions) (SiteChange, error) {
	change := SiteChange{}
	err := db.Tx(ctx, func(tx pgx.Tx) error {
		old, err := store.LockSite(ctx, tx, spec.Name)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		change = SiteChange{Site: old, New: old.ID == 0, Added: without(spec.SourceNames(), old.Spec.SourceNames()), Removed: without(old.Spec.SourceNames(), spec.SourceNames())}
		if err := allowed(change, old.Spec, spec, o); err != nil {
			return err
		}
		if err := claimNetBox(ctx, tx, &old, &spec); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "select count(*) from devices where site_id = $1 and retired_at is null", old.ID).Scan(&change.Devices); err != nil {
			return fmt.Errorf("count the devices of site %s: %w", spec.Name, err)
		}
		change.Site.Spec, change.Site.AppliedBy = spec, o.Actor
		if o.DryRun {
			return nil
		}
		if old.Spec.NetBox != nil && (spec.NetBox == nil || spec.NetBox.Instance != old.Spec.NetBox.Instance) {
			if err := store.ForgetRefs(ctx, tx, old.ID, "netbox"); err != nil {
				return err
			}
		}
		if change.Site, err = store.PutSite(ctx, tx, change.Site); err != nil {
			return err
		}
		return store.Audit(ctx, tx, store.AuditEntry{Principal: o.Actor, Action: "site.apply", Target: spec.Name,
			Detail: map[string]any{"revision": change.Site.Revision, "added": change.Added, "removed": change.Removed}})
	})
	return change, err
}

// claimNetBox refuses a site of a NetBox that another of our sites is already:
// its devices would be born twice.
func claimNetBox(ctx context.Context, tx pgx.Tx, old *fleet.Site, spec *fleet.SiteSpec) error {
	if spec.NetBox == nil || spec.InventorySource() != "netbox" {
		return nil
	}
	if err := store.LockInstanceSites(ctx, tx, spec.NetBox.Instance); err != nil {
		return err
	}
	sites, err := store.InstanceSites(ctx, tx, spec.NetBox.Instance)
	if err != nil {
		return err
	}
	for i := range sites {
		other := &sites[i]
		for _, slug := range spec.NetBox.Sites {
			if other.ID != old.ID && slices.Contains(other.Spec.NetBox.Sites, slug) {
				return fmt.Errorf("site %s: the site %s of NetBox %s is site %s already: take it out of one of them first", spec.Name, slug, spec.NetBox.Instance, other.Spec.Name)
			}
		}
	}
	return nil
}

func allowed(change SiteChange, old, spec fleet.SiteSpec, o SiteOptions) error {
	switch {
	case change.New:
		return nil
	case old.InventoryOnly != spec.InventoryOnly:
		return fmt.Errorf("site %s: inventory_only cannot change once the site exists: promote its devices one by one", spec.Name)
	case len(change.Removed) > 0 && !o.RemoveSource:
		return fmt.Errorf("site %s: this takes away %s: what it said of the devices would never be read again; say --remove-source if you mean it",
			spec.Name, strings.Join(change.Removed, ", "))
	}
	return nil
}

func without(list, taken []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(taken, s) })
}
