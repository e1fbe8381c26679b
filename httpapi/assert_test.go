package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

type fields = map[string]any

func (w *world) post(token, path string, body any) answer {
	w.t.Helper()
	return w.ask(token, http.MethodPost, "/api/v1"+path, body)
}

func TestAWriterAssertsItsOwnConditions(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	assertion := func(change fields) fields {
		f := fields{"device_id": id, "type": "CustodyIntent", "status": "True", "reason": "HandedOver", "message": "by contract", "observed_at": w.clock()}
		for name, value := range change {
			f[name] = value
		}
		return f
	}
	a := w.post(w.token, "/device-conditions/", assertion(nil))
	row := a.json()["condition"].(map[string]any)
	want := fields{
		"device_id": float64(id), "device": "gpu-1", "site": "lab", "type": "CustodyIntent", "status": "True", "reason": "HandedOver", "message": "by contract",
		"stale": false, "last": nil, "writer": "custody", "condition_of": "none", "decisive": false,
		"last_transition_at": w.clock().Format(time.RFC3339), "observed_at": w.clock().Format(time.RFC3339),
	}
	if a.Status != http.StatusOK || a.json()["stored"] != true || !cmp.Equal(row, want) {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	older := w.post(w.token, "/device-conditions", assertion(fields{"status": "False", "reason": "Returned", "observed_at": w.clock().Add(-time.Second)}))
	if older.Status != http.StatusOK || older.json()["stored"] != false || !cmp.Equal(older.json()["condition"], any(want)) {
		t.Errorf("an older one is answered %d %s, want the stored row", older.Status, older.Body)
	}
	w.post(w.token, "/device-conditions/", assertion(fields{"observed_at": w.clock().Add(6 * time.Minute)})).refused(http.StatusUnprocessableEntity, "observed_at_in_future")
	w.post(w.token, "/device-conditions/", assertion(fields{"type": "Maintenance"})).refused(http.StatusForbidden, "writer_mismatch")
	w.post(w.token, "/device-conditions/", assertion(fields{"writer": "openstack"})).refused(http.StatusForbidden, "writer_mismatch")
	w.post(w.token, "/device-conditions/", assertion(fields{"type": "Nonsense"})).refused(http.StatusUnprocessableEntity, "condition_type_unknown")
	w.post(w.token, "/device-conditions/", assertion(fields{"device_id": 9999})).refused(http.StatusNotFound, "device_not_found")
	unbound := w.makeToken(store.Token{Scopes: []string{httpapi.ConditionWrite}})
	w.post(unbound, "/device-conditions/", assertion(nil)).refused(http.StatusForbidden, "writer_mismatch")
	if n := w.count("select count(*) from audit where action = 'condition.post' and principal = 'token:t1' and remote = '192.0.2.1' and target = $1", fmt.Sprintf("device %d condition CustodyIntent", id)); n == 0 {
		t.Error("the assertion is not in the audit")
	}
	openstack := w.makeToken(store.Token{Scopes: []string{httpapi.ConditionWrite}, Writer: "openstack"})
	w.post(openstack, "/device-conditions/", assertion(fields{"type": "Maintenance"})).refused(http.StatusConflict, "condition_emitted_here")
}

// healthTypes are the observed types of the writer health-status.
var healthTypes = []string{
	"BmcReachable", "ChassisHealthy", "ProcessorsHealthy", "MemoryHealthy", "StorageHealthy", "NetworkAdaptersHealthy",
	"PowerSuppliesHealthy", "ThermalHealthy", "GpusHealthy", "FpgasHealthy",
}

func snapshot(id int64, at time.Time, types []string) fields {
	var conditions []any
	for _, name := range types {
		conditions = append(conditions, fields{"type": name, "status": "True", "reason": "RedfishHealthOK"})
	}
	return fields{"device_id": id, "observed_at": at, "conditions": conditions}
}

func TestASnapshotIsWholeOrRefused(t *testing.T) {
	w := newWorld(t)
	a, b := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	foreign := w.bear(w.annex, "gpu-3", node(ready))
	token := w.makeToken(store.Token{Scopes: []string{httpapi.ConditionWrite}, Writer: "health-status", Sites: []string{"lab"}})
	apply := func(snapshots ...any) answer {
		t.Helper()
		return w.post(token, "/device-conditions/apply/", fields{"writer": "health-status", "devices": snapshots})
	}
	whole, part := snapshot(a, w.clock(), healthTypes), snapshot(b, w.clock(), healthTypes[:3])
	answer := apply(whole, part, snapshot(foreign, w.clock(), healthTypes))
	results := column(answer.json(), "result")
	codes := column(answer.json(), "code")
	if answer.Status != http.StatusOK || !cmp.Equal(results, []any{"applied", "refused", "refused"}) || !cmp.Equal(codes, []any{nil, "snapshot_incomplete", "device_not_found"}) {
		t.Fatalf("answered %d %s", answer.Status, answer.Body)
	}
	if ids := column(answer.json(), "device_id"); ids[2] != float64(foreign) || answer.json()["refused"] != 2.0 {
		t.Errorf("devices %v", ids)
	}
	if got := column(w.get(fmt.Sprintf("/api/v1/device-conditions/?device=%d&writer=health-status&condition_of=health", a)), "type"); len(got) != len(healthTypes) {
		t.Errorf("conditions %v", got)
	}
	faults := apply(part).refused(http.StatusUnprocessableEntity, "snapshot_incomplete")
	if detail := faults["/devices/0"]; !strings.Contains(detail, "FpgasHealthy") {
		t.Errorf("what is missing is not told: %v", faults)
	}
	apply(snapshot(foreign, w.clock(), healthTypes)).refused(http.StatusNotFound, "device_not_found")
	if again := apply(whole).json(); again["items"].([]any)[0].(map[string]any)["result"] != "unchanged" {
		t.Errorf("the same again: %v", again)
	}
}
