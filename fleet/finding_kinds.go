package fleet

// The kinds of findings that a listing's end makes.
const (
	FindingMissing      = "missing"       // listed before and not now, not concluded gone; ref is MissingKey
	FindingUnjoined     = "unjoined"      // no device has the record, and the source gives no birth
	FindingAmbiguous    = "ambiguous"     // nobody can say whose the record is
	FindingUndecodable  = "undecodable"   // the record could not be read
	FindingDropped      = "dropped"       // records without a readable identity
	FindingLost         = "lost"          // what the negotiated version of the source does not serve
	FindingFailure      = "failure"       // the newest listing failed
	FindingClass        = "class"         // a new class that would take the device out of a scope waits for a person; ref is MissingKey
	FindingSwap         = "swap"          // another machine stands under a known identity; shown for a day
	FindingMoving       = "moving"        // the record of a device that another of our sites still holds
	FindingRefused      = "refused"       // a credential that the thing refused so often that it is not tried there until a person allows it; ref is the source's own
	FindingUnmappedSite = "unmapped_site" // devices at sites of the inventory that are nobody's; ref is the site, "" where only their number is known
)
