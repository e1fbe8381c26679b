package jobs_test

import (
	"testing"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/store"
)

// BenchmarkCheck holds a check of 1,000 devices against the statements that
// load what it judges by.
func BenchmarkCheck(b *testing.B) {
	w := newWorld(b)
	ids := w.devices(1000)
	w.exec("update devices set site_id = $1", w.iron.ID)
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at)
		select id, s, site_id, 'n' || id, '\x00', case s when 'ironic' then
			'{"listed": true, "name": "n", "provision_state": "available", "maintenance": false, "instance_bound": false, "our_mark": false, "lessee": "", "resource_class": "GB300", "traits": ["CUSTOM_READY"]}'::jsonb
			else '{"listed": true, "states": ["IDLE"], "reason": ""}'::jsonb end, now() from devices, unnest(array['ironic', 'slurm']) s`)
	w.exec("insert into watermarks (site_id, source, at) values ($1, 'ironic', now()), ($1, 'slurm', now())", w.iron.ID)
	b.Run("load", func(b *testing.B) {
		for b.Loop() {
			if _, err := store.DevicesByID(b.Context(), w.db, ids); err != nil {
				b.Fatal(err)
			}
			if stored, err := store.FactsOf(b.Context(), w.db, ids); err != nil || len(stored) != 2000 {
				b.Fatal(len(stored), err)
			}
		}
	})
	for _, workflow := range []string{exclusive, "move_to_test_cluster", "release_to_customer_pool"} {
		b.Run("check/"+workflow, func(b *testing.B) {
			for b.Loop() {
				if _, err := w.svc.Check(b.Context(), request(workflow, ids...)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("submit and cancel", func(b *testing.B) {
		for b.Loop() {
			done, err := w.svc.Submit(b.Context(), w.submission(exclusive, ids...))
			if err != nil {
				b.Fatal(err)
			}
			if _, err := w.svc.Cancel(b.Context(), done.Job.ID, "", devices.Caller{Name: "ann"}, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
