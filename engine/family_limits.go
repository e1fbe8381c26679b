package engine

import (
	"slices"
	"strings"
	"time"

	"cuelang.org/go/cue"

	"github.com/musterhq/muster/facts"
)

// limits decodes policies/limits.
func (c *compiler) limits(b *Bundle, v cue.Value) {
	l := Limits{Sources: map[string]Pace{}, OverdueAfter: map[facts.ProvisionState]time.Duration{}}
	c.each(v.LookupPath(cue.ParsePath("sources")), "limits.sources", func(name string, entry cue.Value) {
		pace := Pace{Interval: c.duration(entry, "interval"), TTL: c.duration(entry, "ttl")}
		if interval := entry.LookupPath(cue.ParsePath("interval")); !interval.Exists() {
			c.fail(c.posOf(entry), "limits.sources.%s: interval is missing", name)
		}
		if pace.TTL == 0 {
			pace.TTL = 3 * pace.Interval
		}
		if pace.TTL < pace.Interval {
			c.fail(writtenAt(entry.LookupPath(cue.ParsePath("ttl"))), "limits.sources.%s: a ttl of %s ends before the next reading, %s later: nothing of it would ever be fresh", name, pace.TTL, pace.Interval)
		}
		l.Sources[name] = pace
	})
	missing, err := v.LookupPath(cue.ParsePath("missing_at_once")).Int64()
	if err != nil {
		c.fail(c.posOf(v), "limits.missing_at_once: %s", brief(err))
	}
	l.MissingAtOnce = int(missing)
	if l.ShrinkShare, err = v.LookupPath(cue.ParsePath("shrink_share")).Float64(); err != nil {
		c.fail(c.posOf(v), "limits.shrink_share: %s", brief(err))
	}
	for field, into := range map[string]*time.Duration{
		"inventory_grace":  &l.InventoryGrace,
		"health_hold":      &l.HealthHold,
		"future_tolerance": &l.FutureTolerance,
	} {
		*into = c.duration(v, field)
		if !v.LookupPath(cue.MakePath(cue.Str(field))).Exists() {
			c.fail(c.posOf(v), "limits.%s is missing", field)
		}
	}
	c.each(v.LookupPath(cue.ParsePath("overdue_after")), "limits.overdue_after", func(name string, _ cue.Value) {
		state, ok := facts.ParseProvisionState(name)
		if !ok {
			c.fail(c.posOf(v), "limits.overdue_after: %q is no Ironic state", name)
			return
		}
		l.OverdueAfter[state] = c.duration(v.LookupPath(cue.ParsePath("overdue_after")), name)
	})
	if round := l.Sources["bmc"].Interval; l.HealthHold > 0 && l.HealthHold < round {
		c.fail(writtenAt(v.LookupPath(cue.ParsePath("health_hold"))), "limits.health_hold: %s ends before the next round over the BMCs, %s later: no reading would last", l.HealthHold, round)
	}
	c.caps(v, &l)
	b.limitValues = l
}

// caps decodes what may go wrong at once.
func (c *compiler) caps(v cue.Value, l *Limits) {
	scopes := func(field string, f func(scope Scope, entry cue.Value)) {
		found := v.LookupPath(cue.ParsePath(field))
		if !found.Exists() {
			return
		}
		c.each(found, "limits."+field, func(name string, entry cue.Value) {
			f(Scope{Name: name, Per: textsOf(entry, "per"), Workflows: textsOf(entry, "workflows"), Pos: writtenAt(entry.LookupPath(cue.ParsePath("per")))}, entry)
		})
	}
	share := func(entry cue.Value, field string) float64 {
		share, err := entry.LookupPath(cue.ParsePath(field)).Float64()
		if err != nil {
			return 0 // left out
		}
		return share
	}
	scopes("blast_caps", func(scope Scope, entry cue.Value) {
		l.Caps = append(l.Caps, BlastCap{Scope: scope, Classes: textsOf(entry, "classes"), Devices: c.count(entry, "devices"), Share: share(entry, "share")})
	})
	scopes("breakers", func(scope Scope, entry cue.Value) {
		l.Breakers = append(l.Breakers, Breaker{Scope: scope, Window: c.duration(entry, "window"), MinRuns: c.count(entry, "min_runs"), FailureShare: share(entry, "failure_share")})
	})
	slices.SortFunc(l.Caps, func(a, b BlastCap) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(l.Breakers, func(a, b Breaker) int { return strings.Compare(a.Name, b.Name) })
}
