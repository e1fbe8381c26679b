package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"
)

// fill makes devices as a sweep leaves them, with rows of Ironic and SLURM.
func (w *world) fill(n int) {
	w.t.Helper()
	id := w.bear(w.lab, "gpu-0", node(leased))
	w.exec(`insert into racks (site_id, source_ref, name) select $1, 'r' || i, 'R' || i from generate_series(1, 40) i`, w.lab.ID)
	w.exec(`insert into devices (site_id, rack_id, name, name_key, serial, serial_key, bmc_address, device_class, resource_class, inventory_status, operational_status,
			infrastructure_ref, ironic_provision_state, slurm_states, cond_true, cond_unknown, cond_present, in_scope, decisive, rung, observation_version, entered_service_at)
		select site_id, (select min(id) from racks) + i % 40, 'gpu-' || i, 'gpu-' || i, 'SN' || i, 'SN' || i, '10.0.0.' || i, device_class, resource_class, inventory_status, operational_status,
			gen_random_uuid()::text, ironic_provision_state, '{IDLE}', cond_true, cond_unknown, cond_present, in_scope, decisive, rung, observation_version, now()
		from devices, generate_series(1, $2) i where id = $1`, id, n)
	w.exec(`insert into facts (device_id, source, site_id, ref, hash, body, seen_at)
		select d.id, s, d.site_id, d.name, '\x00', '{}', now() from devices d, unnest('{ironic,slurm}'::text[]) s on conflict do nothing`)
	w.exec("analyze")
}

// BenchmarkDevicePage compares a page of 500 devices with its statement and its
// encoding alone, taking turns so that a busy machine slows both.
func BenchmarkDevicePage(b *testing.B) {
	w := newWorld(b)
	w.fill(10000)
	var requests []time.Duration
	var reference, request time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := w.server.ReferencePage(b.Context(), 501); err != nil {
			b.Fatal(err)
		}
		reference += time.Since(start)
		start = time.Now()
		r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/devices/?limit=500", nil)
		r.Header.Set("Authorization", "Bearer "+w.token)
		out := &discard{header: http.Header{}}
		if w.handler.ServeHTTP(out, r); out.status != http.StatusOK {
			b.Fatal(out.status)
		}
		requests = append(requests, time.Since(start))
		request += requests[len(requests)-1]
	}
	slices.Sort(requests)
	b.ReportMetric(float64(request)/float64(reference), "x-reference")
	b.ReportMetric(float64(requests[len(requests)*95/100].Microseconds())/1000, "p95-ms")
	b.ReportMetric(float64(requests[len(requests)/2].Microseconds())/1000, "p50-ms")
}

// BenchmarkEligibilityCheck compares a check of 1,000 devices with the
// statements that load them and their facts, taking turns.
func BenchmarkEligibilityCheck(b *testing.B) {
	w := newWorld(b)
	w.fill(10000)
	w.exec("update facts f set body = (select body from facts where device_id = (select min(device_id) from facts) and source = f.source) where body = '{}' and source = 'ironic'")
	w.exec("vacuum analyze facts, devices")
	var ids []int64
	for id := int64(1); len(ids) < 1000; id++ {
		ids = append(ids, id)
	}
	body, err := json.Marshal(fields{"workflow": "move_to_test_cluster", "device_ids": ids})
	must(b, err)
	var reference, request time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := w.server.ReferenceFacts(b.Context(), ids); err != nil {
			b.Fatal(err)
		}
		reference += time.Since(start)
		start = time.Now()
		r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/api/v1/eligibility/check/", bytes.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+w.token)
		r.Header.Set("Content-Type", "application/json")
		out := &discard{header: http.Header{}}
		if w.handler.ServeHTTP(out, r); out.status != http.StatusOK {
			b.Fatal(out.status)
		}
		request += time.Since(start)
	}
	b.ReportMetric(float64(request)/float64(reference), "x-reference")
}

// discard is a connection that takes everything at once.
type discard struct {
	header http.Header
	status int
}

func (d *discard) Header() http.Header            { return d.header }
func (d *discard) WriteHeader(status int)         { d.status = status }
func (d *discard) Write(data []byte) (int, error) { return len(data), nil }
