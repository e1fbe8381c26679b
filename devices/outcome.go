package devices

import (
	"time"

	"github.com/musterhq/muster/fleet"
)

// Rows counts written rows by table.
type Rows struct{ Devices, Facts, Conditions, Writers, Events int }

func (r *Rows) add(more Rows) {
	r.Devices += more.Devices
	r.Facts += more.Facts
	r.Conditions += more.Conditions
	r.Writers += more.Writers
	r.Events += more.Events
}

// Applied is what became of the readings of a batch. Each is counted once.
type Applied struct {
	Unknown   []int            // indexes of readings whose ref no device has
	Refused   []RefusedReading // data that cannot be stored, births and joins that are not allowed
	Changed   int              // merged: something of them was new
	Unchanged int              // nothing new
	Ignored   int              // older than what is stored
	Born      []int64          // devices
	Swapped   []Swap           // another machine stands under a known ref; the proof of the old one is cleared
	Moved     []int64          // devices that another site had
	Held      []HeldMove       // devices that would move and somebody's work holds
	Rows      Rows
}

// RefusedReading is a reading that was not taken; the others of the batch were.
type RefusedReading struct {
	Index  int
	Code   Code
	Reason string
}

// Swap is a device whose serial changed under the same ref.
type Swap struct {
	Device  int64
	Name    string
	Was, Is string // serials
}

// HeldMove is a device that a reading would bring here from another site.
type HeldMove struct {
	Index  int // of the reading
	Device int64
	SiteID int64 // where it stays
	Site   string
}

// Finish ends a complete sweep.
type Finish struct {
	SiteID   int64
	Source   string
	Owner    string
	Epoch    int64
	At       time.Time // the instant before the first request
	Alert    string    // what a person must look at; "" for nothing
	Withhold bool      // the listing is not believed: the watermark stays where it is
	Kinds    []string  // of finding that the sweep speaks of: what it does not find of them is taken back
	Findings []fleet.Finding
}

// Projected is what a projection found.
type Projected struct {
	Checked int
	Changed int       // devices that had to be written
	Next    time.Time // when time alone may change one of them; zero: never
	Rows    Rows
}
