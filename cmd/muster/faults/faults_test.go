package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	domain "github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator/faultproxy"
)

// told is how muster tells of a fault.
type told int

const (
	either    told = iota // a fault that listings get by, or do not: then it is told
	fails                 // the sweeps fail
	withholds             // the listing is not believed
	nothing               // the readings are as good as any
)

// fault is one way for a system to misbehave.
type fault struct {
	name   string
	rules  []faultproxy.Rule
	want   told
	sweeps int      // that meet it at least
	beside []string // other sources that are read meanwhile
}

const forEver = time.Hour // longer than muster waits

func rule(kind faultproxy.Kind) []faultproxy.Rule { return []faultproxy.Rule{{Kind: kind}} }

func status(code int, again time.Duration) []faultproxy.Rule {
	return []faultproxy.Rule{{Kind: faultproxy.Status, Code: code, RetryAfter: again}}
}

// ways are the faults that every system over HTTP is tried with.
func ways() []fault {
	return []fault{
		{name: "too many requests", rules: status(429, time.Second), want: fails, sweeps: 1},
		{name: "unavailable", rules: status(503, 0), want: fails, sweeps: 2},
		{name: "forbidden", rules: status(403, 0), want: fails, sweeps: 2},
		{name: "a reset connection", rules: rule(faultproxy.Reset), want: fails, sweeps: 2},
		{name: "no answer", rules: []faultproxy.Rule{{Kind: faultproxy.Stall, For: forEver}}, want: fails, sweeps: 1},
		{name: "an answer in drops", rules: []faultproxy.Rule{{Kind: faultproxy.Drip, For: forEver}}, want: fails, sweeps: 1},
		{name: "half an answer", rules: rule(faultproxy.Truncate), want: fails, sweeps: 2},
		{name: "a login page", rules: rule(faultproxy.HTML), want: fails, sweeps: 2},
		{name: "an empty listing", rules: rule(faultproxy.Empty), want: either, sweeps: 2},
		{name: "the first page again and again", rules: rule(faultproxy.Duplicate), want: either, sweeps: 2},
		{name: "what the first page has on every page", rules: rule(faultproxy.Repeat), want: either, sweeps: 2},
		{name: "pages that lead to themselves", rules: rule(faultproxy.Loop), want: either, sweeps: 2},
		{name: "a clock three hours ahead", rules: []faultproxy.Rule{{Kind: faultproxy.Skew, For: 3 * time.Hour}}, want: nothing, sweeps: 2},
		{name: "a clock nine hours behind", rules: []faultproxy.Rule{{Kind: faultproxy.Skew, For: -9 * time.Hour}}, want: nothing, sweeps: 2},
		{name: "one request in three reset", rules: []faultproxy.Rule{{Kind: faultproxy.Reset, Share: 0.35, Seed: 5}}, want: either, sweeps: 3},
	}
}

// of gives the ways before the face of one source, some with another outcome.
func of(source, face string, change map[string]told) []fault {
	all := ways()
	for i := range all {
		if all[i].name == "unavailable" {
			all[i].beside = others(source)
		}
		for k := range all[i].rules {
			all[i].rules[k].Face = face
		}
		if want, other := change[all[i].name]; other {
			all[i].want = want
		}
	}
	return all
}

// bound is how many sweeps may pass until a source whose fault is over is read
// well: its client's breaker may need some.
const bound = 12

// try puts a fault before a source and takes it away again.
func (r *replica) try(t *testing.T, source string, f fault) {
	t.Helper()
	stored, unread, findings := r.rows(t), r.unread(t), r.findings(t, source)
	failed, logged := r.sweeps(t, source, "failed"), 0
	_, logged = r.log.since(0)
	before := r.ended(t, source)
	r.fault(t, f.rules...)
	eventually(t, "sweeps have met the fault", func() error {
		ended, most := r.ended(t, source)-before, f.sweeps+1 // one may have been under way
		if n := r.sweeps(t, source, "failed") - failed; ended < most && (f.want != fails || n < f.sweeps) {
			return fmt.Errorf("%d have, %d of them failed", ended, n)
		}
		return nil
	})
	r.told(t, source, f.want, failed, logged)
	r.read(t, f.beside...)
	r.unchanged(t, stored)

	r.rules.Clear()
	over, before := r.db.Now(), r.ended(t, source)
	eventually(t, "the source is read well again", func() error {
		switch m := r.mark(t, source); {
		case !m.At.After(over):
			return fmt.Errorf("its watermark is of %s, the fault was over at %s", m.At, over)
		case !m.FailingSince.IsZero() || m.Alert != "":
			return fmt.Errorf("it is still said to fail: %+v", m)
		}
		return nil
	})
	if n := r.ended(t, source) - before; n > bound {
		t.Errorf("%d sweeps passed until the source was read well", n)
	}
	r.read(t)
	r.unchanged(t, stored)
	for _, line := range unread.differ(r.unread(t)) {
		t.Errorf("unread has changed for good: %s", line)
	}
	for _, line := range findings.differ(r.findings(t, source)) {
		t.Errorf("findings have changed for good: %s", line)
	}
}

func (r *replica) unchanged(t *testing.T, stored rows) {
	t.Helper()
	for _, line := range stored.differ(r.rows(t)) {
		t.Errorf("the world stands still, and %s", line)
	}
}

// told checks that a fault is told where an operator looks.
func (r *replica) told(t *testing.T, source string, want told, failed, logged int) {
	t.Helper()
	mark, failed := r.mark(t, source), r.sweeps(t, source, "failed")-failed
	said, _ := r.log.since(logged)
	if want == either {
		switch {
		case mark.Alert != "":
			want = withholds
		case !mark.FailingSince.IsZero():
			want = fails
		default:
			return
		}
	}
	labels := map[string]string{"site": siteName, "source": source}
	switch want {
	case fails:
		if failed == 0 || mark.FailingSince.IsZero() || mark.Reason == "" {
			t.Errorf("%d sweeps failed, and the watermark says %+v", failed, mark)
		}
		if text := r.findings(t, source)[domain.FindingFailure+" "]; !strings.Contains(text, "error") {
			t.Errorf("the finding of the failure is %q", text)
		}
		if !strings.Contains(said, "sweep failed") || !strings.Contains(said, "source="+source) {
			t.Errorf("the log says %q", said)
		}
		r.shows(t, "muster_source_failing_seconds", labels)
	case withholds:
		if mark.Alert == "" || !strings.Contains(said, "waits for a person") {
			t.Errorf("the alert is %q, the log says %q", mark.Alert, said)
		}
		r.shows(t, "muster_source_withheld", labels)
	case nothing:
		if failed != 0 || !mark.FailingSince.IsZero() || mark.Alert != "" {
			t.Errorf("%d sweeps failed, %+v", failed, mark)
		}
	}
}

// shows waits until a gauge is up.
func (r *replica) shows(t *testing.T, gauge string, labels map[string]string) {
	t.Helper()
	eventually(t, gauge+" is up", func() error {
		if v := r.metric(t, gauge, labels); v <= 0 {
			return fmt.Errorf("it is %v", v)
		}
		return nil
	})
}

func (r *replica) tryAll(t *testing.T, source string, faults []fault) {
	t.Helper()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			began := time.Now()
			r.try(t, source, f)
			t.Logf("%s", time.Since(began))
		})
		if t.Failed() {
			r.rules.Clear()
		}
	}
}
