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
	cap     *engine.BlastCap
	in      store.CapScope
	name    string
	devices map[int64]bool // of the submission
}

// caps judges the blast caps. With lock, others that count under the same caps
// wait until the end of tx.
func (a *admission) caps(ctx context.Context, tx pgx.Tx, l *engine.Limits, site string, all []fleet.Device, lock bool) error {
	if !a.workflow.Disruptive {
		return nil
	}
	under := map[string]*counted{}
	for i := range l.Caps {
		c := &l.Caps[i]
		if !counts(&c.Scope, a.workflow.Slug) {
			continue
		}
		for j := range all {
			d := &all[j]
			if len(c.Classes) > 0 && !slices.Contains(c.Classes, d.Class.String()) || has(&c.Scope, "rack") && d.RackID == 0 {
				continue
			}
			in, name := scopeOf(&c.Scope, d, a.workflow.Slug, site, cmp.Or(a.racks[d.RackID], fmt.Sprintf("rack %d", d.RackID)))
			key := fmt.Sprintf("%s %+v", c.Name, in)
			if under[key] == nil {
				under[key] = &counted{cap: c, in: in, name: name, devices: map[int64]bool{}}
			}
			under[key].devices[d.ID] = true
		}
	}
	keys := make([]string, 0, len(under))
	for key := range under {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if lock {
		for _, key := range keys {
			if err := store.LockCap(ctx, tx, key); err != nil {
				return err
			}
		}
	}
	for _, key := range keys {
		if err := a.count(ctx, tx, under[key]); err != nil {
			return err
		}
	}
	return nil
}

func (a *admission) count(ctx context.Context, q store.Querier, u *counted) error {
	held, of, holders, err := store.CountDisrupted(ctx, q, u.in, u.cap.Workflows, u.cap.Classes)
	if err != nil {
		return err
	}
	most := allowed(u.cap, of)
	if held+len(u.devices) <= most {
		return nil
	}
	by := "nothing holds one yet"
	if len(holders) > 0 {
		by = "held by " + strings.Join(holders[:min(len(holders), 5)], ", ")
	}
	refusal := a.report.refuse(CodeBlastCapExceeded, "the cap %s lets disruptive work hold %d devices at once: %d are held (%s), and this would hold %d more", u.name, most, held, by, len(u.devices))
	refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "limits.blast_caps."+u.name, fmt.Sprint(held+len(u.devices)), fmt.Sprintf("<=%d", most), u.cap.Pos.Short()
	return nil
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
