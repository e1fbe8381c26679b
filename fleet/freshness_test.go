package fleet

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// agedSite has Ironic and SLURM, no BMCs.
func agedSite() *SiteSpec {
	return &SiteSpec{Sources: Sources{Recorded: map[string]string{"ironic": "x", "slurm": "x"}}}
}

var agedTypes = []TypePolicy{
	{Name: "Enrolled", Bit: 0, Sources: []string{"ironic"}, Hold: 24 * time.Hour, Emitted: true},
	{Name: "Both", Bit: 1, Sources: []string{"ironic", "slurm", "bmc"}, Hold: 24 * time.Hour, Emitted: true},
	{Name: "SlurmMember", Bit: 2, Sources: []string{"slurm"}, Emitted: true},
	{Name: "Latch", Bit: 3, Durable: true},
	{Name: "Healthy", Bit: 4, Sources: []string{"bmc"}, Hold: time.Hour, Emitted: true}, // posted here
	{Name: "Timeless", Bit: 5, Emitted: true},                                           // reads the device alone
}

var agedTTL = map[string]time.Duration{"ironic": 90 * time.Second, "slurm": 60 * time.Second, "bmc": 15 * time.Minute}

func TestAgeOfADevice(t *testing.T) {
	const enrolled, both, member, healthy = 1 << 0, 1 << 1, 1 << 2, 1 << 4
	for name, c := range map[string]struct {
		ironic, slurm time.Time // watermarks
		device        DeviceAge
		stale, past   uint64
		next          time.Time
	}{
		"all fresh": {
			ironic: ago(time.Minute), slurm: ago(10 * time.Second),
			device: DeviceAge{Posted: map[string]time.Time{"Healthy": ago(time.Minute)}}, next: noon.Add(30 * time.Second),
		},
		"exactly its time to live is too old": {
			ironic: ago(90 * time.Second), slurm: noon,
			device: DeviceAge{Posted: map[string]time.Time{"Healthy": noon}}, stale: enrolled | both, next: noon.Add(time.Minute),
		},
		"a type is as old as its oldest source": {
			ironic: noon, slurm: ago(time.Hour),
			device: DeviceAge{Posted: map[string]time.Time{"Healthy": noon}}, stale: member | both, next: noon.Add(90 * time.Second),
		},
		"read on its own since": {
			ironic: ago(time.Hour), slurm: ago(time.Hour),
			device: DeviceAge{Seen: map[string]time.Time{"ironic": ago(time.Second)}, Posted: map[string]time.Time{"Healthy": noon}}, stale: member | both,
			next: noon.Add(89 * time.Second),
		},
		"past the hold limit of those that have one": {
			ironic: ago(24 * time.Hour), slurm: ago(48 * time.Hour),
			device: DeviceAge{Posted: map[string]time.Time{"Healthy": ago(time.Hour)}}, stale: enrolled | both | member | healthy, past: enrolled | both | healthy,
		},
		"never read: nothing to hold": {
			device: DeviceAge{}, stale: enrolled | both | member | healthy,
		},
		"unread though the source is fresh": {
			ironic: noon, slurm: noon,
			device: DeviceAge{Unread: map[string]Unread{"Enrolled": {"DecodeFailed", ago(time.Hour)}}, Posted: map[string]time.Time{"Healthy": noon}},
			stale:  enrolled, next: noon.Add(time.Minute),
		},
		"unread for longer than the hold limit": {
			ironic: noon, slurm: noon,
			device: DeviceAge{Unread: map[string]Unread{"Enrolled": {"DecodeFailed", ago(24 * time.Hour)}}, Posted: map[string]time.Time{"Healthy": noon}},
			stale:  enrolled, past: enrolled, next: noon.Add(time.Minute),
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := NewFreshness(agedSite(), map[string]Watermark{"ironic": {At: c.ironic}, "slurm": {At: c.slurm}}, agedTTL, agedTypes, noon)
			got := f.Device(&c.device)
			if got.Stale != c.stale || got.PastHold != c.past {
				t.Errorf("stale %b past %b, want %b and %b", got.Stale, got.PastHold, c.stale, c.past)
			}
			if !c.next.IsZero() && !got.Next.Equal(c.next) {
				t.Errorf("next at %v, want %v", got.Next, c.next)
			}
		})
	}
}

// The next instant is the first at which the answer may differ: before it, it
// does not.
func TestNothingChangesBeforeTheNextInstant(t *testing.T) {
	marks := map[string]Watermark{"ironic": {At: ago(time.Minute)}, "slurm": {At: ago(30 * time.Second)}}
	device := &DeviceAge{
		Posted: map[string]time.Time{"Healthy": ago(5 * time.Minute)},
		Unread: map[string]Unread{"SlurmMember": {"StateUnknown", ago(time.Hour)}},
	}
	now := noon
	for range 20 {
		age := NewFreshness(agedSite(), marks, agedTTL, agedTypes, now).Device(device)
		if age.Next.IsZero() {
			return
		}
		if !age.Next.After(now) {
			t.Fatalf("at %v the next instant is %v", now, age.Next)
		}
		just := NewFreshness(agedSite(), marks, agedTTL, agedTypes, age.Next.Add(-time.Microsecond)).Device(device)
		then := NewFreshness(agedSite(), marks, agedTTL, agedTypes, age.Next).Device(device)
		if just.Stale != age.Stale || just.PastHold != age.PastHold {
			t.Fatalf("something changed before %v", age.Next)
		}
		if then.Stale == age.Stale && then.PastHold == age.PastHold {
			t.Fatalf("nothing changed at %v", age.Next)
		}
		now = age.Next
	}
	t.Fatal("it never ends")
}

func TestReasonsAndInstants(t *testing.T) {
	f := NewFreshness(agedSite(), map[string]Watermark{
		"ironic": {At: ago(10 * time.Second)},
		"slurm":  {At: ago(time.Hour), FailingSince: ago(50 * time.Minute), Reason: "SchedulerUnreachable"},
	}, agedTTL, agedTypes, noon)
	device := &DeviceAge{
		Seen:   map[string]time.Time{"ironic": ago(5 * time.Second)},
		Unread: map[string]Unread{"Enrolled": {"DecodeFailed", ago(7 * time.Second)}},
		Posted: map[string]time.Time{"Healthy": ago(time.Hour)},
	}
	for name, want := range map[string]string{
		"Enrolled": "DecodeFailed", "SlurmMember": "SchedulerUnreachable", "Both": "SchedulerUnreachable",
		"Healthy": ReasonStale, "Latch": "", "Timeless": "", "Nobody's": "",
	} {
		if got := f.Reason(name, device); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]time.Time{"Enrolled": ago(7 * time.Second), "Both": ago(time.Hour), "Healthy": ago(time.Hour), "Latch": {}} {
		if got := f.ObservedAt(name, device); !got.Equal(want) {
			t.Errorf("%s was observed at %v, want %v", name, got, want)
		}
	}
	if f.Emitted() != 0b100111 {
		t.Errorf("emitted: %b", f.Emitted())
	}
}
