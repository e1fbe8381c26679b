package engine

import (
	"testing"

	"pgregory.net/rapid"
)

// randomTerms draws a ladder over five conditions at bits apart.
func randomTerms(t *rapid.T) (terms []term, conditions []uint64, otherwise int16) {
	conditions = []uint64{1, 1 << 7, 1 << 8, 1 << 40, 1 << 63}
	rungs := rapid.IntRange(0, 6).Draw(t, "rungs")
	for rung := range rungs {
		for range rapid.IntRange(1, 3).Draw(t, "alternatives") {
			one := term{rung: int16(rung)}
			for _, bit := range conditions {
				forbidden := rapid.IntRange(0, 9).Draw(t, "forbidden")
				// 0 tests nothing; 7 forbids every value; above 7, nothing again.
				if forbidden&1 != 0 && forbidden < 8 {
					one.notTrue |= bit
				}
				if forbidden&2 != 0 && forbidden < 8 {
					one.notUnknown |= bit
				}
				if forbidden&4 != 0 && forbidden < 8 {
					one.notFalse |= bit
				}
			}
			terms = append(terms, one)
		}
	}
	return terms, conditions, int16(rungs)
}

func scan(terms []term, otherwise int16, isTrue, unknown uint64) int16 {
	for _, one := range terms {
		if isTrue&one.notTrue|unknown&one.notUnknown|^(isTrue|unknown)&one.notFalse == 0 {
			return one.rung
		}
	}
	return otherwise
}

// assignments calls do with every value of the conditions in free.
func assignments(isTrue, unknown, free uint64, do func(isTrue, unknown uint64)) {
	if free == 0 {
		do(isTrue, unknown)
		return
	}
	bit := free & -free
	isTrue, unknown = isTrue&^bit, unknown&^bit
	assignments(isTrue, unknown, free&^bit, do)
	assignments(isTrue|bit, unknown, free&^bit, do)
	assignments(isTrue, unknown|bit, free&^bit, do)
}

func TestDiagramIsTheLadder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		terms, conditions, otherwise := randomTerms(t)
		d, err := newDiagram(terms, otherwise)
		if err != nil {
			t.Fatal(err)
		}
		var all uint64
		for _, bit := range conditions {
			all |= bit
		}
		assignments(0, 0, all, func(isTrue, unknown uint64) {
			if got, want := d.match(isTrue, unknown), scan(terms, otherwise, isTrue, unknown); got != want {
				t.Fatalf("true %x unknown %x: rung %d, want %d", isTrue, unknown, got, want)
			}
		})
		var isTrue, unknown, free uint64
		for _, bit := range conditions {
			switch rapid.IntRange(0, 4).Draw(t, "value") {
			case 1:
				isTrue |= bit
			case 2:
				unknown |= bit
			case 3:
				isTrue, free = isTrue|bit, free|bit
			case 4:
				free |= bit
			}
		}
		var want rungSet
		assignments(isTrue, unknown, free, func(isTrue, unknown uint64) {
			want.add(int32(scan(terms, otherwise, isTrue, unknown)))
		})
		if got := d.reach(isTrue, unknown, free); got != want {
			t.Fatalf("true %x unknown %x free %x: reaches %b, want %b", isTrue, unknown, free, got, want)
		}
		for rung := range otherwise + 1 {
			var one rungSet
			one.add(int32(rung))
			wt, wu, changed, ok := d.witness(isTrue, unknown, free, one)
			if ok != want.has(rung) {
				t.Fatalf("a witness of rung %d is found: %t", rung, ok)
			}
			if ok && (d.match(wt, wu) != rung || changed&^free != 0 || (wt^isTrue|wu^unknown) != (wt^isTrue|wu^unknown)&changed) {
				t.Fatalf("true %x unknown %x is no witness of rung %d", wt, wu, rung)
			}
		}
	})
}

func TestDiagramOfTheDeviceModelIsSmall(t *testing.T) {
	t.Parallel()
	d := deviceModelBundle(t).derivation.diagram
	if len(d.nodes) > 128 {
		t.Errorf("%d nodes: holds would cost more than a table", len(d.nodes))
	}
	combinations(func(isTrue, unknown uint64) {
		if got, want := d.match(isTrue, unknown), handWritten(isTrue, unknown); got != want {
			t.Fatalf("true %x unknown %x: rung %d, want %d", isTrue, unknown, got, want)
		}
	})
}

// A ladder that compares many conditions pair by pair has no small diagram.
func TestDiagramRefusesToGrowWithoutBound(t *testing.T) {
	t.Parallel()
	var terms []term
	for i := range 32 {
		terms = append(terms, term{rung: int16(i), notFalse: 1<<i | 1<<(i+32), notUnknown: 1<<i | 1<<(i+32)})
	}
	// Asked in an order that keeps the partners apart.
	apart := []term{{rung: 32, notTrue: 1<<32 - 1}}
	if _, err := newDiagram(append(apart, terms...), 33); err == nil {
		t.Error("no error")
	}
}
