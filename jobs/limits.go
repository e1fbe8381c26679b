package jobs

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// has tells whether a limit counts each member of a dimension apart.
func has(s *engine.Scope, dimension string) bool { return slices.Contains(s.Per, dimension) }

// counts reports whether a workflow falls under the limit.
func counts(s *engine.Scope, workflow string) bool {
	return len(s.Workflows) == 0 || slices.Contains(s.Workflows, workflow)
}

// scopeOf gives the scope that a device's work falls in, and its name.
func scopeOf(s *engine.Scope, d *fleet.Device, workflow, site, rack string) (store.CapScope, string) {
	var in store.CapScope
	var name []string
	if has(s, "site") || has(s, "rack") {
		in.SiteID = d.SiteID
		name = append(name, site)
	}
	if has(s, "rack") {
		in.RackID = d.RackID
		name = append(name, cmp.Or(rack, "no rack"))
	}
	if has(s, "class") {
		in.Class = d.Class.String()
		name = append(name, in.Class)
	}
	if has(s, "workflow") {
		in.Workflow = workflow
		name = append(name, workflow)
	}
	return in, scoped(s.Name, strings.Join(name, "."))
}

func scoped(limit, scope string) string {
	if scope == "" {
		return limit
	}
	return limit + "@" + scope
}

// allowed is how many of n devices the cap lets be held: of a share at least one.
func allowed(c *engine.BlastCap, n int) int {
	most := math.MaxInt
	if c.Devices > 0 {
		most = c.Devices
	}
	if c.Share > 0 {
		most = min(most, max(1, int(c.Share*float64(n)+1e-9)))
	}
	return most
}

// counted is what one cap counts in one scope.
type counted struct {
	cap  *engine.BlastCap
	in   store.CapScope
	name string
	key  string
	more int // devices of the submission
}

// caps judges the blast caps. With lock, others that count under the same caps
// wait until the end of tx.
func (a *admission) caps(ctx context.Context, tx pgx.Tx, l *engine.Limits, site string, all []fleet.Device, lock bool) error {
	if !a.workflow.Disruptive {
		return nil
	}
	under := a.under(l, site, all)
	keys, caps := make([]string, len(under)), make([]store.Cap, len(under))
	for i, u := range under {
		keys[i] = u.key
		caps[i] = store.Cap{CapScope: u.in, Works: u.cap.Workflows, Classes: u.cap.Classes, Share: u.cap.Share > 0}
	}
	if lock {
		if err := store.LockCaps(ctx, tx, keys); err != nil {
			return err
		}
	}
	counts, err := store.CountDisrupted(ctx, tx, caps)
	if err != nil {
		return err
	}
	for i, u := range under {
		a.count(u, &counts[i])
	}
	return nil
}

// under lists the caps that the devices' work falls under, once for every scope,
// in the order in which they are locked.
func (a *admission) under(l *engine.Limits, site string, all []fleet.Device) []*counted {
	alike := map[store.CapScope][]*fleet.Device{} // by site, rack and class
	for i := range all {
		in := store.CapScope{SiteID: all[i].SiteID, RackID: all[i].RackID, Class: all[i].Class.String()}
		alike[in] = append(alike[in], &all[i])
	}
	var under []*counted
	for i := range l.Caps {
		c := &l.Caps[i]
		if !counts(&c.Scope, a.workflow.Slug) {
			continue
		}
		scopes := map[store.CapScope]*counted{}
		for _, some := range alike {
			d := some[0]
			if len(c.Classes) > 0 && !slices.Contains(c.Classes, d.Class.String()) || has(&c.Scope, "rack") && d.RackID == 0 {
				continue
			}
			in, name := scopeOf(&c.Scope, d, a.workflow.Slug, site, cmp.Or(a.racks[d.RackID], fmt.Sprintf("rack %d", d.RackID)))
			u := scopes[in]
			if u == nil {
				u = &counted{cap: c, in: in, name: name, key: fmt.Sprintf("%s %+v", c.Name, in)}
				scopes[in] = u
				under = append(under, u)
			}
			u.more += len(some)
		}
	}
	slices.SortFunc(under, func(x, y *counted) int { return strings.Compare(x.key, y.key) })
	return under
}

func (a *admission) count(u *counted, is *store.CapCount) {
	most := allowed(u.cap, is.All)
	if is.Held+u.more <= most {
		return
	}
	by := "nothing holds one yet"
	if len(is.Holders) > 0 {
		by = "held by " + strings.Join(is.Holders[:min(len(is.Holders), 5)], ", ")
	}
	refusal := a.report.refuse(CodeBlastCapExceeded, "the cap %s lets disruptive work hold %d devices at once: %d are held (%s), and this would hold %d more", u.name, most, is.Held, by, u.more)
	refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "limits.blast_caps."+u.name, fmt.Sprint(is.Held+u.more), fmt.Sprintf("<=%d", most), u.cap.Pos.Short()
}

// barred judges the open breakers.
func (a *admission) barred(ctx context.Context, q store.Querier, all []fleet.Device) error {
	open, err := store.OpenBreakers(ctx, q)
	if err != nil {
		return err
	}
	for i := range open {
		b := &open[i]
		if b.Workflow != "" && b.Workflow != a.workflow.Slug {
			continue
		}
		if !slices.ContainsFunc(all, func(d fleet.Device) bool { return concerns(b, &d) }) {
			continue
		}
		refusal := a.report.refuse(CodeBreakerOpen, "breaker %s is open since %s: %s. Look at what failed, then POST /api/v1/breakers/%s/reset/ with a reason",
			b.Name, b.TrippedAt.Format(time.RFC3339), b.Reason, b.Name)
		refusal.Path, refusal.Actual, refusal.Expected = "breakers."+b.Name, "open", "closed"
	}
	return nil
}

func concerns(b *fleet.Breaker, d *fleet.Device) bool {
	return (b.SiteID == 0 || b.SiteID == d.SiteID) && (b.RackID == 0 || b.RackID == d.RackID) && (b.DeviceClass == "" || b.DeviceClass == d.Class.String())
}
