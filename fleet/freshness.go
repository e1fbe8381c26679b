package fleet

import (
	"slices"
	"time"
)

// Reasons that are shown over a value that is not fresh.
const (
	ReasonStale = "Stale"
)

// TypePolicy is what the age of one condition type is judged by.
type TypePolicy struct {
	Name    string
	Bit     uint8
	Sources []string      // that its emission reads; empty: none, or it is only posted
	Hold    time.Duration // how long the ladder judges by a stale value; 0: as long as it is stale
	Durable bool          // written by whoever verified it: never stale
	Emitted bool          // it has an emission
}

// SourceAge is how old what one source of the site gave is.
type SourceAge struct {
	Source  string
	At      time.Time // its watermark; zero: it was never read to its end
	TTL     time.Duration
	Failing time.Time // zero: its last listing succeeded
	Reason  string    // to be shown over its values while they are stale
	Stale   bool      // devices that were read since on their own apart
}

// Freshness judges the age of what the devices of one site are known by, at
// one instant. It is immutable.
type Freshness struct {
	now     time.Time
	sources map[string]SourceAge
	types   []TypePolicy
	ttl     map[string]time.Duration
	emitted uint64
	base    Age
}

// DeviceAge is what one device has beside its site's watermarks. Zero maps are
// common and cost nothing.
type DeviceAge struct {
	Seen   map[string]time.Time // source → facts.seen_at
	Unread map[string]Unread    // type → why a good reading did not give it
	Posted map[string]time.Time // type → observed_at, of types that the site does not emit
}

// Age says which types are not fresh, which are past their hold limit, and when
// that next changes by time alone (zero: never). Whether a type is in scope is
// the caller's: out of scope is never stale.
type Age struct {
	Stale    uint64
	PastHold uint64
	Next     time.Time
}

// NewFreshness judges a site's sources. ttl gives the policy's time to live of
// every kind of source, whether the site has it or not.
func NewFreshness(spec *SiteSpec, marks map[string]Watermark, ttl map[string]time.Duration, types []TypePolicy, now time.Time) *Freshness {
	f := &Freshness{now: now, sources: map[string]SourceAge{}, types: types, ttl: ttl}
	for _, source := range spec.SourceNames() {
		mark := marks[source]
		age := SourceAge{Source: source, At: mark.At, TTL: ttl[source], Failing: mark.FailingSince, Reason: ReasonStale}
		if !mark.FailingSince.IsZero() && mark.Reason != "" {
			age.Reason = mark.Reason
		}
		age.Stale = !now.Before(mark.At.Add(age.TTL))
		f.sources[source] = age
	}
	for _, t := range types {
		if t.Emitted && (len(t.Sources) == 0 || slices.ContainsFunc(t.Sources, f.has)) {
			f.emitted |= 1 << t.Bit
		}
	}
	f.base = f.age(&DeviceAge{})
	return f
}

func (f *Freshness) has(source string) bool { _, has := f.sources[source]; return has }

// Emitted is the mask of the types that facts of this site give. The others
// can only be posted.
func (f *Freshness) Emitted() uint64 { return f.emitted }

// Source tells the age of one source of the site.
func (f *Freshness) Source(name string) (SourceAge, bool) { age, ok := f.sources[name]; return age, ok }

