package slurm

import (
	"fmt"
	"hash/crc32"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
)

var markForm = regexp.MustCompile(`^muster:[A-Za-z0-9._:-]{1,128}$`)

var wordForm = regexp.MustCompile(`\S+`)

// silence is what slurmctld adds to the reason of a node whose slurmd has not
// answered for SlurmdTimeout. Releases differ: 24.11 and 26.05 add it and set
// the reason's time anew, 22.05 leaves a reason as it is.
const silence = " : Not responding"

// stamp is what was read back of a drain. It stands beside our mark and tells
// that drain from a later one.
type stamp struct {
	reasonAt int64  // when the reason was set, in seconds since the epoch; 0: not read back yet
	rested   int64  // when the node was last busy; 0: it still was, or that is not told
	reason   uint32 // checksum of the reason without what SLURM adds
}

// drainMark tells whose drain a node is under: the mark of the job that drained
// it, "" for no drain, or one of somebody else. A drain is ours only if a mark is
// in its reason, the same mark in the node's extra (or comment), and the reason
// is the one that we read back, of the same instant. SLURM keeps a reason beyond
// a resume, so the reason alone shows nothing.
//
// The reason may also have become a newer one by SLURM's own addition alone, if
// the node shows that nobody resumed it before. What cannot be told from a
// resume and a later drain without a reason is not ours.
func (n *node) drainMark() string {
	f := &n.facts
	reason, written, s := n.claim()
	if !f.States.Has(facts.SlurmDrain) || reason == "" || reason != written || f.ReasonChangedAt.IsZero() || s.reason != checksum(f.Reason.Value) {
		return ""
	}
	at := f.ReasonChangedAt.Unix()
	if at == s.reasonAt || s.reasonAt != 0 && at > s.reasonAt && strings.HasSuffix(f.Reason.Value, silence) && n.unresumed(s) {
		return reason
	}
	return ""
}

// unresumed tells that nobody resumed a node since it was stamped, as it has its
// reason still: a resume either clears that or, in releases that keep it, makes
// the node busy now in SLURM's eyes. A silence does not, but the end of work, a
// restart of slurmctld and its taking the node back by itself
// (ReturnToService=2) do as well: after those it cannot be told.
func (n *node) unresumed(s stamp) bool {
	return n.clears || s.rested != 0 && n.lastBusy.Unix() == s.rested
}

// working are the states of a node that has work.
const working = facts.SlurmAllocated | facts.SlurmMixed | facts.SlurmCompleting

// current is the stamp for the drain that a node is under.
func (n *node) current() stamp {
	s := stamp{reasonAt: n.facts.ReasonChangedAt.Unix(), reason: checksum(n.facts.Reason.Value)}
	if n.facts.States&working == 0 && !n.lastBusy.IsZero() {
		s.rested = n.lastBusy.Unix()
	}
	return s
}

// checksum is of a reason without what SLURM adds to it.
func checksum(reason string) uint32 {
	return crc32.ChecksumIEEE([]byte(strings.TrimSuffix(reason, silence)))
}

// claim reads the mark in the reason, and the mark in extra or comment with its
// stamp.
func (n *node) claim() (reason, written string, s stamp) {
	for _, word := range strings.Fields(n.facts.Reason.Value) {
		if markForm.MatchString(word) {
			reason = word
			break
		}
	}
	for _, notes := range []string{n.facts.Extra, n.facts.Comment} {
		for _, word := range strings.Fields(notes) {
			if mark, s, ok := readStamp(word); ok {
				return reason, mark, s
			}
		}
	}
	return reason, "", stamp{}
}

// word writes a mark with its stamp: MARK, or MARK@REASONAT/RESTED/REASON.
func (s stamp) word(mark string) string {
	if s.reasonAt == 0 {
		return mark
	}
	return fmt.Sprintf("%s@%d/%d/%08x", mark, s.reasonAt, s.rested, s.reason)
}

var stampForm = regexp.MustCompile(`^([0-9]{1,12})/([0-9]{1,12})/([0-9a-f]{8})$`)

// readStamp reads a word of ours.
func readStamp(word string) (mark string, s stamp, ok bool) {
	mark, text, stamped := strings.Cut(word, "@")
	if !markForm.MatchString(mark) {
		return "", stamp{}, false
	}
	if !stamped {
		return mark, stamp{}, true
	}
	part := stampForm.FindStringSubmatch(text)
	if part == nil {
		return "", stamp{}, false
	}
	s.reasonAt, _ = strconv.ParseInt(part[1], 10, 64) // the form has bounded them
	s.rested, _ = strconv.ParseInt(part[2], 10, 64)
	sum, _ := strconv.ParseUint(part[3], 16, 32)
	s.reason = uint32(sum)
	return mark, s, true
}

// unmarked gives a text without our marks and the space before each; the rest
// stays as it was written.
func unmarked(notes string) string {
	rest, end := "", 0
	for _, word := range wordForm.FindAllStringIndex(notes, -1) {
		if _, _, ours := readStamp(notes[word[0]:word[1]]); !ours {
			rest += notes[end:word[1]]
		}
		end = word[1]
	}
	return rest + notes[end:]
}

// marked puts a mark into the notes of a node and leaves what others wrote
// there: into extra if it is free, else behind the comment.
func (n *node) marked(u *update, mark string, s stamp) error {
	word := s.word(mark)
	if n.hasExtra && n.facts.Unreadable["extra"] == "" && unmarked(n.facts.Extra) == "" {
		u.Extra = &word
		return nil
	}
	notes := strings.TrimSpace(unmarked(n.facts.Comment) + " " + word)
	if !n.hasComment || n.facts.Unreadable["comment"] != "" || len(notes) >= maxNotes {
		return fmt.Errorf("neither the node's extra nor its comment has room for muster's mark: empty one of them with scontrol")
	}
	u.Comment = &notes
	return nil
}

// cleared takes our marks out of a node's notes. It reports whether there were
// any.
func (n *node) cleared(u *update) bool {
	if rest := unmarked(n.facts.Extra); rest != n.facts.Extra {
		u.Extra = &rest
	}
	if rest := unmarked(n.facts.Comment); rest != n.facts.Comment {
		u.Comment = &rest
	}
	return u.Extra != nil || u.Comment != nil
}
