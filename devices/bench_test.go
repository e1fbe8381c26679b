package devices_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// fleetOf is a site of n nodes in the customers' pool, in batches of 500.
func fleetOf(w *world, n int, change func(i int, f *facts.Ironic)) [][]fleet.Reading {
	var batches [][]fleet.Reading
	for i := range n {
		if i%500 == 0 {
			batches = append(batches, nil)
		}
		r := w.say(fmt.Sprintf("node-%06d", i), node(ready, func(f *facts.Ironic) {
			f.Properties = map[string]any{"cpus": 224, "memory_mb": 2064384, "capabilities": "boot_mode:uefi"}
			if change != nil {
				change(i, f)
			}
		}))
		batches[len(batches)-1] = append(batches[len(batches)-1], r)
	}
	return batches
}

func (w *world) wal() (bytes int64) {
	w.t.Helper()
	must(w.t, w.db.QueryRow(w.ctx(), "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").Scan(&bytes))
	return bytes
}

// BenchmarkSite loads a site, sweeps it unchanged and with 1% changed, and puts
// beside each the plain COPY and upsert of the same condition rows.
func BenchmarkSite(b *testing.B) {
	const devices = 10000
	for b.Loop() {
		w := newWorld(b)
		copied := w.upsert(devices, "x")
		report := func(name string, took time.Duration, wal int64) {
			b.ReportMetric(took.Seconds(), name+"-s")
			b.ReportMetric(float64(wal)/1e6, name+"-MB-WAL")
		}
		report("copy-first", copied, 0)
		copied = w.upsert(devices, "x")
		report("copy-again", copied, 0)

		run := func(name string, batches [][]fleet.Reading, birth bool) {
			wal, start := w.wal(), time.Now()
			for _, batch := range batches {
				for i := range batch {
					batch[i].Birth = birth
				}
				w.apply("ironic", batch...)
			}
			w.finish("ironic", "slurm")
			swept := time.Since(start)
			w.project()
			report(name, swept, w.wal()-wal)
			report(name+"-with-projection", time.Since(start), w.wal()-wal)
		}
		run("load", fleetOf(w, devices, nil), true)
		w.exec("vacuum analyze")
		w.pass(time.Second)
		run("unchanged", fleetOf(w, devices, nil), false)
		w.pass(time.Second)
		run("one-percent", fleetOf(w, devices, func(i int, f *facts.Ironic) {
			if i%100 == 0 {
				maintenance(f)
			}
		}), false)
	}
}

// upsert is the plain way: all condition rows of a fleet, each sweep.
func (w *world) upsert(devices int, reason string) time.Duration {
	w.t.Helper()
	types := []string{"ProvisionFailed", "Maintenance", "Enrolled", "ProvisionAvailable", "InstanceAllocated", "ValidationAllocated", "MaintenancePool", "CustomerReady"}
	w.exec("create table if not exists plain (like conditions including all)")
	start := time.Now()
	must(w.t, w.db.Tx(w.ctx(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.ctx(), "create temp table incoming (like conditions) on commit drop"); err != nil {
			return err
		}
		_, err := tx.CopyFrom(w.ctx(), pgx.Identifier{"incoming"}, []string{"device_id", "type", "status", "reason", "message", "writer", "last_transition_at"},
			pgx.CopyFromSlice(devices*len(types), func(i int) ([]any, error) {
				return []any{int64(i / len(types)), types[i%len(types)], "True", reason, "Ironic says so", "openstack", w.clock()}, nil
			}))
		if err != nil {
			return err
		}
		_, err = tx.Exec(w.ctx(), `insert into plain as p select * from incoming
			on conflict (device_id, type) do update set status = excluded.status, reason = excluded.reason, message = excluded.message
			where (p.status, p.reason, p.message) is distinct from (excluded.status, excluded.reason, excluded.message)`)
		return err
	}))
	return time.Since(start)
}
