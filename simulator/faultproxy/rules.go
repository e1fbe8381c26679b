package faultproxy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is a way to misbehave.
type Kind string

// The ways to misbehave.
const (
	Status    Kind = "status"
	Delay     Kind = "delay"
	Stall     Kind = "stall"
	Reset     Kind = "reset"
	Truncate  Kind = "truncate"
	HTML      Kind = "html"
	Empty     Kind = "empty"
	Duplicate Kind = "duplicate"
	Repeat    Kind = "repeat"
	Loop      Kind = "loop"
	Skew      Kind = "skew"
	Drip      Kind = "drip"
)

// Meaning says in a few words what a way is.
func Meaning(k Kind) string {
	return map[Kind]string{
		Status:    "an answer of --code, with --retry-after",
		Delay:     "the right answer, --for later",
		Stall:     "nothing for as long as --for, then the connection is cut",
		Reset:     "the connection is reset at once",
		Truncate:  "half of the right answer, then the connection is cut",
		HTML:      "a page of a proxy in the way, as 200",
		Empty:     "the right answer with its lists emptied",
		Duplicate: "the first page of a listing for every page of it",
		Repeat:    "what the first page of a listing has, on every page of it",
		Loop:      "the right pages of a listing, each with itself for the next one",
		Skew:      "the right answer by a clock that is --for ahead, behind if negative",
		Drip:      "the right answer, in small pieces over --for",
	}[k]
}

// Kinds are all the ways to misbehave.
func Kinds() []Kind {
	return []Kind{Status, Delay, Stall, Reset, Truncate, HTML, Empty, Duplicate, Repeat, Loop, Skew, Drip}
}

// Rule says which requests are answered wrongly and how. What is left empty
// matches everything.
type Rule struct {
	ID         int           `json:"id"`
	Kind       Kind          `json:"kind"`
	Face       string        `json:"face,omitempty"` // ironic, slurm, …: as Wrap was told
	Site       string        `json:"site,omitempty"`
	Method     string        `json:"method,omitempty"`
	Path       string        `json:"path,omitempty"` // a part of the path; with a $ at its end, what the path ends with
	Code       int           `json:"code,omitempty"` // of Status, default 503
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	For        time.Duration `json:"for,omitempty"`   // of Delay, Stall, Skew and Drip, default 30 s
	Times      int           `json:"times,omitempty"` // requests that it still meets, 0 for ever
	Share      float64       `json:"share,omitempty"` // of the requests that match, which it meets by chance; 0 all
	Seed       uint64        `json:"seed,omitempty"`  // of that chance: the same requests are met each time
	Hits       int           `json:"hits"`            // requests that it has met
}

const (
	defaultFor = 30 * time.Second
	longestFor = time.Hour
	mostSkew   = 31 * 24 * time.Hour
	mostRules  = 1000
)

func (r *Rule) check() error {
	if !slices.Contains(Kinds(), r.Kind) {
		return fmt.Errorf("no fault is called %q: there are %s", r.Kind, strings.Join(names(), ", "))
	}
	if r.Kind == Status && r.Code == 0 {
		r.Code = http.StatusServiceUnavailable
	}
	if r.Kind == Status && (r.Code < 200 || r.Code > 599) {
		return fmt.Errorf("status %d: it must be between 200 and 599", r.Code)
	}
	if r.For == 0 {
		r.For = defaultFor
	}
	if r.Share < 0 || r.Share > 1 {
		return fmt.Errorf("a share of %g: it must be between 0 and 1", r.Share)
	}
	if r.Kind == Skew {
		if r.For.Abs() > mostSkew || r.Times < 0 {
			return fmt.Errorf("a clock that is off by %s: it may be by %s at most, and --times may not be negative", r.For, mostSkew)
		}
		return nil
	}
	if r.For < 0 || r.For > longestFor || r.RetryAfter < 0 || r.Times < 0 {
		return fmt.Errorf("a time of %s: it must be between 0 and %s, and nothing may be negative", r.For, longestFor)
	}
	return nil
}

func names() []string {
	var all []string
	for _, k := range Kinds() {
		all = append(all, string(k))
	}
	return all
}

func (r *Rule) matches(face, site string, q *http.Request) bool {
	return (r.Face == "" || r.Face == face) && (r.Site == "" || r.Site == site) &&
		(r.Method == "" || strings.EqualFold(r.Method, q.Method)) && r.at(q.URL.Path)
}

func (r *Rule) at(path string) bool {
	if end, whole := strings.CutSuffix(r.Path, "$"); whole {
		return strings.HasSuffix(path, end)
	}
	return strings.Contains(path, r.Path)
}

// Rules are what is in force. The zero value is good and may be used by many
// goroutines.
type Rules struct {
	mu    sync.Mutex
	last  int
	rules []*rule
}

// rule is a Rule, its chance and the first pages that it repeats.
type rule struct {
	Rule
	dice  *rand.Rand
	over  chan struct{} // closed when it is taken away: what waits by it goes on
	mu    sync.Mutex
	pages map[string]*answer
}

// Add puts a rule behind those that are there: of several that match the first
// counts. It gives the rule as it is in force.
func (r *Rules) Add(add Rule) (Rule, error) {
	if err := add.check(); err != nil {
		return add, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.rules) >= mostRules {
		return add, fmt.Errorf("there are %d rules already: take some away", mostRules)
	}
	r.last++
	add.ID, add.Hits = r.last, 0
	r.rules = append(r.rules, &rule{Rule: add, over: make(chan struct{}), dice: rand.New(rand.NewPCG(add.Seed, uint64(add.ID))), pages: map[string]*answer{}})
	return add, nil
}

// Remove takes a rule away, and ends what waits by it; false: there is none of
// that id.
func (r *Rules) Remove(id int) bool {
	return r.remove(func(one *rule) bool { return one.ID == id }) > 0
}

// Clear takes every rule away as Remove does, and tells how many there were.
func (r *Rules) Clear() int { return r.remove(func(*rule) bool { return true }) }

func (r *Rules) remove(which func(*rule) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rules = slices.DeleteFunc(r.rules, func(one *rule) bool {
		if !which(one) {
			return false
		}
		close(one.over)
		n++
		return true
	})
	return n
}

// List gives the rules in force.
func (r *Rules) List() []Rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Rule, len(r.rules))
	for i, one := range r.rules {
		list[i] = one.Rule
	}
	return list
}

// match gives the rule that a request meets, or nil, and counts it.
func (r *Rules) match(face, site string, q *http.Request) *rule {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, one := range r.rules {
		if !one.matches(face, site, q) || one.Share > 0 && one.dice.Float64() >= one.Share {
			continue
		}
		one.Hits++
		if one.Times > 0 {
			if one.Times--; one.Times == 0 {
				r.rules = slices.Delete(r.rules, i, i+1)
			}
		}
		return one
	}
	return nil
}
