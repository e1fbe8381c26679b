package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/facts"
)

// ladder tells of rungs that decide nothing and, where people argue about the
// order of rungs, of an order that matters.
func (l *linter) ladder(ladder *Ladder, ordered bool) {
	regions := l.space.regions(ladder)
	if regions == nil {
		l.say(ladder.Pos, Note, "%s is too wide to be looked through: its rungs are not checked for reachability", ladder.Name)
		return
	}
	for i := range ladder.Rungs {
		rung := &ladder.Rungs[i]
		own := l.space.within(rung.pattern.cubes)
		switch {
		case len(own) == 0:
			l.say(rung.Pos, Error, "rung %s can never match: its tests exclude each other", rung.Name)
		case len(regions[i]) == 0:
			l.say(rung.Pos, Error, "rung %s is unreachable: whatever matches it is decided by %s", rung.Name, l.before(ladder, i))
		case l.everything(own) && len(ladder.Rungs) > i+1:
			l.say(rung.Pos, Error, "rung %s matches every device: the rungs after it are never asked", rung.Name)
		case ordered:
			l.redundant(ladder, regions, i)
			l.order(ladder, regions, i)
		}
	}
}

func (l *linter) everything(cs cubes) bool {
	rest, ok := l.space.rest(cs)
	return ok && len(rest) == 0
}

// before names the earlier rungs that match something that rung i matches.
func (l *linter) before(ladder *Ladder, i int) string {
	var names []string
	for j := range i {
		if both, ok := l.space.meet(l.space.within(ladder.Rungs[j].pattern.cubes), ladder.Rungs[i].pattern.cubes); ok && len(both) > 0 {
			names = append(names, ladder.Rungs[j].Name)
		}
	}
	return strings.Join(names, ", ")
}

// redundant notes a rung without which every device would be given the same.
func (l *linter) redundant(ladder *Ladder, regions []cubes, i int) {
	left := regions[i]
	for j := i + 1; j <= len(ladder.Rungs) && len(left) > 0; j++ {
		takes, ok := left, true
		if j < len(ladder.Rungs) {
			own := l.space.within(ladder.Rungs[j].pattern.cubes)
			if takes, ok = l.space.meet(left, own); ok {
				left, ok = l.space.minus(left, own)
			}
		}
		if !ok || len(takes) > 0 && ladder.Gives[j] != ladder.Gives[i] {
			return
		}
	}
	l.say(ladder.Rungs[i].Pos, Note, "rung %s changes no outcome: without it every device that it decides would be given %s as well", ladder.Rungs[i].Name, ladder.Gives[i])
}

// order notes the later rungs that match and would give otherwise what rung i
// decides: to move it behind one of them changes what the witness is given.
func (l *linter) order(ladder *Ladder, regions []cubes, i int) {
	var later []string
	witness := ""
	for j := i + 1; j < len(ladder.Rungs); j++ {
		if ladder.Gives[j] == ladder.Gives[i] {
			continue
		}
		both, ok := l.space.meet(regions[i], l.space.within(ladder.Rungs[j].pattern.cubes))
		at := slices.IndexFunc(both, func(c cube) bool { return certain(&c) })
		if !ok || at < 0 {
			continue
		}
		if later = append(later, ladder.Rungs[j].Name); witness == "" {
			asked := l.space.witness(&both[at], ladder.Rungs[i].pattern, ladder.Rungs[j].pattern)
			witness = fmt.Sprintf("with %s it is %s and not %s", asked, ladder.Gives[i], ladder.Gives[j])
		}
	}
	if len(later) > 0 {
		l.say(ladder.Rungs[i].Pos, Note, "rung %s must stand before %s: %s", ladder.Rungs[i].Name, strings.Join(later, ", "), witness)
	}
}

// operational checks what the status ladder promises: it reads what feeds it,
// and what it offers it knows.
func (l *linter) operational(ladder *Ladder) {
	for i := range ladder.Rungs {
		rung := &ladder.Rungs[i]
		rung.pattern.walk(func(leaf *leaf, _ bool) {
			if !leaf.condition() {
				return
			}
			if feeds := l.space.types[leaf.bit].Feeds; feeds != "operational" {
				l.say(leaf.near(rung.Pos), Error, "rung %s tests %s, which feeds %s: the operational status is judged by types that feed it alone", rung.Name, leaf.path, feedsWhat(feeds))
			}
		})
		if l.promotes(ladder, i) {
			l.promotion(ladder, i)
		}
		l.tolerates(ladder, i)
	}
	if l.promotes(ladder, len(ladder.Rungs)) {
		l.say(ladder.otherwisePos, Error, "otherwise may not give %s: nothing is known of a device that no rung matches", ladder.Gives[len(ladder.Rungs)])
	}
}

