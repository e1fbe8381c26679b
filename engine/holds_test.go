package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/facts"
)

// propertyCases is how many random standings a property looks at beside its
// exhaustive part; MUSTER_PROPERTY_CASES raises it.
func propertyCases(t *testing.T, least int) int {
	t.Helper()
	text := os.Getenv("MUSTER_PROPERTY_CASES")
	if text == "" {
		return least
	}
	cases, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("MUSTER_PROPERTY_CASES: %v", err)
	}
	return max(cases, least)
}

var oracleReach = sync.OnceValue(newReachTable)

// modelRung is a rung of the device model as the tests state it: the values it
// wants, by condition, "" for not tested.
type modelRung struct {
	name      string
	wants     map[uint64]int
	gives     facts.OperationalStatus
	tolerates uint64
}

// deviceModel is the operational ladder of the device model, stated a second
// time: rung by rung as data, where handWritten is nested code.
func deviceModel() []modelRung {
	const no, yes, unknown = digitFalse, digitTrue, digitUnknown
	type wants = map[uint64]int
	return []modelRung{
		{"provision-failed", wants{bitProvisionFailed: yes}, facts.OperationalStatusFailed, 0},
		{"maintenance", wants{bitMaintenance: yes}, facts.OperationalStatusQuarantine, 0},
		{"no-infrastructure", wants{bitEnrolled: unknown}, facts.OperationalStatusUnknown, 0},
		{"not-enrolled", wants{bitEnrolled: no}, facts.OperationalStatusQuarantine, 0},
		{"validation-not-in-slurm", wants{bitValidationAllocated: yes, bitCustomerReady: no, bitSlurmMember: no}, facts.OperationalStatusQuarantine, 0},
		{"validation-unschedulable", wants{bitValidationAllocated: yes, bitCustomerReady: no, bitSlurmSchedulable: no}, facts.OperationalStatusQuarantine, 0},
		{"validation", wants{bitProvisionFailed: no, bitMaintenance: no, bitEnrolled: yes, bitValidationAllocated: yes, bitCustomerReady: no}, facts.OperationalStatusValidation, slurmBits},
		{"customer-in-use", wants{bitCustomerReady: yes, bitInstanceAllocated: yes}, facts.OperationalStatusInUse, 0},
		{"customer-available", wants{bitProvisionFailed: no, bitMaintenance: no, bitEnrolled: yes, bitCustomerReady: yes, bitInstanceAllocated: no, bitMaintenancePool: no, bitProvisionAvailable: yes}, facts.OperationalStatusAvailable, 0},
		{"customer-occupied", wants{bitCustomerReady: yes, bitInstanceAllocated: no, bitMaintenancePool: no, bitProvisionAvailable: no}, facts.OperationalStatusInUse, 0},
		{"maintenance-pool", wants{bitMaintenancePool: yes}, facts.OperationalStatusQuarantine, 0},
	}
}

// modelBundle compiles rungs as the loader does, without any CUE.
func modelBundle(t testing.TB, model []modelRung, otherwise facts.OperationalStatus) *Bundle {
	t.Helper()
	return modelBundleOf(t, model, otherwise, 0, 0)
}

// modelBundleOf has types that count as False without a row, and durable ones.
func modelBundleOf(t testing.TB, model []modelRung, otherwise facts.OperationalStatus, absentFalse, durable uint64) *Bundle {
	t.Helper()
	l := &Ladder{Name: "model"}
	var gives []facts.OperationalStatus
	for _, m := range model {
		rung := Rung{Name: m.name, Tolerates: m.tolerates, plain: true, pattern: &pattern{cubes: cubes{{}}}}
		for bit, want := range m.wants {
			rung.top |= bit
			c := &rung.pattern.cubes[0]
			if want != digitFalse {
				c.notFalse |= bit
			}
			if want != digitTrue {
				c.notTrue |= bit
			}
			if want != digitUnknown {
				c.notUnknown |= bit
			}
		}
		rung.Tests = rung.top
		l.Conditions |= rung.Tests
		l.Rungs = append(l.Rungs, rung)
		gives = append(gives, m.gives)
	}
	l.build(&compiler{})
	gives = append(gives, otherwise)
	d, err := newDerivation(l, gives, (allBits|bitBurnIn)&^absentFalse, durable)
	if err != nil {
		t.Fatal(err)
	}
	return &Bundle{operational: l, operationalGives: gives, derivation: d}
}