// StaleSources lists the sources whose watermark is too old, by name. For those
// alone a device's own facts.seen_at can make a difference.
func (f *Freshness) StaleSources() []string {
	var names []string
	for name, age := range f.sources {
		if age.Stale {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Device judges one device.
func (f *Freshness) Device(a *DeviceAge) Age {
	if len(a.Seen) == 0 && len(a.Unread) == 0 && len(a.Posted) == 0 {
		return f.base
	}
	return f.age(a)
}

func (f *Freshness) age(a *DeviceAge) Age {
	var age Age
	for i := range f.types {
		t := &f.types[i]
		if t.Durable {
			continue
		}
		stale, past, next := f.typeAge(t, a)
		bit := uint64(1) << t.Bit
		if stale {
			age.Stale |= bit
		}
		if past {
			age.PastHold |= bit
		}
		age.Next = Earlier(age.Next, next)
	}
	return age
}

// Own gives the next instant at which time alone changes what the device itself
// says of its types in scope: unread and posted ones. What the site's sources
// say changes for all devices at once, at the Next of their Age.
func (f *Freshness) Own(a *DeviceAge, inScope uint64) time.Time {
	var next time.Time
	for i := range f.types {
		t := &f.types[i]
		if t.Durable || inScope>>t.Bit&1 == 0 {
			continue
		}
		unread, isUnread := a.Unread[t.Name]
		posted, isPosted := a.Posted[t.Name]
		for _, at := range []time.Time{unread.Since.Add(t.Hold), posted.Add(f.postedTTL(t)), posted.Add(t.Hold)} {
			if (isUnread || isPosted) && f.now.Before(at) {
				next = Earlier(next, at)
			}
		}
	}
	return next
}

func (f *Freshness) typeAge(t *TypePolicy, a *DeviceAge) (stale, past bool, next time.Time) {
	since, ttl := f.instant(t, a)
	switch {
	case ttl == 0: // nothing that ages
	case !f.now.Before(since.Add(ttl)):
		stale = true
	default:
		next = since.Add(ttl)
	}
	unread, isUnread := a.Unread[t.Name]
	if isUnread {
		stale = true
		if since.IsZero() || unread.Since.Before(since) {
			since = unread.Since
		}
	}
	if t.Hold == 0 || since.IsZero() { // nothing was ever read: there is no value to hold
		return stale, false, next
	}
	limit := since.Add(t.Hold)
	if f.now.Before(limit) {
		return stale, false, Earlier(next, limit)
	}
	return stale, stale, next
}

// instant gives the earliest instant of the facts that give the type, with the
// time after which that one is stale: of several sources, the one that goes
// stale first. A ttl of 0 says that nothing of it ages.
func (f *Freshness) instant(t *TypePolicy, a *DeviceAge) (since time.Time, ttl time.Duration) {
	if f.emitted>>t.Bit&1 == 0 {
		return a.Posted[t.Name], f.postedTTL(t)
	}
	for _, source := range t.Sources {
		age, has := f.sources[source]
		if !has {
			continue
		}
		at := later(age.At, a.Seen[source])
		if ttl == 0 || at.Add(age.TTL).Before(since.Add(ttl)) {
			since, ttl = at, age.TTL
		}
	}
	return since, ttl
}

// postedTTL is how long a posted value stays fresh: as long as one that was
// read from the type's sources would, the shortest of them. A type that reads
// nothing does not age.
func (f *Freshness) postedTTL(t *TypePolicy) time.Duration {
	var ttl time.Duration
	for _, source := range t.Sources {
		if of := f.ttl[source]; ttl == 0 || of < ttl {
			ttl = of
		}
	}
	return ttl
}

// Reason says what to show over a value of the type: "" while it is fresh.
func (f *Freshness) Reason(name string, a *DeviceAge) string {
	if unread, ok := a.Unread[name]; ok {
		return unread.Reason
	}
	i := slices.IndexFunc(f.types, func(t TypePolicy) bool { return t.Name == name })
	if i < 0 || f.types[i].Durable {
		return ""
	}
	t := &f.types[i]
	if stale, _, _ := f.typeAge(t, a); !stale {
		return ""
	}
	for _, source := range t.Sources {
		if age, has := f.sources[source]; has && !f.now.Before(later(age.At, a.Seen[source]).Add(age.TTL)) {
			return age.Reason
		}
	}
	return ReasonStale
}

// ObservedAt is the instant of an emitted type: the earliest of the facts that
// give it; of a posted one, its own. One that is unread was not observed since.
// Zero: it was never read.
func (f *Freshness) ObservedAt(name string, a *DeviceAge) time.Time {
	at := f.observedAt(name, a)
	if unread, ok := a.Unread[name]; ok && !at.IsZero() && unread.Since.Before(at) {
		return unread.Since
	}
	return at
}

func (f *Freshness) observedAt(name string, a *DeviceAge) time.Time {
	i := slices.IndexFunc(f.types, func(t TypePolicy) bool { return t.Name == name })
	if i < 0 {
		return time.Time{}
	}
	t := &f.types[i]
	if f.emitted>>t.Bit&1 == 0 {
		return a.Posted[name]
	}
	var earliest time.Time
	for n, source := range t.Sources {
		age, has := f.sources[source]
		if !has {
			continue
		}
		at := later(age.At, a.Seen[source])
		if n == 0 || earliest.IsZero() || at.Before(earliest) {
			earliest = at
		}
	}
	return earliest
}

// Earlier gives the earlier of two instants, of which zero is never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
