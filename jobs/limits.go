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

// limits are the caps and breakers of a bundle.
type limits struct {
	caps     []blastCap
	breakers []breaker
}

// scope says in what a limit counts: each of the named dimensions apart.
type scope struct {
	per   []string // of fleet, site, rack, class, workflow
	works []string // the workflows it counts; nil: every one
}

func (s *scope) has(dimension string) bool { return slices.Contains(s.per, dimension) }

// counts reports whether a workflow falls under the limit.
func (s *scope) counts(workflow string) bool {
	return s.works == nil || slices.Contains(s.works, workflow)
}

// of gives the scope that a device's work falls in, and its name.
func (s *scope) of(d *fleet.Device, workflow, site, rack string) (store.CapScope, string) {
	var in store.CapScope
	var name []string
	if s.has("site") || s.has("rack") {
		in.SiteID = d.SiteID
		name = append(name, site)
	}
	if s.has("rack") {
		in.RackID = d.RackID
		name = append(name, cmp.Or(rack, "no rack"))
	}
	if s.has("class") {
		in.Class = d.Class.String()
		name = append(name, in.Class)
	}
	if s.has("workflow") {
		in.Workflow = workflow
		name = append(name, workflow)
	}
	return in, strings.Join(name, ".")
}

func scoped(limit, scope string) string {
	if scope == "" {
		return limit
	}
	return limit + "@" + scope
}

// blastCap bounds how many devices disruptive work may hold at once.
type blastCap struct {
	scope
	name    string
	classes []string // nil: every one
	most    int      // 0: any number
	share   float64  // of the devices of the scope; 0: any
	policy  string
}

// allowed is how many devices of n the cap lets be held: of a share at least one.
func (c *blastCap) allowed(n int) int {
	allowed := math.MaxInt
	if c.most > 0 {
		allowed = c.most
	}
	if c.share > 0 {
		allowed = min(allowed, max(1, int(c.share*float64(n)+1e-9)))
	}
	return allowed
}

// breaker opens when too large a share of the runs within its window failed.
type breaker struct {
	scope
	name   string
	share  float64
	window time.Duration
	runs   int // fewer say nothing
}

// counted is what one cap counts in one scope.
type counted struct {
	cap     *blastCap
	in      store.CapScope
	scope   string
	devices map[int64]bool // of the submission
}

// caps judges the blast caps. With lock, others that count under the same caps
// wait until the end of tx.
func (a *admission) caps(ctx context.Context, tx pgx.Tx, l *limits, site string, all []fleet.Device, lock bool) error {
	if !a.workflow.Disruptive {
		return nil
	}
	under := map[string]*counted{}
	for i := range l.caps {
		c := &l.caps[i]
		if !c.counts(a.workflow.Slug) {
			continue
		}
		for j := range all {
			d := &all[j]
			if c.classes != nil && !slices.Contains(c.classes, d.Class.String()) || c.has("rack") && d.RackID == 0 {
				continue
			}
			in, name := c.of(d, a.workflow.Slug, site, a.racks[d.RackID])
			key := fmt.Sprintf("%s %+v", c.name, in)
			if under[key] == nil {
				under[key] = &counted{cap: c, in: in, scope: name, devices: map[int64]bool{}}
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
	held, of, holders, err := store.CountDisrupted(ctx, q, u.in, u.cap.works, u.cap.classes)
	if err != nil {
		return err
	}
	allowed := u.cap.allowed(of)
	if held+len(u.devices) <= allowed {
		return nil
	}
	by := "nothing holds one yet"
	if len(holders) > 0 {
		by = "held by " + strings.Join(holders[:min(len(holders), 5)], ", ")
	}
	name := scoped(u.cap.name, u.scope)
	refusal := a.report.refuse(CodeBlastCapExceeded, "the cap %s lets disruptive work hold %d devices at once: %d are held (%s), and this would hold %d more", name, allowed, held, by, len(u.devices))
	refusal.Path, refusal.Actual, refusal.Expected, refusal.Policy = "limits.blast_caps."+name, fmt.Sprint(held+len(u.devices)), fmt.Sprintf("<=%d", allowed), u.cap.policy
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

// limitsOf reads the caps and breakers of a bundle.
func limitsOf(*engine.Bundle) limits { return limits{} }