func deviceModelBundle(t testing.TB) *Bundle {
	return modelBundle(t, deviceModel(), facts.OperationalStatusQuarantine)
}

// oracle is the rule of holds read off the device model, over handWritten.
func oracle(s *Standing) (status facts.OperationalStatus, rung int16, hold Hold) {
	t, u := s.True&s.Present, s.Unknown&s.Present|allBits&^s.Present
	rung = handWritten(t, u)
	gives := rungStatus[rung]
	missing := s.InScope &^ s.Present & allBits
	stale := (s.Stale&s.InScope | missing) & allBits
	past := s.PastHold & s.InScope & allBits
	if rungTests[rung]&past != 0 {
		return facts.OperationalStatusUnknown, rung, PastHold
	}
	if gives == s.Status {
		return gives, rung, Followed
	}
	promotes := gives == facts.OperationalStatusAvailable || gives == facts.OperationalStatusValidation || gives == facts.OperationalStatusDelegated
	blocked := promotes && (rungTests[rung]|rungTolerates[rung])&(stale|past) != 0
	blocked = blocked || statusesOf(oracleReach().reach(t, u, missing), 0) != 1<<gives
	switch {
	case !blocked:
		return gives, rung, Followed
	case statusesOf(oracleReach().reach(t, u, stale|past), past)>>s.Status&1 == 1:
		return s.Status, rung, Held
	}
	return facts.OperationalStatusQuarantine, rungOtherwise, Withheld
}

// freshOracle is the rule of freshness over handWritten.
func freshOracle(s *Standing, rung int16, hold Hold) bool {
	stale := (s.Stale | s.PastHold | ^s.Present) & s.InScope & allBits
	switch {
	case stale == 0:
		return true
	case hold != Followed:
		return false
	case rung == rungOtherwise:
		t, u := s.True&s.Present, s.Unknown&s.Present|allBits&^s.Present
		return statusesOf(oracleReach().reach(t, u, stale), 0) == 1<<rungStatus[rung]
	}
	return (rungTests[rung]|rungTolerates[rung])&stale == 0
}

func spell(s *Standing) string {
	var b strings.Builder
	for _, bit := range bitsOf(allBits) {
		value := "False"
		switch {
		case s.Present&bit == 0:
			value = "no row"
		case s.Unknown&bit != 0:
			value = "Unknown"
		case s.True&bit != 0:
			value = "True"
		}
		for mask, word := range map[uint64]string{s.Stale: "stale", s.PastHold: "past hold", ^s.InScope: "out of scope"} {
			if mask&bit != 0 {
				value += ", " + word
			}
		}
		fmt.Fprintf(&b, "\n  %s: %s", bitNames[bit], value)
	}
	return fmt.Sprintf("status %s%s", s.Status, b.String())
}

// silences are the stale masks that outages and unread facts make.
func silences() []uint64 {
	all := []uint64{
		0, slurmBits, openstackBits, allBits,
		bitInstanceAllocated, // Placement alone
		bitProvisionFailed | bitEnrolled | bitProvisionAvailable,       // the state unread
		bitValidationAllocated | bitMaintenancePool | bitCustomerReady, // the lessee unread
	}
	for _, bit := range bitsOf(allBits) {
		all = append(all, bit, allBits&^bit)
	}
	return all
}

