package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
)

// Conclusion is what a listing's end allows to be said of what it lacks.
type Conclusion uint8

// The conclusions, from the mildest.
const (
	NothingMissing Conclusion = iota
	AskEach                   // few: each is read by its own identity; not found is gone
	LeaveUnread               // too many to ask for: unread until a person confirms; the watermark moves
	Withhold                  // too large a share, or all: the listing is not believed, the watermark stays
	ConcludeGone              // a person has confirmed exactly this set
)

// AbsenceInput is what the absence of one listing is judged from.
type AbsenceInput struct {
	Source    string
	Inventory bool           // every device of the site counts as listed before
	Devices   []Joinable     // every device of the site
	Joined    map[int64]bool // devices that a new record of this listing belongs to: none of them is missing

	Listed  map[string]bool // every ref of the listing
	Dropped int             // elements whose identity could not be read

	AtOnce    int             // so many may be asked for one by one, whatever their share
	Share     float64         // of those listed before that may be missing without a person's word
	Confirmed map[string]bool // hashes of the sets that a person has confirmed
}

// Absence is the judgement of what one complete listing lacks.
type Absence struct {
	Conclusion Conclusion
	Before     int        // devices that were listed before
	Missing    []Joinable // ascending by ref, then by device
	Hash       string     // names the set, "" when nothing is missing
	Reason     string     // of the unread types, for LeaveUnread
	Alert      string     // for Withhold: what happened and what to do
}

// Why the types of a device are unread that a listing does not name for sure.
const (
	MissingUnconfirmed = "MissingUnconfirmed"
	DecodeFailed       = "DecodeFailed"
	JoinAmbiguous      = "JoinAmbiguous"
)

// JudgeAbsence judges a listing that was read to its end without error.
// Missing is what was listed before and is not listed now. While the listing
// holds elements without a readable identity nobody can say which things they
// are: what it lacks is unread, never gone.
func JudgeAbsence(in AbsenceInput) Absence {
	var out Absence
	for _, d := range in.Devices {
		if d.Retired || d.RefGone || d.Ref == "" && !in.Inventory {
			continue
		}
		out.Before++
		if !in.Joined[d.Device] && (d.Ref == "" || !in.Listed[d.Ref]) {
			out.Missing = append(out.Missing, d)
		}
	}
	missing := len(out.Missing)
	if missing == 0 {
		return out
	}
	slices.SortFunc(out.Missing, compareJoinables)
	out.Hash = MissingHash(out.Missing)
	few := missing <= in.AtOnce
	implausible := !few && (len(in.Listed) == 0 || float64(missing) > in.Share*float64(out.Before))
	switch {
	case in.Dropped == 0 && in.Confirmed[out.Hash]:
		out.Conclusion = ConcludeGone
	case implausible:
		out.Conclusion, out.Alert = Withhold, alert(in, out)
	case in.Dropped > 0:
		out.Conclusion, out.Reason = LeaveUnread, DecodeFailed
	case few:
		out.Conclusion = AskEach
	default:
		out.Conclusion, out.Reason = LeaveUnread, MissingUnconfirmed
	}
	return out
}

func compareJoinables(a, b Joinable) int {
	if a.Ref != b.Ref {
		if a.Ref < b.Ref {
			return -1
		}
		return 1
	}
	switch {
	case a.Device < b.Device:
		return -1
	case a.Device > b.Device:
		return 1
	}
	return 0
}

func alert(in AbsenceInput, out Absence) string {
	what := fmt.Sprintf("%d of the %d things that %s listed before are missing", len(out.Missing), out.Before, in.Source)
	if len(in.Listed) == 0 {
		what = fmt.Sprintf("the listing of %s is empty, it held %d things before", in.Source, out.Before)
	}
	if in.Dropped > 0 {
		return fmt.Sprintf("%s, and %d elements could not be read: nothing is concluded; look at what %s answers", what, in.Dropped, in.Source)
	}
	return fmt.Sprintf("%s: nothing is concluded; if they are really gone, confirm the missing set by its hash", what)
}

// MissingKey names a missing device within its site and source: the ref, or
// the device where the source has never had one for it.
func (d *Joinable) MissingKey() string {
	if d.Ref != "" {
		return d.Ref
	}
	return "device:" + strconv.FormatInt(d.Device, 10)
}

// MissingHash names a set of missing devices whatever its order: a person
// confirms exactly the set that was shown.
func MissingHash(missing []Joinable) string {
	keys := make([]string, 0, len(missing))
	for i := range missing {
		keys = append(keys, missing[i].MissingKey())
	}
	return HashKeys(keys)
}

// HashKeys is MissingHash over MissingKeys.
func HashKeys(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	keys = slices.Sorted(slices.Values(keys))
	sum := sha256.New()
	for _, key := range keys {
		fmt.Fprintf(sum, "%d:%s", len(key), key)
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}
