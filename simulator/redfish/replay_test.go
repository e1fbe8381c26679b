package redfish

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/capture"
	"github.com/musterhq/muster/simulator/world"
)

// A captured BMC answers what it answered, asks for its login, and lets its
// power be changed by the resets that it declared.
func TestReplay(t *testing.T) {
	t.Parallel()
	tree, err := capture.Read(strings.NewReader(`{
		"/redfish/v1": {"@odata.id": "/redfish/v1", "Systems": {"@odata.id": "/redfish/v1/Systems"}},
		"/redfish/v1/Systems/1": {"status": 200, "headers": {"ETag": "\"7\""}, "body": {"Id": "1", "PowerState": "On", "Actions": {
			"#ComputerSystem.Reset": {"target": "https://10.0.0.5/redfish/v1/Systems/1/Actions/ComputerSystem.Reset", "@Redfish.ActionInfo": "/redfish/v1/Systems/1/ResetActionInfo"}}}},
		"/redfish/v1/Systems/1/ResetActionInfo": {"Id": "ResetActionInfo", "Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff"]}]},
		"/redfish/v1/Systems/2": {"status": 503, "headers": {"Retry-After": "9"}, "body": {"error": {"code": "Base.1.18.ServiceTemporarilyUnavailable"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	clock := &hand{at: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	handler := Replay(tree, ReplayOptions{User: "u", Password: "p", Clock: clock.now})
	ask := func(method, path, body, password string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.SetBasicAuth("u", password)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	const target = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
	for _, c := range []struct {
		name, method, path, body, password string
		status                             int
		holds                              string
	}{
		{"root without a login", "GET", "/redfish/v1/", "", "", 200, "Systems"},
		{"wrong password", "GET", "/redfish/v1/Systems/1", "", "x", 401, "NoValidSession"},
		{"as it answered", "GET", "/redfish/v1/Systems/1/", "", "p", 200, `"PowerState":"On"`},
		{"a failure as it was", "GET", "/redfish/v1/Systems/2", "", "p", 503, "ServiceTemporarilyUnavailable"},
		{"what was not there", "GET", "/redfish/v1/Systems/3", "", "p", 404, "ResourceMissingAtURI"},
		{"no change", "PATCH", "/redfish/v1/Systems/1", "{}", "p", 405, "OperationNotAllowed"},
		{"a reset that is not declared", "POST", target, `{"ResetType":"Nmi"}`, "p", 400, "ActionParameterValueNotInList"},
		{"a reset without a type", "POST", target, `{}`, "p", 400, "ActionParameterMissing"},
		{"a reset", "POST", target, `{"ResetType":"ForceOff"}`, "p", 204, ""},
		{"on the way", "GET", "/redfish/v1/Systems/1", "", "p", 200, `"PowerState":"PoweringOff"`},
	} {
		if w := ask(c.method, c.path, c.body, c.password); w.Code != c.status || !strings.Contains(w.Body.String(), c.holds) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	clock.advance(world.PowerDelay)
	w := ask(http.MethodGet, "/redfish/v1/Systems/1", "", "p")
	if !strings.Contains(w.Body.String(), `"PowerState":"Off"`) || w.Header().Get("ETag") == `"7"` {
		t.Errorf("afterwards it is %s, ETag %s", w.Body, w.Header().Get("ETag"))
	}
}
