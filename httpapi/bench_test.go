package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
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
// encoding alone.
func BenchmarkDevicePage(b *testing.B) {
	w := newWorld(b)
	w.fill(10000)
	b.Run("reference", func(b *testing.B) {
		for b.Loop() {
			if _, err := w.server.ReferencePage(b.Context(), 501); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/api/v1/devices/?limit=500", nil)
			r.Header.Set("Authorization", "Bearer "+w.token)
			rec := httptest.NewRecorder()
			if w.handler.ServeHTTP(rec, r); rec.Code != http.StatusOK {
				b.Fatal(rec.Code, rec.Body)
			}
		}
	})
}
