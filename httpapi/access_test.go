package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

// bodyOf gives a body that an operation takes, nil where it takes none.
func (w *world) bodyOf(one httpapi.RouteInfo, device int64) any {
	switch one.Path {
	case "/api/v1/device-conditions/":
		if one.Method == http.MethodGet {
			return nil
		}
		return map[string]any{"device_id": device, "type": "CustodyIntent", "status": "True", "reason": "HandedOver"}
	case "/api/v1/device-conditions/apply/":
		return map[string]any{"devices": []any{map[string]any{"device_id": device, "conditions": []any{map[string]any{"type": "CustodyIntent", "status": "True", "reason": "HandedOver"}}}}}
	case "/api/v1/sites/{site}/sources/{source}/confirm/":
		return map[string]any{"hash": "x"}
	case "/api/v1/sites/{site}/sources/bmc/allow-login/":
		return map[string]any{"all": true}
	case "/api/v1/devices/{id}/promote/":
		return map[string]any{"reason": "it is ours now"}
	case "/api/v1/devices/{id}/enrollment-proof/":
		return map[string]any{"outcome": "succeeded", "infrastructure_ref": "gpu-1"}
	case "/api/v1/devices/{id}/latches/":
		return map[string]any{"type": "BackendPortsInMaintenanceVrf", "status": "False", "reason": "ManualReturn", "note": "by hand"}
	case "/api/v1/devices/triage/":
		return map[string]any{"device_ids": []int64{device}, "in_triage": false}
	case "/api/v1/eligibility/check/":
		return map[string]any{"workflow": "verify_connectivity", "device_ids": []int64{device}}
	case "/api/v1/jobs/":
		if one.Method == http.MethodGet {
			return nil
		}
		return map[string]any{"workflow": "verify_connectivity", "device_ids": []int64{device}}
	case "/api/v1/jobs/{job}/cancel/", "/api/v1/breakers/{breaker}/reset/":
		return map[string]any{"reason": "it was the cable"}
	case "/api/v1/operations/power/", "/api/v1/operations/firmware/", "/api/v1/operations/decommission/":
		return map[string]any{"operation": "power_on", "racks": []any{1}, "reason": "CHG-1"}
	case "/api/v1/operations/tasks/{task}/cancel/":
		return map[string]any{"reason": "it was the cable"}
	case "/api/v1/operation-rules/", "/api/v1/operation-rules/{rule}/":
		if one.Method == http.MethodGet || one.Method == http.MethodDelete {
			return nil
		}
		return map[string]any{"rule": ownRule("power_on", "compute")}
	case "/api/v1/operation-rules/import/":
		return map[string]any{"batch": map[string]any{"rules": []any{ownRule("power_on", "compute"), ownRule("power_off", "compute")}}}
	case "/api/v1/operation-rules/validate/":
		return ownRule("power_on", "compute")
	case "/api/v1/operation-rules/plan/":
		return map[string]any{"rack_id": 1, "operation": "power_on"}
	case "/api/v1/racks/{rack}/operation-rules/{operation}/":
		if one.Method == http.MethodPut {
			return map[string]any{"rule_id": 1}
		}
	case "/api/v1/policies/evaluate/":
		return map[string]any{"site": w.lab.Spec.Name}
	}
	return nil
}

// pathOf fills a template with what is the lab's.
func pathOf(template string, device int64) string {
	return strings.NewReplacer("{id}", fmt.Sprint(device), "{site}", "lab", "{source}", "ironic", "{family}", "status", "{job}", "1", "{task}", "1", "{rule}", "1", "{rack}", "1", "{operation}", "power_on", "{breaker}", "tripped").Replace(template)
}