// standings calls do with the whole space of values under every status before
// and the silences, with rows missing and hold limits passed in random places.
func standings(t *testing.T, do func(s *Standing)) {
	rng := rand.New(rand.NewPCG(1, 2))
	masks := silences()
	step := 0
	every := 24
	if propertyCases(t, 0) >= 100_000 {
		every = 1
	}
	combinations(func(isTrue, unknown uint64) {
		for status := facts.OperationalStatusUnknown; status <= facts.OperationalStatusDrained; status++ {
			// A stride coprime to the number of masks walks through all pairs.
			for i := step % every; i < len(masks); i += every {
				s := Standing{Masks: Masks{True: isTrue, Unknown: unknown, Present: allBits}, InScope: allBits, Stale: masks[i], Status: status}
				do(&s)
			}
			if step++; every > 1 && step%3 != 0 {
				continue
			}
			s := Standing{Masks: Masks{True: isTrue, Unknown: unknown, Present: allBits}, InScope: allBits, Status: status}
			s.Stale, s.PastHold = rng.Uint64(), rng.Uint64()&rng.Uint64()&rng.Uint64()
			if rng.IntN(2) == 0 {
				s.Present = rng.Uint64() | rng.Uint64()
			}
			if rng.IntN(2) == 0 {
				s.InScope = rng.Uint64() | rng.Uint64()
			}
			do(&s)
		}
	})
}

func TestVerdictIsTheDeviceModels(t *testing.T) {
	t.Parallel()
	b := deviceModelBundle(t)
	kinds := map[Hold]int{}
	standings(t, func(s *Standing) {
		status, rung, want := oracle(s)
		v := b.Derive(s)
		kinds[want]++
		if v.Status != status || v.Rung != rung || v.Hold != want {
			t.Fatalf("%s\ngives %s by %s (%s), want %s by rung %d (%s)", spell(s), v.Status, b.RungName(v), v.Hold, status, rung, want)
		}
		if fresh := b.StatusFresh(s, v); fresh != freshOracle(s, rung, want) {
			t.Fatalf("%s\ngives %s by %s (%s), fresh: %t", spell(s), v.Status, b.RungName(v), v.Hold, fresh)
		}
	})
	for _, one := range []Hold{Followed, Held, PastHold, Withheld} {
		if kinds[one] < 1000 {
			t.Errorf("only %d standings that are %s: the property shows little", kinds[one], one)
		}
	}
}

func TestHoldProperties(t *testing.T) {
	t.Parallel()
	b := deviceModelBundle(t)
	standings(t, func(s *Standing) {
		v := b.Derive(s)
		isTrue, unknown := s.True&s.Present, s.Unknown&s.Present|allBits&^s.Present
		stale := (s.Stale | s.PastHold | ^s.Present) & s.InScope & allBits
		past := s.PastHold & s.InScope & allBits
		possible := statusesOf(oracleReach().reach(isTrue, unknown, stale), 0)
		fail := func(promise string) {
			t.Helper()
			t.Fatalf("%s: %s\ngives %s by %s (%s)", promise, spell(s), v.Status, b.RungName(v), v.Hold)
		}
		if promotions>>v.Status&1 == 1 && v.Status != s.Status && possible != 1<<v.Status {
			fail("a stale value promotes")
		}
		if v.Hold == Held && possible>>s.Status&1 == 0 {
			fail("fresh conditions exclude the status that is held")
		}
		if v.Hold == Held && v.Status != s.Status {
			fail("held, but not the status before")
		}
		if (v.Hold == PastHold) != (rungTests[handWritten(isTrue, unknown)]&past != 0) {
			fail("unknown without a type past its hold limit, or the reverse")
		}
		// What every value of the stale types gives is what the fresh ones say.
		if possible&(possible-1) == 0 && promotions&possible == 0 && v.Hold != PastHold && possible != 1<<v.Status {
			fail("fresh conditions are hidden")
		}
		again := *s
		again.Status = v.Status
		if w := b.Derive(&again); w.Status != v.Status {
			fail(fmt.Sprintf("deriving again gives %s", w.Status))
		}
	})
}

// More silence, with no new value, changes no status, and past a hold limit
// only to unknown or to otherwise's: so nothing becomes customer-ready by it.
func TestSilenceChangesNothing(t *testing.T) {
	t.Parallel()
	b := deviceModelBundle(t)
	rng := rand.New(rand.NewPCG(3, 4))
	standings(t, func(s *Standing) {
		first := b.Derive(s)
		later := *s
		later.Status = first.Status
		later.Stale |= rng.Uint64()
		if v := b.Derive(&later); v.Status != first.Status {
			t.Fatalf("%s\ngives %s; and with %x stale %s", spell(s), first.Status, later.Stale&allBits, v.Status)
		}
		later.PastHold |= rng.Uint64() & rng.Uint64()
		if v := b.Derive(&later); v.Status != first.Status && v.Hold != PastHold && v.Hold != Withheld {
			t.Fatalf("%s\ngives %s; and past hold limits %x %s", spell(s), first.Status, later.PastHold&allBits, v.Status)
		}
	})
}

