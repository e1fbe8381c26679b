package reconciler

import (
	"slices"
	"testing"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// polled is a site whose inventory gives addresses of BMCs, which are read.
func polled(s *fleet.SiteSpec) {
	fileAndIronic(s)
	s.Sources.Recorded["bmc"] = "x"
}

func at(address string) func(*sources.Record) {
	return func(r *sources.Record) { r.Netbox.OobIP = facts.TextOf(address) }
}

func bmc(ref string, change ...func(*sources.Record)) sources.Record {
	r := sources.Record{Ref: ref, BMC: &facts.BMC{Failures: facts.BMCFailures0, ChassisHealth: facts.RedfishHealthOK}}
	for _, f := range change {
		f(&r)
	}
	return r
}

func noAnswer(r *sources.Record) { r.BMC, r.Unanswered = nil, "connection refused" }

func TestARoundCountsWhoDidNotAnswer(t *testing.T) {
	w := newWorld(t, polled)
	w.source("file").says(machine("1", "n1", at("192.0.2.1")), machine("2", "n2", at("192.0.2.2")), machine("3", "n3", at("192.0.2.3")))
	w.sweep("file")
	answers, dead := bmc("192.0.2.1"), bmc("192.0.2.2", noAnswer)
	w.source("bmc").says(answers, bmc("192.0.2.3"), dead) // n2 was never read before
	w.sweep("bmc")
	w.wantFindings("bmc")
	for range 2 {
		w.source("bmc").says(answers, bmc("192.0.2.3", noAnswer), dead)
		w.sweep("bmc")
	}
	w.wantCondition("n1", "BmcReachable", "True RedfishAnswered")
	w.wantCondition("n2", "BmcReachable", "False RedfishUnreachable")
	w.wantCondition("n3", "BmcReachable", "True RedfishAnswered") // unread after two tries
	w.wantCount(1, "select count(*) from devices d join facts f on f.device_id = d.id where d.name = 'n3' and f.source = 'bmc' and (f.body ->> 'failures')::int = 2 and f.body ->> 'chassis_health' = 'OK'")
	w.wantCount(1, "select count(*) from device_writers where writer = 'health-status' and unread -> 'BmcReachable' ->> 'reason' = 'RedfishNoAnswer'")

	// A round that most did not answer is our own trouble: nothing of a device changes.
	before := w.count("select sum(hashtext(f::text)) from facts f where source = 'bmc'")
	devices := w.count("select sum(hashtext(d::text)) from devices d")
	w.source("bmc").set(func(s *script) { s.pages, s.fail = [][]sources.Record{{}}, errDown })
	w.sweep("bmc")
	w.wantCount(before, "select sum(hashtext(f::text)) from facts f where source = 'bmc'")
	w.wantCount(devices, "select sum(hashtext(d::text)) from devices d")
	if mark := w.watermark("bmc"); mark.FailingSince.IsZero() {
		t.Errorf("the failed round is not told: %+v", mark)
	}

	// Nothing is missing because a round did not have it.
	w.source("bmc").says(answers)
	w.sweep("bmc")
	w.wantFindings("bmc")
	w.wantCondition("n3", "ChassisHealthy", "True RedfishHealthOk")
}

func TestASharedBMCJoinsNobody(t *testing.T) {
	w := newWorld(t, polled)
	w.source("file").says(machine("1", "n1", at("192.0.2.1/24")), machine("2", "n2", at("192.0.2.1")))
	w.sweep("file")
	asked, err := w.svc.BMCs(t.Context(), w.site.ID)
	must(t, err)
	if len(asked) != 1 || asked[0].Address != "192.0.2.1" {
		t.Errorf("asked are %+v", asked)
	}
	for _, round := range [][]sources.Record{{bmc("192.0.2.1")}, {bmc("192.0.2.1", noAnswer)}} {
		w.source("bmc").says(round...)
		w.sweep("bmc")
		w.wantFindings("bmc", "ambiguous 192.0.2.1")
		w.wantCount(0, "select count(*) from facts where source = 'bmc'")
	}
	if kinds := w.kinds("file"); !slices.Contains(kinds, fleet.FindingSharedBMC) {
		t.Errorf("findings of the inventory are %v", kinds)
	}
}

// kinds lists the kinds of finding of a source, all of them.
func (w *world) kinds(source string) (kinds []string) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.t.Context(), "select coalesce(array_agg(distinct kind order by kind), '{}') from source_findings where source = $1", source).Scan(&kinds))
	return kinds
}
