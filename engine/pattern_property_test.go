package engine

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The compiled matcher, the tree that explain walks, and CUE agree on random
// patterns over random facts.
func TestCompiledPatternsMeanWhatCUESays(t *testing.T) {
	t.Parallel()
	const perPattern = 10
	var matched, total, negated, rejected int
	a := newAsked(t)
	for round, left := 0, casesOf()/perPattern; left > 0; round, left = round+1, left-roundSize {
		rapid.Check(t, func(t *rapid.T) {
			a = a.fresh(t)
			for range roundSize / rapidChecks() {
				text := a.text(t)
				v := a.pattern(text)
				a.c.findings = nil
				p := a.c.patternOf(v, nil)
				if v.Err() != nil || v.Validate() != nil {
					rejected++ // a contradiction, which vetting tells
					continue
				}
				if len(a.c.findings) > 0 {
					if strings.Contains(a.c.findings[0].Message, "matches no value") || strings.Contains(a.c.findings[0].Message, "alternatives") {
						rejected++
						continue
					}
					t.Fatalf("%s\ndoes not compile: %v", text, a.c.findings)
				}
				for range perPattern {
					s := a.deviceFor(t, p)
					body, err := json.Marshal(s.whole)
					if err != nil {
						t.Fatal(err)
					}
					want := a.matches(v, a.whole(body))
					_, failed := (&Bundle{}).tests(p, &s.in, 0)
					if got, tree, explained := p.cubes.matches(&s.in), p.matches(&s.in), failed == nil; got != want || tree != want || explained != want {
						t.Fatalf("%s\nCUE says %v; cubes %v, tree %v, explain %v\n%s", text, want, got, tree, explained, body)
					}
					total++
					if want {
						matched++
					}
					if len(p.not) > 0 {
						negated++
					}
				}
			}
		})
	}
	t.Logf("%d comparisons, %d matched, %d with not; %d patterns contradict themselves", total, matched, negated, rejected)
	if matched*10 < total || negated*10 < total {
		t.Errorf("the sample is thin: %d of %d matched, %d with not", matched, total, negated)
	}
}

// roundSize is how many patterns one round draws.
const roundSize = 200

// rapidChecks is how many cases rapid draws unless its flag says otherwise.
func rapidChecks() int { return 100 }

// Ladders of random rungs give the first rung that CUE says matches, from a
// table, from a scan and with SLURM's tokens apart alike.
func TestRandomLaddersGiveTheFirstRung(t *testing.T) {
	t.Parallel()
	a := newAsked(t)
	var tabulated, wideOnes int
	rapid.Check(t, func(t *rapid.T) {
		a = a.fresh(t)
		l := &Ladder{Name: "random"}
		for range rapid.IntRange(1, 3).Draw(t, "rungs") {
			a.c.findings = nil
			text := a.text(t)
			if rapid.IntRange(0, 2).Draw(t, "single") == 0 {
				text = rapid.SampledFrom([]string{"slurm: states: DRAIN: true", "slurm: states: IDLE: true", "any: [{slurm: states: IDLE: true}, {slurm: states: DRAIN: true}]"}).Draw(t, "token")
			}
			p := a.c.patternOf(a.pattern(text), nil)
			if len(a.c.findings) > 0 {
				continue
			}
			l.Rungs = append(l.Rungs, Rung{Name: "rung", pattern: p, Tests: p.conditions()})
			l.Conditions |= p.conditions()
		}
		l.build(a.c)
		scanned, split := newWide(l), splitLadder(a.c, l)
		if l.table != nil {
			tabulated++
		} else {
			wideOnes++
		}
		for range 5 {
			p := &pattern{}
			if len(l.Rungs) > 0 {
				p = l.Rungs[rapid.IntRange(0, len(l.Rungs)-1).Draw(t, "near")].pattern
			}
			s := a.deviceFor(t, p)
			want := slices.IndexFunc(l.Rungs, func(r Rung) bool { return r.pattern.matches(&s.in) })
			if want < 0 {
				want = len(l.Rungs)
			}
			if first, scan, wide, apart := l.first(&s.in), l.scan(&s.in), scanned.first(&s.in), split.first(&s.in); first != want || scan != want || wide != want || apart != want {
				t.Fatalf("want rung %d; first %d, scan %d, wide %d, tokens apart %d", want, first, scan, wide, apart)
			}
		}
	})
	t.Logf("%d tabulated, %d wide", tabulated, wideOnes)
}

// splitLadder is the ladder as it is built when its table would be too large:
// with the rungs of single tokens apart, or scanned.
func splitLadder(c *compiler, l *Ladder) *Ladder {
	tokens, rest := splitTokens(l)
	t, size := dimensionsOf(rest, l.Conditions, &c.all)
	if size > maxTable {
		return &Ladder{Rungs: l.Rungs, wide: newWide(l)}
	}
	t.rungs = make([]uint8, size)
	t.fill(rest)
	return &Ladder{Rungs: l.Rungs, tokens: tokens, table: t}
}
