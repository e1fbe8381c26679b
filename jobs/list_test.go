package jobs_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

func TestJobsAreListedNewestFirstAndFiltered(t *testing.T) {
	w := newWorld(t)
	a, b, other := w.device("a"), w.device("b"), w.at(w.iron, "c")
	done := w.submit(exclusive, a)
	w.finish(done, a, fleet.DeviceSucceeded, "")
	open := w.submit(shared, a, b)
	elsewhere := w.submit(shared, other)
	yes, no := true, false
	for name, c := range map[string]struct {
		f    store.JobFilter
		want []int64
	}{
		"all":                     {store.JobFilter{}, []int64{elsewhere.ID, open.ID, done.ID}},
		"a page":                  {store.JobFilter{Limit: 1}, []int64{elsewhere.ID}},
		"the next page":           {store.JobFilter{Before: elsewhere.ID, Limit: 1}, []int64{open.ID}},
		"of a site":               {store.JobFilter{Sites: []string{"lab"}}, []int64{open.ID, done.ID}},
		"as one who sees a site":  {store.JobFilter{SiteNames: []string{"iron"}}, []int64{elsewhere.ID}},
		"as one who sees nothing": {store.JobFilter{SiteNames: []string{}}, nil},
		"of a workflow":           {store.JobFilter{Workflows: []string{exclusive}}, []int64{done.ID}},
		"by status":               {store.JobFilter{Statuses: []string{"succeeded", "failed"}}, []int64{done.ID}},
		"of a device":             {store.JobFilter{Devices: []int64{b, other}}, []int64{elsewhere.ID, open.ID}},
		"open":                    {store.JobFilter{Open: &yes}, []int64{elsewhere.ID, open.ID}},
		"ended":                   {store.JobFilter{Open: &no}, []int64{done.ID}},
		"of nobody":               {store.JobFilter{RequestedBy: []string{"bob"}}, nil},
	} {
		if c.f.Limit == 0 {
			c.f.Limit = 100
		}
		rows, err := store.ListJobs(w.ctx(), w.db, c.f)
		must(t, err)
		var got []int64
		for _, r := range rows {
			got = append(got, r.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestListenersHearOfEachChange(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	conn, err := w.db.Acquire(w.ctx())
	must(t, err)
	defer conn.Release()
	_, err = conn.Exec(w.ctx(), "listen "+store.JobsChannel+"; listen "+store.ExecutionsChannel)
	must(t, err)
	heard := func(channels ...string) {
		t.Helper()
		var got []string
		for range channels {
			n, err := conn.Conn().WaitForNotification(w.ctx())
			must(t, err)
			got = append(got, n.Channel)
		}
		if !slices.Equal(got, channels) {
			t.Fatalf("heard %v, want %v", got, channels)
		}
	}
	j := w.submit(exclusive, a)
	heard(store.JobsChannel, store.ExecutionsChannel)
	w.begin(j, a)
	heard(store.JobsChannel)
	must(t, w.svc.Progress(w.ctx(), j.ID, a, "x", 1))
	heard(store.JobsChannel)
	w.finish(j, a, fleet.DeviceSucceeded, "")
	heard(store.JobsChannel)
}

func TestADeviceUnderWorkIsHeld(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	w.submit(shared, a)
	must(t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
		held, err := (jobs.Locks{}).Held(w.ctx(), tx, []int64{a, b})
		if !held[a] || held[b] {
			return fmt.Errorf("held %v", held)
		}
		return err
	}))
}

func TestTenThousandDevicesAreCheckedAtOnce(t *testing.T) {
	w := newWorld(t)
	ids := w.devices(jobs.MaxDevices)
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at)
		select id, 'ironic', site_id, 'n' || id, '\x00', '{"listed": true, "instance_bound": false, "provision_state": "available"}', now() from devices`)
	w.submit(shared, ids[:2]...)
	began := time.Now()
	r, err := w.svc.Check(w.ctx(), request(exclusive, ids...))
	must(t, err)
	t.Logf("checked %d devices in %v", len(ids), time.Since(began))
	if got := r.Codes(); !slices.Equal(got, []string{jobs.CodeWorkflowConflict}) || len(r.Devices) != len(ids) || len(r.Devices[2].Refusals) != 0 {
		t.Fatalf("%v", got)
	}
	_, err = w.svc.Check(w.ctx(), request(exclusive, append(ids, 1)...))
	coded(t, err, jobs.CodeTooManyDevices)
}