// TestAuthorisationMatrix asks every operation with every scope, for callers
// who see every site, the site in question, and another one.
func TestAuthorisationMatrix(t *testing.T) {
	w := newWorld(t)
	device := w.bear(w.lab, "gpu-1", node(ready))
	w.exec("insert into racks (site_id, source_ref, name) values ($1, 'r1', 'gpu-1 rack')", w.lab.ID)
	w.ended(w.submit("verify_connectivity", nil, device))
	w.exec(`insert into tasks (site_id, rack_id, operation_type, operation, rule, rule_source, identity, disruptive, status, conflict, bundle_version, requested_by)
		values ($1, 1, 'power_control', 'power_on', '{"name": "gpu-1"}', 'builtin', '', false, 'failed', 'refuse', 'b', 'test')`, w.lab.ID)
	w.exec("insert into breakers (name, policy, site_id, reset_at) values ('tripped', 'tripped', $1, now())", w.lab.ID)
	sites := map[string][]string{"every site": nil, "its own site": {"lab"}, "another site": {"annex"}, "no site": {}}
	for whose, names := range sites {
		for _, scope := range httpapi.Scopes() {
			token := w.makeToken(store.Token{Scopes: []string{scope}, Sites: names, Writer: "custody"})
			for _, one := range w.server.Registered() {
				a := w.ask(token, one.Method, pathOf(one.Path, device), w.bodyOf(one, device))
				here := names == nil || slices.Contains(names, "lab")
				aboutDevice := strings.Contains(one.Path, "{id}") || one.Path == "/api/v1/device-conditions/" && one.Method == http.MethodPost || strings.HasSuffix(one.Path, "/apply/") || strings.HasSuffix(one.Path, "/triage/")
				aboutSite := strings.Contains(one.Path, "{site}") || strings.HasSuffix(one.Path, "/evaluate/")
				if strings.HasPrefix(one.Path, "/ui/") {
					w.checkPage(one, scope, here, a)
					continue
				}
				if strings.Contains(one.Path, "/operation") {
					w.checkOperation(one, scope, here, names != nil, a)
					continue
				}
				switch {
				case one.Public && a.Status == http.StatusOK:
				case !one.Public && scope != one.Scope:
					a.refused(http.StatusForbidden, "scope_missing")
				case !here && aboutDevice:
					a.refused(http.StatusNotFound, "device_not_found")
				case !here && strings.Contains(one.Path, "{job}"):
					a.refused(http.StatusNotFound, "job_not_found")
				case !here && strings.Contains(one.Path, "{breaker}"):
					a.refused(http.StatusNotFound, "breaker_not_found")
				case !here && one.Path == "/api/v1/jobs/" && one.Method == http.MethodPost:
					a.refused(http.StatusNotFound, "device_not_found")
				case strings.HasSuffix(one.Path, "/cancel/"):
					a.refused(http.StatusConflict, "job_terminal")
				case strings.HasSuffix(one.Path, "/events/") && a.Status == http.StatusNoContent:
				case one.Path == "/api/v1/jobs/" && a.Status == http.StatusCreated:
				case !here && aboutSite:
					a.refused(http.StatusNotFound, "site_not_found")
				case strings.HasSuffix(one.Path, "/allow-login/"): // it has no BMCs
					a.refused(http.StatusNotFound, "source_not_found")
				case strings.HasSuffix(one.Path, "/confirm/"):
					a.refused(http.StatusConflict, "finding_changed")
				case a.Status != http.StatusOK:
					t.Errorf("%s %s with %s for %s: %d %s", one.Method, one.Path, scope, whose, a.Status, a.Body)
				case !here && (strings.Contains(string(a.Body), "gpu-1") || strings.Contains(string(a.Body), `"lab"`)):
					t.Errorf("%s %s with %s for %s tells of a site outside: %s", one.Method, one.Path, scope, whose, a.Body)
				}
			}
		}
	}
}

// checkOperation is what the matrix wants of rules and of operations on racks: what
// becomes of a rule depends on what was asked before.
func (w *world) checkOperation(one httpapi.RouteInfo, scope string, here, limited bool, a answer) {
	w.t.Helper()
	ofRack := strings.Contains(one.Path, "{rack}") || strings.HasSuffix(one.Path, "/plan/") || strings.HasPrefix(one.Path, "/api/v1/operations/") && !strings.Contains(one.Path, "/tasks/")
	switch {
	case scope != one.Scope:
		a.refused(http.StatusForbidden, "scope_missing")
	case !here && ofRack:
		a.refused(http.StatusNotFound, "rack_not_found")
	case !here && strings.Contains(one.Path, "{task}"):
		a.refused(http.StatusNotFound, "task_not_found")
	case limited && strings.HasSuffix(one.Path, "/set-default/"):
		a.refused(http.StatusForbidden, "site_limited")
	case a.Status >= 500 || a.Status == http.StatusForbidden || a.Status == http.StatusUnauthorized || a.Status == http.StatusBadRequest:
		w.t.Errorf("%s %s with %s: %d %s", one.Method, one.Path, scope, a.Status, a.Body)
	case !here && (strings.Contains(string(a.Body), "gpu-1") || strings.Contains(string(a.Body), `"racks":[1]`)):
		w.t.Errorf("%s %s with %s tells of a site outside: %s", one.Method, one.Path, scope, a.Body)
	}
}

