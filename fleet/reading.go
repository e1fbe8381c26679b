package fleet

import (
	"time"

	"github.com/musterhq/muster/facts"
)

// Reading is what one source said of one thing at one instant, and what the
// listing's end made of it. Exactly one of these holds: the ref is known and
// nothing more is said; Device names the device that it joins, or with Move
// brings; Birth; Gone; Missing; Moving; Doubtful; Reclassify.
type Reading struct {
	Ref    string
	Name   string
	Serial string
	At     time.Time   // the instant before the request that brought it, by the database's clock
	Facts  facts.Facts // the source's family alone is set; of what is not readable or gave no answer, none

	// Undecodable: the thing is there and its record could not be read. Its
	// facts keep their values, its types are unread with this reason.
	Undecodable string

	// Unanswered: the thing (a BMC) was asked on its own and gave no answer at
	// all, and this is why. Its facts keep their values, its failures count one
	// more.
	Unanswered string

	Device     int64 // the device it joins, or that the fields below speak of; 0: the one that has the ref
	Birth      bool  // no device has it: one is born
	Gone       bool  // concluded from a complete listing: the source has it no more
	Confirmed  bool  // with Gone: a person says so; a device of the site's inventory is retired at once
	Missing    bool  // not listed and not confirmed: its types are unread, nothing else changes
	Move       bool  // with Device: another site that the same inventory feeds has it, and the record is of this one
	Moving     bool  // its record is of another of our sites, where it cannot go yet: its types are unread, nothing else changes
	Doubtful   bool  // a record that nobody can join may be it: its types are unread, nothing else changes
	Reclassify bool  // the class that was held back may be taken: see devices.ReasonClassUnconfirmed
}

// Batch is at most 500 readings of one source of one site, applied in one
// transaction.
type Batch struct {
	SiteID   int64
	Source   string
	Owner    string // of the sweep lease
	Epoch    int64  // of the sweep lease; 0: not a sweep (a single thing read on its own)
	Readings []Reading
}
