package engine

import (
	"time"

	"github.com/musterhq/muster/facts"
)

// Bundle is one loaded, vetted and compiled set of policies. It never changes
// and may be used by any number of goroutines at once.
type Bundle struct {
	version string
	schema  string
	cost    Cost

	types         []ConditionType // in the order of names
	byName        map[string]*ConditionType
	byBit         [64]*ConditionType
	absentUnknown uint64
	writerList    []Writer
	limitValues   Limits

	operational      *Ladder
	operationalGives []facts.OperationalStatus // by rung, otherwise last
	derivation       *derivation               // of the operational ladder
	health           *Ladder
	healthGives      []facts.HealthStatus
	freeze           *Ladder
	freezes          []bool
	customerReady    *Ladder
	customerReadyYes []bool
	entered          *Ladder
	enteredYes       []bool

	inventory   map[string]*inventoryAxes
	eligibility map[string]*eligibility
	workflows   []Workflow
	operations  []Operation
	rackDefault OperationDefaults
	components  map[string][]string
	failures    []Failure
	refusals    []RefusalCode

	hardware      map[string]*HardwareProfile // by resource class
	progressTags  ProgressTags
	cleanTrait    *Ladder // nil where the bundle says nothing of it
	cleanTraitYes []bool
}

// Version is "sha256:" and the hash over path and bytes of every policy file
// that is no test.
func (b *Bundle) Version() string { return b.version }

// Schema is the hash of the schema that the policies were unified with: another
// build may make something else of the same version.
func (b *Bundle) Schema() string { return b.schema }

// Cost tells what loading the bundle took, in counts.
func (b *Bundle) Cost() Cost { return b.cost }

// ConditionType is one entry of the catalogue.
type ConditionType struct {
	Name    string
	Bit     uint8
	Meaning string
	Pos     Pos
	Writers []string // who may write it
	Feeds   string   // operational, health or none
	Durable bool     // written by whoever verified it, never stale

	// AbsentUnknown says that a device without a row counts as Unknown, else it
	// counts as False.
	AbsentUnknown bool

	// HoldLimit is how long a stale value is judged by, 0 for as long as it is
	// stale.
	HoldLimit time.Duration
	holdPos   Pos

	// Observed says that the engine emits it from facts; Sources lists the
	// families of sources that its ladder reads.
	Observed bool
	Sources  []string

	// Emission is the ladder from facts to status of an observed type.
	Emission *Ladder
	emits    []observation // by rung, otherwise last
}

// Writer is an agent that asserts conditions.
type Writer struct {
	Name    string
	Meaning string
	Pos     Pos
	Sources []string // in reading order; none for one that posts its conditions
	Types   uint64   // mask of the types it may write
	Emits   uint64   // of these, the ones that the engine emits from facts

	// Scope says which devices the writer speaks of; nil for one that posts.
	Scope   *Ladder
	scopeIn []bool
	panels  []panel          // the emissions that are tabulated, many at once
	alone   []*ConditionType // the others
	like    *likeness        // nil: every device is looked at
}

// Limits are the times, shares and bounds of policies/limits.
type Limits struct {
	Sources         map[string]Pace
	MissingAtOnce   int
	ShrinkShare     float64
	InventoryGrace  time.Duration
	HealthHold      time.Duration
	FutureTolerance time.Duration
	OverdueAfter    map[facts.ProvisionState]time.Duration
	Caps            []BlastCap // in the order of names
	Breakers        []Breaker  // in the order of names
}

// Scope says what a cap or a breaker counts apart: each combination of the
// dimensions in Per (fleet, site, rack, class, workflow) is one.
type Scope struct {
	Name      string
	Per       []string
	Workflows []string // whose work counts, nil for every one
	Pos       Pos
}

// BlastCap bounds how many devices may be under disruptive locks at once in each
// of its scopes.
type BlastCap struct {
	Scope
	Classes []string // whose devices count, nil for every one
	Devices int      // 0 where only the share bounds
	Share   float64  // of the devices of the scope, but at least one; 0 where only the number bounds
}

// Breaker opens when FailureShare of the devices that ended within Window failed,
// once MinRuns have ended.
type Breaker struct {
	Scope
	Window       time.Duration
	MinRuns      int
	FailureShare float64
}

// Pace is how often a source is read, and how old its facts may be.
type Pace struct {
	Interval time.Duration
	TTL      time.Duration // three intervals unless the policy says otherwise
}

// TypeNames gives the names of the catalogue's condition types, in its order.
func (b *Bundle) TypeNames() []string {
	var names []string
	for _, t := range b.Catalogue() {
		names = append(names, t.Name)
	}
	return names
}

// Catalogue lists the condition types in the order of names. The caller may not
// change it.
func (b *Bundle) Catalogue() []ConditionType { return b.types }

// Type finds a condition type by name.
func (b *Bundle) Type(name string) (*ConditionType, bool) {
	t, ok := b.byName[name]
	return t, ok
}

// TypeOf finds a condition type by its bit, nil where no type has it.
func (b *Bundle) TypeOf(bit uint8) *ConditionType { return b.byBit[bit&63] }

// AbsentMasks gives the mask of the types of which a device without a row
// counts as Unknown; the others count as False then.
func (b *Bundle) AbsentMasks() (unknown uint64) { return b.absentUnknown }

// Writers lists the writers in the order of names. Observe and InScope take the
// index in it.
func (b *Bundle) Writers() []Writer { return b.writerList }

// WriterIndex finds a writer by name, -1 where there is none.
func (b *Bundle) WriterIndex(name string) int {
	for i := range b.writerList {
		if b.writerList[i].Name == name {
			return i
		}
	}
	return -1
}

// Limits gives the limits of the bundle. The caller may not change its maps.
func (b *Bundle) Limits() Limits { return b.limitValues }

// whole gives the masks in which a type without a row has its absent value.
func (b *Bundle) whole(m Masks) (yes, unknown uint64) {
	return m.True & m.Present, m.Unknown&m.Present | b.absentUnknown&^m.Present
}