// checkPage is what the matrix wants of a page.
func (w *world) checkPage(one httpapi.RouteInfo, scope string, here bool, a answer) {
	w.t.Helper()
	want := http.StatusOK
	switch {
	case strings.HasPrefix(one.Path, "/ui/login/"):
		want = http.StatusUnauthorized // it takes no bearer
	case !one.Public && scope != one.Scope, one.Method == http.MethodPost: // no form of the session
		want = http.StatusForbidden
	case !here && slices.ContainsFunc([]string{"{id}", "{job}", "{task}", "{rack}"}, func(what string) bool { return strings.Contains(one.Path, what) }):
		want = http.StatusNotFound
	case strings.Contains(one.Path, "{rule}") && a.Status == http.StatusNotFound: // it depends on what was asked before
		want = http.StatusNotFound
	case strings.HasSuffix(one.Path, "/events/"):
		want = http.StatusNoContent // it has ended
	}
	if a.Status != want || !here && (strings.Contains(string(a.Body), "gpu-1") || strings.Contains(string(a.Body), "lab<")) {
		w.t.Errorf("%s %s with %s: %d, want %d: %s", one.Method, one.Path, scope, a.Status, want, a.Body)
	}
}

func TestNobodyIsAnsweredWithoutAToken(t *testing.T) {
	w := newWorld(t)
	device := w.bear(w.lab, "gpu-1", node(ready))
	_, wellFormed := "", "muster_"+base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	for _, one := range w.server.Registered() {
		if one.Public {
			continue
		}
		path := pathOf(one.Path, device)
		if strings.HasPrefix(path, "/ui/") && !strings.HasSuffix(path, "/events/") {
			if a := w.ask("", one.Method, path, nil); a.Status != http.StatusUnauthorized || !strings.Contains(string(a.Body), `type="password"`) || strings.Contains(string(a.Body), "gpu-1") {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
			continue
		}
		a := w.ask("", one.Method, path, w.bodyOf(one, device))
		a.refused(http.StatusUnauthorized, "unauthenticated")
		if !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: no challenge", path)
		}
		for _, token := range []string{wellFormed, "muster_short", "x", wellFormed + "="} {
			w.ask(token, one.Method, path, w.bodyOf(one, device)).refused(http.StatusUnauthorized, "token_invalid")
		}
	}
}

func TestTokensEnd(t *testing.T) {
	w := newWorld(t)
	token := w.makeToken(store.Token{Scopes: httpapi.Scopes(), ExpiresAt: w.clock().Add(time.Minute)})
	if a := w.ask(token, http.MethodGet, "/api/v1/sites/", nil); a.Status != http.StatusOK {
		t.Fatalf("answered %d", a.Status)
	}
	w.pass(time.Minute)
	w.ask(token, http.MethodGet, "/api/v1/sites/", nil).refused(http.StatusUnauthorized, "token_expired")
	w.exec("update tokens set revoked_at = now() where expires_at is null")
	w.ask(w.token, http.MethodGet, "/api/v1/sites/", nil).refused(http.StatusUnauthorized, "token_revoked")
}

func TestTokensAreLongAndUnlike(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 100 {
		plain, hash := httpapi.NewToken()
		if len(plain) != len("muster_")+43 || len(hash) != 32 || seen[plain] || strings.Contains(plain, string(hash)) {
			t.Fatalf("token %q with a hash of %d bytes", plain, len(hash))
		}
		seen[plain] = true
	}
}

