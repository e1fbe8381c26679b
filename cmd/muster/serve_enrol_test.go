package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/cmd/muster/dev"
	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/world"
)

// enrolled and letGo are what a device is like after either.
const (
	enrolled = `select exists (select from devices where name = $1 and operational_status = 'quarantine' and inventory_status = 'active'
		and infrastructure_ref <> '' and enrollment_validated_ref = infrastructure_ref and enrollment_proof_source = 'enrolled')`
	letGo = `select exists (select from devices where name = $1 and operational_status = 'unknown' and inventory_status = 'staged' and infrastructure_ref = '')`
)

// TestMachinesAreEnrolledAndLetGo enrols racked machines of the simulated fleet on
// a real Temporal and a real database, and undoes it: at a site with Nova whose
// BMCs share a credential, and at one that keeps each BMC's own.
func TestMachinesAreEnrolledAndLetGo(t *testing.T) {
	t.Parallel()
	const tray, own = "sim1-r01-c18", "sim2-r01-c18"
	var fleet simulator.Endpoints
	second := filepath.Join(t.TempDir(), "second.json")
	p, whole := newPlant(t, pgtest.Template(t, "migrated", migrated), func(spec map[string]any, e *simulator.Endpoints, _ *simulator.Site) {
		fleet = *e
		clear(spec)
		maps.Copy(spec, dev.Describe(e, &e.Sites[0]))
		text, err := json.Marshal(dev.Describe(e, &e.Sites[1]))
		if err == nil {
			err = os.WriteFile(second, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}), t
	p.startTemporal(t)
	replicas := []*replica{p.serve(t, "api,reconciler"), p.serve(t, "worker")}
	p.run(t, "site", "apply", second)
	for _, name := range []string{tray, own} {
		p.until(t, "the racked machine", "select exists (select from devices where name = $1 and inventory_status = 'staged' and bmc_address <> '')", name)
	}
	t.Run("without an inspection nothing is proven", func(t *testing.T) {
		job := p.submit(t, "enrollment", tray, "--param", "run_inspection=false")
		p.hasten(t, job)
		p.ends(t, job, "succeeded", "")
		p.until(t, "the node", "select exists (select from devices where name = $1 and infrastructure_ref <> '' and operational_status = 'quarantine' and enrollment_validated_ref = '')", tray)
		p.keepHistory(t, job, "enrollment_diagnostic")
	})
	t.Run("a BMC that refuses us is not let go", func(t *testing.T) {
		p.fault(t, "bmc-refuses", tray)
		job := p.submit(t, "node_unenrollment", tray)
		p.ends(t, job, "failed", "BMC_CREDENTIAL_REFUSED")
		p.keepHistory(t, job, "node_unenrollment_refused")
		p.fault(t, "bmc-well", tray)
		if n := p.effects(t, tray)["delete node"]; n != 0 {
			t.Errorf("the node was deleted %d times", n)
		}
	})
	t.Run("let go", func(t *testing.T) {
		job := p.submit(t, "node_unenrollment", tray)
		p.ends(t, job, "succeeded", "")
		p.gone(t, tray)
		p.keepHistory(t, job, "node_unenrollment")
	})
	t.Run("another machine than its class says", func(t *testing.T) {
		p.resourceClass(t, &fleet, tray, "baremetal")
		job := p.submit(t, "enrollment", tray)
		p.ends(t, job, "failed", "ENROLLMENT_HARDWARE_MISMATCH")
		p.keepHistory(t, job, "enrollment_mismatch")
		p.ends(t, p.submit(t, "node_unenrollment", tray), "succeeded", "") // its node has the class, too
		p.gone(t, tray)
		p.resourceClass(t, &fleet, tray, "gb200")
	})
	t.Run("cancelled while it is inspected", func(t *testing.T) {
		job := p.submit(t, "enrollment", tray)
		p.until(t, "the inspection", "select phase = 'inspect' from job_devices where job_id = $1", job)
		p.run(t, "job", "cancel", fmt.Sprint(job), "--reason", "test")
		p.ends(t, job, "cancelled", "")
		p.until(t, "the device to be free", "select not exists (select from device_locks where holder = $1)", fmt.Sprintf("job/%d", job))
		p.keepHistory(t, job, "enrollment_cancelled")
	})
	t.Run("kill -9 of the worker in an enrolment", func(t *testing.T) {
		before := p.effects(t, tray)
		job := p.submit(t, "enrollment", tray)
		p.until(t, "the clean", "select phase = 'clean' from job_devices where job_id = $1", job)
		replicas = append(replicas, p.replaced(whole, replicas[len(replicas)-1]))
		p.hasten(t, job)
		p.ends(t, job, "succeeded", "")
		p.until(t, "the proof", enrolled, tray)
		p.keepHistory(t, job, "enrollment")
		did := p.effects(t, tray)
		for op, times := range map[string]int{"create node": 3, "delete node": 2} { // a diagnostic one and a wrong one, both let go, and this one
			if did[op] != times {
				t.Errorf("%s was done %d times, want %d: %v", op, did[op], times, did)
			}
		}
		if n := did["set provision provide"] - before["set provision provide"]; n != 1 {
			t.Errorf("it was provided %d times: %v", n, did)
		}
	})
	t.Run("cancelled before it is let go", func(t *testing.T) {
		p.fault(t, "bmc-hangs", tray)
		job := p.submit(t, "node_unenrollment", tray)
		p.until(t, "its work to begin", "select phase like 'see that%' from job_devices where job_id = $1", job)
		p.run(t, "job", "cancel", fmt.Sprint(job), "--reason", "test")
		p.ends(t, job, "cancelled", "")
		p.until(t, "the device to be free", "select not exists (select from device_locks where holder = $1)", fmt.Sprintf("job/%d", job))
		p.keepHistory(t, job, "node_unenrollment_cancelled")
		p.fault(t, "bmc-well", tray)
	})
	t.Run("kill -9 of the worker while it is let go", func(t *testing.T) {
		before := p.effectsOf(t, "redfish", tray)
		job := p.submit(t, "node_unenrollment", tray)
		p.until(t, "its work to begin", "select phase <> '' from job_devices where job_id = $1", job)
		replicas = append(replicas, p.replaced(whole, replicas[len(replicas)-1]))
		p.ends(t, job, "succeeded", "")
		p.gone(t, tray)
		did := p.effectsOf(t, "redfish", tray)
		const reset = "reset BMC to defaults ResetAll"
		if did[reset]-before[reset] != 1 || p.effects(t, tray)["delete node"] != 3 {
			t.Errorf("%v, before %v, Ironic %v", did, before, p.effects(t, tray))
		}
	})
	t.Run("a BMC's own password is seen nowhere", func(t *testing.T) {
		job := p.submit(t, "enrollment", own)
		p.hasten(t, job)
		p.ends(t, job, "succeeded", "")
		p.until(t, "the proof", enrolled, own)
		password := p.stored(t, &fleet, own)
		if password == "" {
			t.Fatal("the credentials service has nothing of the device")
		}
		undone := p.submit(t, "node_unenrollment", own)
		p.ends(t, undone, "succeeded", "")
		p.gone(t, own)
		if left := p.stored(t, &fleet, own); left != "" {
			t.Error("its credential is still in the store")
		}
		p.secret(t, replicas, password, world.FactoryPassword)
	})
}

// hasten lets the time of the simulated fleet run once a node is being cleaned.
func (p *plant) hasten(t *testing.T, job int64) {
	t.Helper()
	p.until(t, "the clean", "select phase = 'clean' or status <> '' and status <> 'running' from job_devices where job_id = $1", job)
	if _, err := p.control.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// gone waits until a device is as it was before it was enrolled, and until its BMC
// has restarted.
func (p *plant) gone(t *testing.T, device string) {
	t.Helper()
	p.until(t, "it to be as it was", letGo, device)
	if _, err := p.control.Advance(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
}

// replaced kills a worker and starts another.
func (p *plant) replaced(t *testing.T, worker *replica) *replica {
	t.Helper()
	worker.kill(t)
	return p.serve(t, "worker")
}

// resourceClass has NetBox say of which class a device is.
func (p *plant) resourceClass(t *testing.T, e *simulator.Endpoints, device, class string) {
	t.Helper()
	var id string
	if err := p.rows.QueryRow(t.Context(), "select f.ref from facts f join devices d on d.id = f.device_id where f.source = 'netbox' and d.name = $1", device).Scan(&id); err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"custom_fields": {"resource_class": %q}}`, class)
	p.asks(t, http.MethodPatch, e.Sites[0].NetBox+"/api/dcim/devices/"+id+"/", "Token ", e.Secrets.NetBox, body)
	p.until(t, "the class to be seen", "select resource_class = $2 from devices where name = $1", device, class)
}

// stored gives the password that the second site's credentials service has of a
// device, "" for none.
func (p *plant) stored(t *testing.T, e *simulator.Endpoints, device string) string {
	t.Helper()
	var said struct{ Password string }
	answer := p.asks(t, http.MethodGet, e.Sites[1].Credentials+"/v1/credentials/"+device, "Bearer ", e.Secrets.Credentials, "")
	if err := json.Unmarshal(answer, &said); err != nil {
		t.Fatal(err)
	}
	return said.Password
}

func (p *plant) asks(t *testing.T, method, address, scheme, token, body string) []byte {
	t.Helper()
	secret, err := os.ReadFile(token)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", scheme+strings.TrimSpace(string(secret)))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 400 && resp.StatusCode != http.StatusNotFound {
		t.Fatalf("%s %s: %s %s, %v", method, address, resp.Status, answer, err)
	}
	return answer
}

// secret looks for what must be nowhere: in what replicas log, in any row and in
// any history.
func (p *plant) secret(t *testing.T, replicas []*replica, passwords ...string) {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: fmt.Sprintf("127.0.0.1:%d", p.port), Namespace: embedded.TemporalNamespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ids, tables := p.texts(t, "select workflow_id from executions"), p.texts(t, "select quote_ident(tablename) from pg_tables where schemaname = 'public'")
	if len(ids) < 5 || len(tables) < 10 {
		t.Fatalf("%d executions, %d tables", len(ids), len(tables))
	}
	for _, password := range passwords {
		for i, r := range replicas {
			if strings.Contains(r.log.String(), password) {
				t.Errorf("replica %d logs a password", i)
			}
		}
		for _, table := range tables {
			if n := p.texts(t, "select count(*)::text from "+table+" row where row::text like '%' || $1 || '%'", password); n[0] != "0" {
				t.Errorf("%s rows of %s hold a password", n[0], table)
			}
		}
		for _, id := range ids {
			for events := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
				e, err := events.Next()
				if err != nil {
					t.Fatal(err)
				}
				raw, err := proto.Marshal(e)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Contains(raw, []byte(password)) {
					t.Errorf("the history of %s holds a password: %s", id, e.EventType)
				}
			}
		}
	}
}

func (p *plant) texts(t *testing.T, query string, args ...any) (all []string) {
	t.Helper()
	rows, err := p.rows.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
