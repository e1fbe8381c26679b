package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// allowLogin stands in a confirmation for the hash of a set: what a person allows
// is kept beside what a person confirms.
const allowLogin = "allow-login"

// LoginPermission is a person's word that credentials may be tried again.
type LoginPermission struct {
	ID        int64    // ascending in the order of a site's permissions
	Addresses []string // none: every one
}

// LoginRequest asks that the credential of BMCs be tried again where it was
// refused: of those at Address, else of Device, else of all of the site.
type LoginRequest struct {
	SiteID  int64
	Source  string
	Address string
	Device  int64
	Actor   string
	Remote  string
}

// AllowLogins records the permission and asks for the sweep that uses it; it
// gives the addresses, none for all. ErrNotFound when no unretired device of the
// site has such a BMC.
func AllowLogins(ctx context.Context, tx pgx.Tx, r LoginRequest) ([]string, error) {
	addresses := []string{}
	if r.Address != "" || r.Device != 0 {
		rows, err := tx.Query(ctx, `select distinct bmc_address from devices where site_id = $1 and retired_at is null and bmc_address <> ''
			and ($2 = '' or bmc_address = $2) and ($3 = 0 or id = $3)`, r.SiteID, fleet.AddressKey(r.Address), r.Device)
		if err != nil {
			return nil, fmt.Errorf("find the BMC: %w", err)
		}
		if addresses, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return nil, fmt.Errorf("find the BMC: %w", err)
		}
		if len(addresses) == 0 {
			return nil, fmt.Errorf("allow a login: no device has this BMC: %w", ErrNotFound)
		}
	}
	// The site's row orders the permissions: no smaller id is committed later.
	if _, err := tx.Exec(ctx, "select from sites where id = $1 for no key update", r.SiteID); err != nil {
		return nil, fmt.Errorf("allow a login: %w", err)
	}
	if _, err := tx.Exec(ctx, "insert into source_confirmations (site_id, source, hash, refs, confirmed_by) values ($1, $2, $3, $4, $5)",
		r.SiteID, r.Source, allowLogin, addresses, r.Actor); err != nil {
		return nil, fmt.Errorf("allow a login: %w", err)
	}
	if err := RequestSweep(ctx, tx, r.SiteID, r.Source); err != nil {
		return nil, err
	}
	return addresses, Audit(ctx, tx, AuditEntry{
		Principal: r.Actor, Remote: r.Remote, Action: "source.allow_login", Target: fmt.Sprintf("site %d source %s", r.SiteID, r.Source),
		Detail: map[string]any{"addresses": addresses, "all": len(addresses) == 0},
	})
}

// LoginsAllowed reads the permissions of a source behind the one with the given
// id, the oldest first. A permission is used by each replica, so none is spent.
func LoginsAllowed(ctx context.Context, q Querier, siteID int64, source string, after int64) ([]LoginPermission, error) {
	rows, err := q.Query(ctx, "select id, refs from source_confirmations where site_id = $1 and source = $2 and hash = $3 and id > $4 order by id",
		siteID, source, allowLogin, after)
	if err != nil {
		return nil, fmt.Errorf("read the logins that are allowed: %w", err)
	}
	permissions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (LoginPermission, error) {
		var p LoginPermission
		err := row.Scan(&p.ID, &p.Addresses)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the logins that are allowed: %w", err)
	}
	return permissions, nil
}