func TestACallerIsSlowedDown(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.Rate = httpapi.Rate{PerSecond: 0.001, Burst: 3} })
	other := w.makeToken(store.Token{Scopes: httpapi.Scopes()})
	for range 3 {
		w.get("/api/v1/sites/")
	}
	a := w.ask(w.token, http.MethodGet, "/api/v1/sites/", nil)
	a.refused(http.StatusTooManyRequests, "rate_limited")
	if a.Header.Get("Retry-After") != "1000" {
		t.Errorf("Retry-After %q, want 1000", a.Header.Get("Retry-After"))
	}
	if a := w.ask(other, http.MethodGet, "/api/v1/sites/", nil); a.Status != http.StatusOK {
		t.Errorf("another caller is answered %d", a.Status)
	}
	for range 3 {
		w.ask("guess", http.MethodGet, "/api/v1/sites/", nil).refused(http.StatusUnauthorized, "token_invalid")
	}
	w.ask("guess", http.MethodGet, "/api/v1/sites/", nil).refused(http.StatusTooManyRequests, "rate_limited")
}

func from(remote string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = remote + ":4711" }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestWithoutAuthenticationOnlyThisMachineIsAnswered(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.Auth = nil })
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for name, try := range map[string]struct {
		want   int
		change []func(*http.Request)
	}{
		"from here":                     {http.StatusOK, []func(*http.Request){from("127.0.0.1"), host("127.0.0.1:8480")}},
		"from here by name":             {http.StatusOK, []func(*http.Request){from("127.0.0.1"), host("localhost:8480")}},
		"from here by IPv6":             {http.StatusOK, []func(*http.Request){from("[::1]"), host("[::1]:8480")}},
		"from elsewhere":                {http.StatusUnauthorized, []func(*http.Request){from("10.0.0.1"), host("localhost")}},
		"through a proxy here":          {http.StatusUnauthorized, []func(*http.Request){from("127.0.0.1"), host("localhost"), header("X-Forwarded-For", "10.0.0.1")}},
		"from a page in a browser here": {http.StatusUnauthorized, []func(*http.Request){from("127.0.0.1"), host("evil.example")}},
	} {
		if a := w.ask("", http.MethodGet, "/api/v1/sites/", nil, try.change...); a.Status != try.want {
			t.Errorf("%s: %d, want %d", name, a.Status, try.want)
		}
	}
}

func TestAnOpenServerListensOnLoopbackOnly(t *testing.T) {
	t.Parallel()
	for listen, open := range map[string]bool{
		"127.0.0.1:8480": true, "localhost:8480": true, "[::1]:8480": true, ":8480": false, "0.0.0.0:8480": false, "10.0.0.1:80": false, "[::]:80": false, "nonsense": false,
	} {
		if err := httpapi.CheckExposure(listen, false); (err == nil) != open {
			t.Errorf("%s without authentication: %v", listen, err)
		}
		if err := httpapi.CheckExposure(listen, true); err != nil {
			t.Errorf("%s with authentication: %v", listen, err)
		}
	}
}

func TestMetricsAreForThisMachineAndWhoMayReadThem(t *testing.T) {
	w := newWorld(t)
	device := w.bear(w.lab, "gpu-1", node(ready))
	w.get(fmt.Sprintf("/api/v1/devices/%d/", device))
	w.ask("", http.MethodGet, "/api/v1/none-such/", nil)
	w.ask("", http.MethodGet, "/metrics", nil).refused(http.StatusUnauthorized, "unauthenticated")
	w.ask("", http.MethodGet, "/metrics", nil, from("127.0.0.1"), header("X-Forwarded-For", "10.0.0.1")).refused(http.StatusUnauthorized, "unauthenticated")
	for name, a := range map[string]answer{
		"from here":    w.ask("", http.MethodGet, "/metrics", nil, from("127.0.0.1")),
		"with a token": w.ask(w.makeToken(store.Token{Scopes: []string{httpapi.MetricsRead}}), http.MethodGet, "/metrics", nil),
	} {
		text := string(a.Body)
		if a.Status != http.StatusOK || !strings.Contains(text, `muster_http_request_seconds_count{class="2xx",method="GET",route="/api/v1/devices/{id}/"}`) || strings.Contains(text, "none-such") {
			t.Errorf("%s: %d %s", name, a.Status, text)
		}
	}
}
