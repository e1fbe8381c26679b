package slurm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
)

var markForm = regexp.MustCompile(`^muster:[A-Za-z0-9._:-]{1,128}$`)

var wordForm = regexp.MustCompile(`\S+`)

// Ours tells whose drain a node is under: the mark of the job that drained it,
// and whether the node is drained by us at all. A drain is ours only if a mark
// is in its reason, the same mark in the node's extra (or comment), and the
// reason is as old as we read it back after draining. SLURM keeps a reason
// beyond a resume, so the reason alone shows nothing.
func Ours(f *facts.Slurm) (mark string, ours bool) {
	reason, written, stamp := claim(f)
	if !f.States.Has(facts.SlurmDrain) || reason == "" || reason != written || f.ReasonChangedAt.IsZero() {
		return "", false
	}
	return reason, stamp == f.ReasonChangedAt.Unix()
}

// claim reads the mark in the reason, and the mark in extra or comment with
// the reason's time that was recorded with it (0: not yet).
func claim(f *facts.Slurm) (reason, written string, stamp int64) {
	for _, word := range strings.Fields(f.Reason.Value) {
		if markForm.MatchString(word) {
			reason = word
			break
		}
	}
	for _, notes := range []string{f.Extra, f.Comment} {
		for _, word := range strings.Fields(notes) {
			if mark, at, ok := readStamp(word); ok {
				return reason, mark, at
			}
		}
	}
	return reason, "", 0
}

// readStamp reads MARK or MARK@SECONDS.
func readStamp(word string) (mark string, stamp int64, ok bool) {
	mark, seconds, stamped := strings.Cut(word, "@")
	if !markForm.MatchString(mark) {
		return "", 0, false
	}
	if stamped {
		var err error
		if stamp, err = strconv.ParseInt(seconds, 10, 64); err != nil {
			return "", 0, false
		}
	}
	return mark, stamp, true
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
func (n *node) marked(u *update, mark string, stamp int64) error {
	word := mark
	if stamp != 0 {
		word = fmt.Sprintf("%s@%d", mark, stamp)
	}
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
