package engine

import (
	"math/bits"
	"slices"

	"github.com/musterhq/muster/facts"
)

// maxTable bounds how many combinations a ladder may be tabulated over.
const maxTable = 1 << 20

// table answers a ladder by one byte a combination. Values that no rung tells
// apart are one class, so a table is as small as the policy is simple.
type table struct {
	rungs      []uint8
	conditions *ternary    // the whole index, where only conditions are read
	finite     []dimension // else these
	checks     []checkDimension
	tri        []triDimension
}

// dimension is one finite fact: by code, what it adds to the index.
type dimension struct {
	at     int
	weight [64]uint32
	of     [][]uint8 // codes by class
	stride uint32
}

// checkDimension is one predicate: what it adds when it holds.
type checkDimension struct {
	predicate *predicate
	stride    uint32
}

// triDimension is one condition.
type triDimension struct {
	bit    uint8
	stride uint32
}

// ternary turns the masks of True and Unknown conditions into one number, with
// a digit of base 3 for each used bit: False 0, True 1, Unknown 2. The two
// masks go through the same small tables, chunk by chunk.
type ternary struct {
	used   uint64
	bits   []uint8 // of the digits, lowest first
	shift  uint8
	chunks uint8
	sums   [6][]uint32
}

// chunkBits is how many bits of a mask one lookup takes in.
const chunkBits = 11

const chunkMask = 1<<chunkBits - 1

func newTernary(used uint64) *ternary {
	t := &ternary{used: used, shift: uint8(bits.TrailingZeros64(used) & 63)}
	power := uint32(1)
	weight := [64]uint32{}
	for rest := used; rest != 0; rest &= rest - 1 {
		bit := bits.TrailingZeros64(rest)
		weight[bit] = power
		t.bits = append(t.bits, uint8(bit))
		power *= 3
	}
	span := bits.Len64(used >> t.shift)
	t.chunks = uint8((span + chunkBits - 1) / chunkBits)
	for k := range int(t.chunks) {
		sums := make([]uint32, 1<<chunkBits)
		for n := range sums {
			for b := range chunkBits {
				if at := int(t.shift) + k*chunkBits + b; n>>b&1 == 1 && at < 64 {
					sums[n] += weight[at]
				}
			}
		}
		t.sums[k] = sums
	}
	return t
}

// index is the number of a combination. A bit may not be set in both masks.
func (t *ternary) index(yes, unknown uint64) uint32 {
	yes, unknown = yes>>(t.shift&63), unknown>>(t.shift&63)
	if t.chunks == 1 {
		s := (*[1 << chunkBits]uint32)(t.sums[0])
		return s[yes&chunkMask] + 2*s[unknown&chunkMask]
	}
	if t.chunks == 2 {
		s, r := (*[1 << chunkBits]uint32)(t.sums[0]), (*[1 << chunkBits]uint32)(t.sums[1])
		return s[yes&chunkMask] + 2*s[unknown&chunkMask] + r[yes>>chunkBits&chunkMask] + 2*r[unknown>>chunkBits&chunkMask]
	}
	var sum uint32
	for k := range int(t.chunks) {
		s := (*[1 << chunkBits]uint32)(t.sums[k])
		sum += s[yes&chunkMask] + 2*s[unknown&chunkMask]
		yes, unknown = yes>>chunkBits, unknown>>chunkBits
	}
	return sum
}

// masks is the inverse of index, over the used bits.
func (t *ternary) masks(n uint32) (yes, unknown uint64) {
	for _, bit := range t.bits {
		switch n % 3 {
		case 1:
			yes |= 1 << bit
		case 2:
			unknown |= 1 << bit
		}
		n /= 3
	}
	return yes, unknown
}

// size is how many combinations there are.
func (t *ternary) size() int {
	n := 1
	for range t.bits {
		n *= 3
	}
	return n
}

func (t *table) first(in *input) int {
	if t.conditions != nil {
		return int(t.rungs[t.conditions.index(in.yes, in.unknown)])
	}
	var index uint32
	for i := range t.finite {
		d := &t.finite[i]
		index += d.weight[in.codes[d.at]&63]
	}
	for i := range t.checks {
		if t.checks[i].predicate.holds(in) {
			index += t.checks[i].stride
		}
	}
	for i := range t.tri {
		d := &t.tri[i]
		index += d.stride * uint32(in.yes>>d.bit&1+2*(in.unknown>>d.bit&1))
	}
	return int(t.rungs[index])
}

