package fleet

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// site gives n devices with the refs r1…rn, and the listing of the first k.
func listing(n, k int) ([]Joinable, map[string]bool) {
	var devices []Joinable
	listed := map[string]bool{}
	for i := 1; i <= n; i++ {
		ref := fmt.Sprintf("r%d", i)
		devices = append(devices, Joinable{Device: int64(i), Ref: ref})
		if i <= k {
			listed[ref] = true
		}
	}
	return devices, listed
}

func TestJudgeAbsence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		before  int
		listed  int
		change  func(*AbsenceInput)
		want    Conclusion
		missing int
		reason  string
	}{
		{"all there", 100, 100, nil, NothingMissing, 0, ""},
		{"a few are asked for one by one", 100, 90, nil, AskEach, 10, ""},
		{"a few, whatever their share", 4, 1, nil, AskEach, 3, ""},
		{"a few, even to zero", 3, 0, nil, AskEach, 3, ""},
		{"more are unread", 100, 89, nil, LeaveUnread, 11, MissingUnconfirmed},
		{"the share itself is still believed", 100, 80, nil, LeaveUnread, 20, MissingUnconfirmed},
		{"beyond the share nothing is believed", 100, 79, nil, Withhold, 21, ""},
		{"to zero nothing is believed", 11, 0, nil, Withhold, 11, ""},
		{"to zero under a generous share", 100, 0, func(in *AbsenceInput) { in.Share = 1 }, Withhold, 100, ""},
		{"a confirmed set is gone", 100, 50, func(in *AbsenceInput) { in.Confirmed = map[string]bool{MissingHash(in.Devices[50:]): true} }, ConcludeGone, 50, ""},
		{"a confirmed set of few is gone", 100, 95, func(in *AbsenceInput) { in.Confirmed = map[string]bool{MissingHash(in.Devices[95:]): true} }, ConcludeGone, 5, ""},
		{"another set than the confirmed one", 100, 50, func(in *AbsenceInput) { in.Confirmed = map[string]bool{MissingHash(in.Devices[51:]): true} }, Withhold, 50, ""},
		{"an element without identity may be any of them", 100, 95, func(in *AbsenceInput) { in.Dropped = 1 }, LeaveUnread, 5, DecodeFailed},
		{"with elements without identity a person's word does not count", 100, 50, func(in *AbsenceInput) {
			in.Dropped, in.Confirmed = 1, map[string]bool{MissingHash(in.Devices[50:]): true}
		}, Withhold, 50, ""},
		{"devices taken over are not missing", 100, 50, func(in *AbsenceInput) {
			in.Joined = map[int64]bool{}
			for i := int64(51); i <= 95; i++ {
				in.Joined[i] = true
			}
		}, AskEach, 5, ""},
		{"gone and retired devices were not listed before", 100, 50, func(in *AbsenceInput) {
			for i := 50; i < 100; i++ {
				in.Devices[i].RefGone, in.Devices[i].Retired = i%2 == 0, i%2 == 1
			}
		}, NothingMissing, 0, ""},
		{"devices that the source never had are not missing", 100, 50, func(in *AbsenceInput) {
			for i := 50; i < 100; i++ {
				in.Devices[i].Ref = ""
			}
		}, NothingMissing, 0, ""},
		{"a new inventory source must list every device", 100, 50, func(in *AbsenceInput) {
			in.Inventory = true
			for i := 50; i < 100; i++ {
				in.Devices[i].Ref = ""
			}
		}, Withhold, 50, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := AbsenceInput{Source: "ironic", AtOnce: 10, Share: 0.2}
			in.Devices, in.Listed = listing(c.before, c.listed)
			if c.change != nil {
				c.change(&in)
			}
			got := JudgeAbsence(in)
			if got.Conclusion != c.want || len(got.Missing) != c.missing || got.Reason != c.reason {
				t.Errorf("conclusion %d with %d missing and reason %q, want %d, %d and %q", got.Conclusion, len(got.Missing), got.Reason, c.want, c.missing, c.reason)
			}
			if (got.Alert != "") != (c.want == Withhold) || (got.Hash == "") != (c.missing == 0) {
				t.Errorf("alert %q, hash %q", got.Alert, got.Hash)
			}
		})
	}
}

func TestAnAlertSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	in := AbsenceInput{Source: "slurm", AtOnce: 10, Share: 0.2}
	in.Devices, in.Listed = listing(100, 30)
	if got := JudgeAbsence(in).Alert; !strings.Contains(got, "70 of the 100 things that slurm listed before") || !strings.Contains(got, "confirm") {
		t.Errorf("got %q", got)
	}
}

func TestOnlyAskedOrConfirmedThingsAreGone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "before")
		in := AbsenceInput{
			Source: "ironic", AtOnce: rapid.IntRange(0, 12).Draw(t, "at once"), Share: rapid.Float64Range(0.01, 1).Draw(t, "share"),
			Dropped: rapid.IntRange(0, 1).Draw(t, "dropped"), Listed: map[string]bool{},
		}
		in.Devices, _ = listing(n, 0)
		for _, d := range in.Devices {
			in.Listed[d.Ref] = rapid.Bool().Draw(t, "listed")
			if !in.Listed[d.Ref] {
				delete(in.Listed, d.Ref)
			}
		}
		for _, hash := range []string{"sha256:other", MissingHash(in.Devices)} {
			if rapid.Bool().Draw(t, "confirmed") {
				in.Confirmed = map[string]bool{hash: true}
			}
		}
		got := JudgeAbsence(in)
		if len(got.Missing) != n-len(in.Listed) {
			t.Fatalf("%d missing of %d with %d listed", len(got.Missing), n, len(in.Listed))
		}
		switch got.Conclusion {
		case ConcludeGone:
			if in.Dropped > 0 || !in.Confirmed[MissingHash(got.Missing)] {
				t.Fatal("gone without a person's word for exactly this set")
			}
		case AskEach:
			if in.Dropped > 0 || len(got.Missing) > in.AtOnce {
				t.Fatal("too many to ask for")
			}
		case LeaveUnread:
			if len(got.Missing) > in.AtOnce && float64(len(got.Missing)) > in.Share*float64(n) {
				t.Fatal("an implausible listing moved the watermark")
			}
		}
		in.Devices = rapid.Permutation(in.Devices).Draw(t, "another order")
		if again := JudgeAbsence(in); again.Hash != got.Hash || again.Conclusion != got.Conclusion {
			t.Fatal("the order decides")
		}
	})
}

func TestHashesOfSetsDoNotCollideByConcatenation(t *testing.T) {
	t.Parallel()
	if HashKeys([]string{"ab", "c"}) == HashKeys([]string{"a", "bc"}) || HashKeys([]string{"a", "b"}) != HashKeys([]string{"b", "a"}) {
		t.Error("the hash does not name the set")
	}
}
