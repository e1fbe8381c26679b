package httpapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

// login begins a session and gives its cookie.
func (w *world) login(token, next string) (answer, string) {
	w.t.Helper()
	form := url.Values{"token": {token}, "next": {next}}.Encode()
	a := w.ask("", http.MethodPost, "/ui/login/", form, header("Content-Type", "application/x-www-form-urlencoded"))
	cookie, _, _ := strings.Cut(a.Header.Get("Set-Cookie"), ";")
	return a, cookie
}

// text gives what a page says, and fails on what its policy forbids.
func (a answer) text() string {
	a.t.Helper()
	root, err := html.Parse(strings.NewReader(string(a.Body)))
	must(a.t, err)
	var b strings.Builder
	for n := range root.Descendants() {
		switch {
		case n.Type == html.TextNode:
			b.WriteString(n.Data + " ")
		case n.Type == html.ElementNode && (n.Data == "script" && n.FirstChild != nil || n.Data == "style" || n.Data == "iframe"):
			a.t.Errorf("a page holds <%s>", n.Data)
		}
		for _, attribute := range n.Attr {
			if attribute.Key == "style" || strings.HasPrefix(attribute.Key, "on") || strings.Contains(attribute.Val, "//") {
				a.t.Errorf("a page holds %s=%q", attribute.Key, attribute.Val)
			}
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestASessionShowsThePages(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-<b>1</b>", node(ready, maintenance, func(i *facts.Ironic) { i.MaintenanceReason = facts.TextOf("<script>alert(1)</script>") }))
	device := fmt.Sprintf("/ui/devices/%d/", id)
	a, cookie := w.login(w.token, device)
	if a.Status != http.StatusSeeOther || a.Header.Get("Location") != device {
		t.Fatalf("answered %d to %q: %s", a.Status, a.Header.Get("Location"), a.Body)
	}
	if full := a.Header.Get("Set-Cookie"); !strings.Contains(full, "HttpOnly") || !strings.Contains(full, "SameSite=Strict") || !strings.Contains(full, "Path=/ui/") {
		t.Errorf("cookie %q", full)
	}
	for path, want := range map[string][]string{
		"/ui/": {"1 devices", "lab", "quarantine"},
		"/ui/devices?operational_status=quarantine": {"gpu-<b>1</b>", "maintenance"},
		"/ui/devices/?site=annex":                   {"No device fits."},
		device:                                      {"gpu-<b>1</b>", "quarantine", "decided by Maintenance True", "▶ maintenance", "provision-failed", "conditions.ProvisionFailed is False", "policies/status/operational.cue:", "birth", "<script>alert(1)</script>"},
	} {
		a := w.ask("", http.MethodGet, path, nil, header("Cookie", cookie))
		text := a.text()
		for _, part := range want {
			if a.Status != http.StatusOK || !strings.Contains(text, part) {
				t.Errorf("%s: %d, no %q in %s", path, a.Status, part, text)
			}
		}
		if policy := a.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
	}
	w.ask("", http.MethodGet, "/api/v1/devices/", nil, header("Cookie", cookie)).refused(http.StatusUnauthorized, "unauthenticated")
	if a := w.ask("", http.MethodGet, "/ui/devices/?operational_status=x", nil, header("Cookie", cookie)); a.Status != http.StatusBadRequest || !strings.Contains(a.text(), "operational_status") {
		t.Errorf("answered %d %s", a.Status, a.Body)
	}
}

func TestASessionLeadsNowhereElse(t *testing.T) {
	w := newWorld(t)
	for _, next := range []string{"https://evil.example/", "//evil.example/ui/", "/ui/login/?token=x", "", "/uix"} {
		if a, _ := w.login(w.token, next); a.Status != http.StatusSeeOther || a.Header.Get("Location") != "/ui/" {
			t.Errorf("%q leads to %q", next, a.Header.Get("Location"))
		}
	}
	a := w.ask("", http.MethodGet, "/ui/login?token="+w.token, nil)
	if a.Status != http.StatusSeeOther || a.Header.Get("Location") != "/ui/" || strings.Contains(string(a.Body), w.token) || strings.Contains(w.log.String(), w.token) {
		t.Errorf("a login link is answered %d %s", a.Status, a.Body)
	}
	if a, cookie := w.login("muster_wrong", "/ui/"); a.Status != http.StatusUnauthorized || cookie != "" || strings.Contains(string(a.Body), "muster_wrong") {
		t.Errorf("a wrong token is answered %d with %q", a.Status, cookie)
	}
	if a := w.ask("", http.MethodGet, "/", nil, header("Accept", "text/html,*/*")); a.Header.Get("Location") != "/ui/" {
		t.Errorf("a browser is sent to %q", a.Header.Get("Location"))
	}
	if a := w.ask("", http.MethodGet, "/ui/style.css", nil); a.Status != http.StatusOK || !strings.Contains(string(a.Body), "prefers-color-scheme: dark") {
		t.Errorf("the style is answered %d", a.Status)
	}
}

func TestPagesShowWhatMayBeDoneAndWhatWas(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready, maintenance))
	job := w.submit("verify_connectivity", nil, id)
	_, cookie := w.login(w.token, "/ui/")
	device := fmt.Sprintf("/ui/devices/%d/", id)
	for path, want := range map[string][]string{
		device:                           {"Workflows", "verify_connectivity ✓ it may", "✗ enrollment_proof_missing", "enrollment.proof is missing", "policies/eligibility/move_to_test_cluster.cue:", "frontend_vrf_flip judged without direction", "✗ workflow_conflict : job/1 (verify_connectivity) holds the device"},
		"/ui/jobs/":                      {"verify_connectivity", "pending", "1 waiting", "its turn"},
		"/ui/jobs/?open=false":           {"No job fits."},
		fmt.Sprintf("/ui/jobs/%d/", job): {"pending", "gpu-1", "waiting", "admitted by policy"},
	} {
		a := w.ask("", http.MethodGet, path, nil, header("Cookie", cookie))
		text := a.text()
		for _, part := range want {
			if a.Status != http.StatusOK || !strings.Contains(text, part) {
				t.Errorf("%s: %d, no %q in %s", path, a.Status, part, text)
			}
		}
	}
	seesDevices, cookieOf := w.makeToken(store.Token{Scopes: []string{httpapi.DeviceRead}}), ""
	_, cookieOf = w.login(seesDevices, "/ui/")
	if text := w.ask("", http.MethodGet, device, nil, header("Cookie", cookieOf)).text(); strings.Contains(text, "Workflows") {
		t.Errorf("who may not see jobs is shown %s", text)
	}
	w.ended(job)
	if a := w.ask("", http.MethodGet, fmt.Sprintf("/ui/jobs/%d/events/", job), nil, header("Cookie", cookie)); a.Status != http.StatusNoContent {
		t.Errorf("a session that follows a job that has ended is answered %d", a.Status)
	}
	if a := w.ask("", http.MethodGet, "/ui/live.js", nil); a.Status != http.StatusOK || !strings.Contains(string(a.Body), "EventSource") {
		t.Errorf("the script is answered %d", a.Status)
	}
}