// build makes the table of a ladder: of all of it, else of what is left without
// the rungs of single tokens, else none, and the ladder is scanned.
func (l *Ladder) build(c *compiler) {
	all := make([]cubes, len(l.Rungs))
	for i := range l.Rungs {
		all[i] = l.Rungs[i].pattern.cubes
	}
	t, size := dimensionsOf(all, l.Conditions, &c.all)
	if size > maxTable {
		l.tokens, all = splitTokens(l)
		t, size = dimensionsOf(all, l.Conditions, &c.all)
	}
	if size > maxTable {
		l.tokens, l.wide = nil, newWide(l)
		return
	}
	t.rungs = make([]uint8, size)
	c.cost.TableSize += size
	t.fill(all)
	l.table = t
}

// dimensionsOf finds what rungs tell apart and how many combinations that makes;
// a size past maxTable means too many.
func dimensionsOf(rungs []cubes, conditions uint64, all *domains) (*table, int) {
	t := &table{}
	tests := map[int][]uint64{}
	var checks []*predicate
	for _, rung := range rungs {
		for _, cube := range rung {
			for _, test := range cube.finite {
				tests[test.at] = append(tests[test.at], test.allow)
			}
			for _, test := range cube.checks {
				if !slices.Contains(checks, test.predicate) {
					checks = append(checks, test.predicate)
				}
			}
		}
	}
	if len(tests) == 0 && len(checks) == 0 {
		t.conditions = newTernary(conditions)
		if len(t.conditions.bits) > 12 {
			return t, maxTable + 1
		}
		return t, t.conditions.size()
	}
	size := 1
	grow := func(by int) uint32 {
		stride := uint32(size)
		if size <= maxTable {
			size *= by
		}
		return stride
	}
	for at := range len(facts.Codes{}) {
		if len(tests[at]) > 0 {
			d := classes(at, tests[at], all[at])
			d.stride = grow(len(d.of))
			for class, codes := range d.of {
				for _, code := range codes {
					d.weight[code] = uint32(class) * d.stride
				}
			}
			t.finite = append(t.finite, d)
		}
	}
	for _, p := range checks {
		t.checks = append(t.checks, checkDimension{p, grow(2)})
	}
	for rest := conditions; rest != 0; rest &= rest - 1 {
		t.tri = append(t.tri, triDimension{uint8(bits.TrailingZeros64(rest)), grow(3)})
	}
	return t, size
}

// classes groups the codes of a fact that no test tells apart.
func classes(at int, tests []uint64, all uint64) dimension {
	slices.Sort(tests)
	tests = slices.Compact(tests)
	d := dimension{at: at}
	var signatures []string
	for code := uint8(0); code < 64 && all>>code != 0; code++ {
		signature := make([]byte, len(tests))
		for i, allow := range tests {
			signature[i] = byte(allow >> code & 1)
		}
		class := slices.Index(signatures, string(signature))
		if class < 0 {
			class = len(signatures)
			signatures = append(signatures, string(signature))
			d.of = append(d.of, nil)
		}
		d.of[class] = append(d.of[class], code)
	}
	return d
}

// fill walks every combination and asks the rungs.
func (t *table) fill(rungs []cubes) {
	probe := probeInput{checks: map[*predicate]bool{}}
	probe.codes = &facts.Codes{}
	for n := range t.rungs {
		t.assign(uint32(n), &probe)
		t.rungs[n] = uint8(slices.IndexFunc(rungs, func(cs cubes) bool {
			return cs.given(&probe)
		}))
		if t.rungs[n] == 255 {
			t.rungs[n] = uint8(len(rungs))
		}
	}
}

// probeInput is a combination in which predicates are given, not computed.
type probeInput struct {
	input
	checks map[*predicate]bool
}

// assign sets the probe to combination n, each class by its first code.
func (t *table) assign(n uint32, probe *probeInput) {
	if t.conditions != nil {
		probe.yes, probe.unknown = t.conditions.masks(n)
		return
	}
	for i := range t.finite {
		d := &t.finite[i]
		probe.codes[d.at] = d.of[n/d.stride%uint32(len(d.of))][0]
	}
	for _, d := range t.checks {
		probe.checks[d.predicate] = n/d.stride%2 == 1
	}
	probe.yes, probe.unknown = 0, 0
	for _, d := range t.tri {
		switch n / d.stride % 3 {
		case 1:
			probe.yes |= 1 << d.bit
		case 2:
			probe.unknown |= 1 << d.bit
		}
	}
}

func (cs cubes) given(p *probeInput) bool {
	for i := range cs {
		if cs[i].given(p) {
			return true
		}
	}
	return false
}

// given is matches with the predicates' answers given.
func (c *cube) given(p *probeInput) bool {
	if p.yes&c.notTrue|p.unknown&c.notUnknown|^(p.yes|p.unknown)&c.notFalse != 0 {
		return false
	}
	for _, t := range c.finite {
		if t.allow>>p.codes[t.at]&1 == 0 {
			return false
		}
	}
	for _, t := range c.checks {
		if p.checks[t.predicate] != t.want {
			return false
		}
	}
	return true
}