// near is where a test is written, or the head of its rung or gate where CUE
// tells only where the family ties the name in.
func (l *leaf) near(head Pos) Pos {
	if l.pos.File == head.File && l.pos.Line >= head.Line {
		return l.pos
	}
	return head
}

func feedsWhat(feeds string) string {
	if feeds == "none" {
		return "none"
	}
	return feeds + " alone"
}

func (l *linter) promotes(ladder *Ladder, i int) bool {
	return promotions>>l.bundle.operationalGives[i]&1 == 1
}

// promotion checks that a gain tests positively what it relies on, and that it
// does not rest on an earlier rung having failed to match.
func (l *linter) promotion(ladder *Ladder, i int) {
	rung := &ladder.Rungs[i]
	gives := ladder.Gives[i]
	rung.pattern.walk(func(leaf *leaf, negated bool) {
		if negated || leaf.condition() && leaf.tri != triTrue && leaf.tri != triFalse {
			l.say(leaf.near(rung.Pos), Error, "rung %s gives %s and must test %s positively: write one of \"True\" and \"False\"", rung.Name, gives, leaf.path)
		}
	})
	own := l.space.within(rung.pattern.cubes)
	for j := range i {
		if ladder.Gives[j] == gives {
			continue
		}
		for _, name := range l.restsOn(own, l.space.within(ladder.Rungs[j].pattern.cubes), rung.Tolerates) {
			l.say(rung.Pos, Error, "rung %s gives %s and rests on rung %s not matching: were %s Unknown, it would gain; test %s, or say under unknownTolerated why it may be Unknown", rung.Name, gives, ladder.Rungs[j].Name, name, name)
		}
	}
}

// tolerates tells of conditions that a rung tolerates as Unknown although
// nothing would be refused for them.
func (l *linter) tolerates(ladder *Ladder, i int) {
	rung := &ladder.Rungs[i]
	if rung.Tolerates == 0 {
		return
	}
	if !l.promotes(ladder, i) {
		l.say(rung.Pos, Warning, "rung %s gives %s, which is no gain: its unknownTolerated says nothing", rung.Name, ladder.Gives[i])
		return
	}
	var needed []string
	own := l.space.within(rung.pattern.cubes)
	for j := range i {
		if ladder.Gives[j] != ladder.Gives[i] {
			needed = append(needed, l.restsOn(own, l.space.within(ladder.Rungs[j].pattern.cubes), 0)...)
		}
	}
	for bit, t := range l.space.types {
		if t != nil && rung.Tolerates>>bit&1 == 1 && !slices.Contains(needed, t.Name) {
			l.say(rung.Pos, Warning, "rung %s tolerates %s as Unknown, but does not rest on it: the rung tests it itself, or no earlier rung does", rung.Name, t.Name)
		}
	}
}

// silence checks the other ladders of policies/status: what nobody has read
// makes no device healthy, and what no rung matches is not ready for customers.
func (l *linter) silence() {
	reading, _ := facts.FieldOf("bmc.chassis_health")
	for i, region := range l.space.regions(l.bundle.health) {
		if l.bundle.healthGives[i] == facts.HealthStatusHealthy && len(l.project(region, reading, true)) > 0 {
			l.say(l.bundle.health.RungPos(i), Error, "health: %s gives healthy although bmc.chassis_health was not read: silence repairs nothing", l.bundle.health.RungName(i))
		}
	}
	if ready := l.bundle.customerReadyYes; ready[len(ready)-1] {
		l.say(l.bundle.customerReady.otherwisePos, Error, "customer_ready: otherwise may not give yes: nothing is known of a device that no rung matches")
	}
}

// restsOn names the conditions that, turned Unknown, take an input from the
// earlier rung and leave it to the later.
func (l *linter) restsOn(own, earlier cubes, tolerated uint64) []string {
	var names []string
	for a := range own {
		for b := range earlier {
			if _, meet := own[a].and(&earlier[b]); !meet {
				continue
			}
			for bit, t := range l.space.types {
				mask := uint64(1) << bit
				if t == nil || earlier[b].notUnknown&mask == 0 || own[a].notUnknown&mask != 0 || tolerated&mask != 0 {
					continue
				}
				if !slices.Contains(names, t.Name) {
					names = append(names, t.Name)
				}
			}
		}
	}
	return names
}
