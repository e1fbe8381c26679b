package fleet

// Finding is something about a source that a person should know: it is
// rewritten at the end of each of its listings.
type Finding struct {
	Kind     string // missing, unjoined, ambiguous, unmapped, difference, foreign_mark, undecodable, swap
	Ref      string // the record's identity, or the device's name where there is no record
	DeviceID int64  // 0: none
	Detail   map[string]any
}

// Kinds of finding that the axes of devices and their facts give.
const (
	FindingUnmapped    = "unmapped"     // a role or status of the inventory that no policy maps; ref is the device's name
	FindingDifference  = "difference"   // the inventory and Ironic say different things of a device; ref is its name
	FindingSharedBMC   = "shared_bmc"   // several devices of a site have one BMC address; ref is the address
	FindingForeignMark = "foreign_mark" // a maintenance flag or a drain that is not ours; ref is the source's own
)
