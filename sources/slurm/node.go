package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Bounds of texts, in bytes.
const (
	maxName  = 255
	maxText  = 1024
	maxNotes = 8192 // comment, extra
	maxParts = 256  // partitions of a node
)

// rawNode holds what is read of a node, each field undecoded: a field of an
// unexpected form costs itself only, and the other sixty cost nothing.
type rawNode struct {
	Name            json.RawMessage `json:"name"`
	State           json.RawMessage `json:"state"`
	StateFlags      json.RawMessage `json:"state_flags"`
	Reason          json.RawMessage `json:"reason"`
	ReasonSetBy     json.RawMessage `json:"reason_set_by_user"`
	ReasonChangedAt json.RawMessage `json:"reason_changed_at"`
	Comment         json.RawMessage `json:"comment"`
	Extra           json.RawMessage `json:"extra"`
	Partitions      json.RawMessage `json:"partitions"`
	LastBusy        json.RawMessage `json:"last_busy"`
}

// node is one node as read.
type node struct {
	name       string
	facts      facts.Slurm
	hasExtra   bool // the API has the field
	hasComment bool
	clears     bool // a resume takes the reason with it

	lastBusy time.Time // when it had work, was resumed or came into service; zero where it cannot be read
}

// decode reads one element of nodes[], as an API version writes it. ok is false without a readable name.
func decode(raw json.RawMessage, version string) (n node, ok bool) {
	var r rawNode
	if json.Unmarshal(raw, &r) != nil {
		return node{}, false
	}
	name, known, err := text(r.Name)
	if err != nil || !known || name == "" || sources.CleanText(name, maxName) != name || strings.ContainsRune(name, utf8.RuneError) {
		return node{}, false
	}
	n = node{name: name, hasExtra: present(r.Extra), hasComment: present(r.Comment), clears: versionNumber(version) >= firstClearing}
	f := &n.facts
	f.Listed = facts.True
	lose := func(fact, why string) {
		if f.Unreadable == nil {
			f.Unreadable = map[string]string{}
		}
		f.Unreadable[fact] = why
	}
	clean := func(fact string, raw json.RawMessage, max int) (string, bool) {
		s, known, err := text(raw)
		if err != nil {
			lose(fact, sources.ReasonDecodeFailed)
		}
		return sources.CleanText(s, max), known
	}
	if spellings, why := stateWords(r.State, r.StateFlags); why != "" {
		lose("states", why)
	} else {
		f.States, f.UnknownTokens = normalise(spellings)
		f.Unmodelled = len(f.UnknownTokens) > 0
	}
	f.Reason.Value, f.Reason.Known = clean("reason", r.Reason, maxText)
	f.ReasonSetBy, _ = clean("reason_set_by", r.ReasonSetBy, maxName)
	f.Comment, _ = clean("comment", r.Comment, maxNotes)
	f.Extra, _ = clean("extra", r.Extra, maxNotes)
	if f.ReasonChangedAt, err = instant(r.ReasonChangedAt); err != nil {
		lose("reason_changed_at", sources.ReasonDecodeFailed)
	}
	if f.Partitions, err = list(r.Partitions); err != nil {
		lose("partitions", sources.ReasonDecodeFailed)
	}
	n.lastBusy, _ = instant(r.LastBusy)
	f.DrainMark = n.drainMark()
	return n, true
}

func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// text reads a string; null and absent are not known.
func text(raw json.RawMessage) (s string, known bool, err error) {
	if !present(raw) {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", false, err
	}
	return s, true, nil
}

// stateWords gives all spellings of a node's state, or why there are none: a
// part that cannot be read may be the one that says DRAIN, so it costs all.
func stateWords(state, flags json.RawMessage) (spellings []string, why string) {
	if !present(state) {
		return nil, sources.ReasonFieldNotServed
	}
	spellings, single, ok := texts(state)
	if !ok {
		return nil, sources.ReasonDecodeFailed
	}
	if present(flags) {
		more, _, ok := texts(flags)
		if !ok {
			return nil, sources.ReasonDecodeFailed
		}
		spellings = append(spellings, more...)
	} else if single {
		// One word, as up to v0.0.38: the flags stand beside it, or in it.
		word := strings.ToUpper(strings.TrimSpace(spellings[0]))
		if bareWord(word) == word && !strings.Contains(word, "+") {
			return nil, sources.ReasonFieldNotServed
		}
	}
	if strings.TrimSpace(strings.Join(spellings, "")) == "" {
		return nil, sources.ReasonFieldNotServed
	}
	return spellings, ""
}

// texts reads a list of strings, or a single one. Anything else, a null among
// the elements too, is not ok.
func texts(raw json.RawMessage) (all []string, single, ok bool) {
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		var one string
		if json.Unmarshal(raw, &one) != nil {
			return nil, false, false
		}
		return []string{one}, true, true
	}
	for _, element := range list {
		if element == nil {
			return nil, false, false
		}
		all = append(all, *element)
	}
	return all, false, true
}

// list reads a list of names, or names with commas between them.
func list(raw json.RawMessage) ([]string, error) {
	if !present(raw) {
		return nil, nil
	}
	names, single, ok := texts(raw)
	if !ok {
		return nil, fmt.Errorf("%s is no list of names", sources.CleanText(string(raw[:min(len(raw), 64)]), 64))
	}
	if single {
		names = strings.Split(names[0], ",")
	}
	var clean []string
	for _, name := range names {
		if name = sources.CleanText(strings.TrimSpace(name), maxName); name != "" && len(clean) < maxParts {
			clean = append(clean, name)
		}
	}
	return clean, nil
}

// instant reads seconds since the epoch, bare or as {set, infinite, number}.
// Not set, infinite, zero and SLURM's "no value" give the zero Time.
func instant(raw json.RawMessage) (time.Time, error) {
	seconds, known, err := number(raw)
	if err != nil || !known || seconds <= 0 {
		return time.Time{}, err
	}
	if seconds > 253402300799 { // the year 9999
		return time.Time{}, fmt.Errorf("%d is no instant", seconds)
	}
	return sources.UnixTime(seconds), nil
}

// number reads an integer in any of SLURM's forms.
func number(raw json.RawMessage) (n int64, known bool, err error) {
	if !present(raw) {
		return 0, false, nil
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		var o struct {
			Set      *bool           `json:"set"`
			Infinite bool            `json:"infinite"`
			Number   json.RawMessage `json:"number"`
		}
		if err := json.Unmarshal(raw, &o); err != nil {
			return 0, false, err
		}
		if o.Set != nil && !*o.Set || o.Infinite || bytes.HasPrefix(o.Number, []byte("{")) {
			return 0, false, nil
		}
		return number(o.Number)
	}
	digits := strings.Trim(string(raw), `"`)
	n, err = strconv.ParseInt(digits, 10, 64)
	if err != nil {
		f, floatErr := strconv.ParseFloat(digits, 64)
		if floatErr != nil || math.IsNaN(f) {
			return 0, false, fmt.Errorf("%s is no number", sources.CleanText(string(raw), 64))
		}
		if math.Abs(f) >= 1<<63 { // NO_VAL64, INFINITE64
			return 0, false, nil
		}
		n = int64(f)
	}
	if n == math.MaxUint32-1 || n == math.MaxUint32 { // NO_VAL, INFINITE
		return 0, false, nil
	}
	return n, true, nil
}