func TestUnknownNeverGains(t *testing.T) {
	t.Parallel()
	b := deviceModelBundle(t)
	subsets := make([]uint64, 0, 1<<10)
	for set := uint64(0); ; set = (set - allBits) & allBits {
		subsets = append(subsets, set)
		if set == allBits {
			break
		}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	few := 32
	if propertyCases(t, 0) >= 100_000 {
		few = len(subsets)
	}
	combinations(func(isTrue, unknown uint64) {
		s := Standing{Masks: Masks{True: isTrue, Unknown: unknown, Present: allBits}, InScope: allBits, Status: facts.OperationalStatusQuarantine}
		known := b.Derive(&s)
		from := rng.IntN(len(subsets))
		for i := range few {
			turned := subsets[(from+i)%len(subsets)]
			blind := s
			blind.True, blind.Unknown = s.True&^turned, s.Unknown|turned
			v := b.Derive(&blind)
			if promotions>>v.Status&1 == 0 || v.Status == known.Status {
				continue
			}
			// Only what the rung declares tolerated may have made the difference.
			tolerated := b.OperationalRung(v.Rung).Tolerates & turned
			restored := blind
			restored.True, restored.Unknown = blind.True|s.True&tolerated, blind.Unknown&^tolerated|s.Unknown&tolerated
			if w := b.Derive(&restored); tolerated == 0 || w.Status != known.Status && promotions>>w.Status&1 == 1 {
				t.Fatalf("%s\ngives %s; and with %x Unknown %s", spell(&s), known.Status, turned, v.Status)
			}
		}
	})
}

// bitBurnIn is a condition type that a policy adds; no device has a row of it.
const bitBurnIn = 1 << 30

func TestANewTypeFlipsNothingWhileItIsMissing(t *testing.T) {
	t.Parallel()
	before := deviceModelBundle(t)
	const no, yes, unknown = digitFalse, digitTrue, digitUnknown
	alone := func(value int, gives facts.OperationalStatus) modelRung {
		return modelRung{name: "burn-in", wants: map[uint64]int{bitBurnIn: value}, gives: gives}
	}
	first := func(r modelRung) []modelRung { return append([]modelRung{r}, deviceModel()...) }
	last := func(r modelRung) []modelRung { return append(deviceModel(), r) }
	wanted := deviceModel()
	for _, rung := range []int{rungValidation, rungAvailable, rungInUse} {
		wanted[rung].wants[bitBurnIn] = no
	}
	tolerated := deviceModel()
	tolerated[rungAvailable].tolerates = bitBurnIn
	tolerated = append([]modelRung{alone(yes, facts.OperationalStatusQuarantine)}, tolerated...)
	cases := map[string][]modelRung{
		"a first rung on True":           first(alone(yes, facts.OperationalStatusQuarantine)),
		"a first rung on False":          first(alone(no, facts.OperationalStatusFailed)),
		"a first rung on Unknown":        first(alone(unknown, facts.OperationalStatusQuarantine)),
		"a first rung that promotes":     first(alone(yes, facts.OperationalStatusAvailable)),
		"a last rung on Unknown":         last(alone(unknown, facts.OperationalStatusInUse)),
		"a last rung that promotes":      last(alone(yes, facts.OperationalStatusAvailable)),
		"rungs that already were":        wanted,
		"a rung that tolerates its lack": tolerated,
	}
	for name, model := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			after := modelBundle(t, model, facts.OperationalStatusQuarantine)
			combinations(func(isTrue, unknown uint64) {
				s := Standing{Masks: Masks{True: isTrue, Unknown: unknown, Present: allBits}, InScope: allBits}
				s.Status = before.Derive(&s).Status
				s.InScope |= bitBurnIn
				if v := after.Derive(&s); v.Status != s.Status {
					t.Fatalf("%s\nbecomes %s by %s (%s)", spell(&s), v.Status, after.RungName(v), v.Hold)
				}
			})
		})
	}
}
