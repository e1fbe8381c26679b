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

// form is a form of a page.
type form struct {
	action string
	fields url.Values // as they are sent untouched
	names  []string
}

// forms reads the forms of a page, by the workflow that they run or the last part
// of where they go.
func (a answer) forms() map[string]form {
	a.t.Helper()
	root, err := html.Parse(strings.NewReader(string(a.Body)))
	must(a.t, err)
	found := map[string]form{}
	for n := range root.Descendants() {
		if n.Data != "form" {
			continue
		}
		f := form{action: attribute(n, "action"), fields: url.Values{}}
		for in := range n.Descendants() {
			name := attribute(in, "name")
			if name == "" {
				continue
			}
			f.names = append(f.names, name)
			if in.Data == "input" && (attribute(in, "type") != "checkbox" || has(in, "checked")) {
				f.fields.Set(name, attribute(in, "value"))
			}
		}
		parts := strings.Split(strings.Trim(f.action, "/"), "/")
		name := parts[len(parts)-1]
		if slug := f.fields.Get("workflow"); slug != "" {
			name = slug
		}
		found[name] = f
	}
	return found
}

func has(n *html.Node, key string) bool {
	for _, a := range n.Attr {
		if a.Key == key {
			return true
		}
	}
	return false
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// visitor is somebody with a session.
type visitor struct {
	w      *world
	cookie string
}

func (w *world) visit(scopes ...string) visitor {
	w.t.Helper()
	_, cookie := w.login(w.makeToken(store.Token{Scopes: scopes}), "/ui/")
	return visitor{w, cookie}
}

func (v visitor) open(path string) answer {
	v.w.t.Helper()
	return v.w.ask("", http.MethodGet, path, nil, header("Cookie", v.cookie))
}

// send sends a form with what is changed in it: name, value, name, value.
func (v visitor) send(f form, change ...string) answer {
	v.w.t.Helper()
	fields := url.Values{}
	for name, values := range f.fields {
		fields[name] = values
	}
	for i := 0; i+1 < len(change); i += 2 {
		fields.Set(change[i], change[i+1])
	}
	return v.w.ask("", http.MethodPost, f.action, fields.Encode(), header("Cookie", v.cookie), header("Content-Type", "application/x-www-form-urlencoded"))
}

// says fails unless an answer is a page with a status that says all of some texts.
func (a answer) says(status int, texts ...string) {
	a.t.Helper()
	text := a.text()
	for _, one := range texts {
		if !strings.Contains(text, one) {
			a.t.Errorf("no %q in %s", one, text)
		}
	}
	if a.Status != status {
		a.t.Errorf("answered %d, want %d: %s", a.Status, status, text)
	}
}

var works = []string{httpapi.DeviceRead, httpapi.JobRead, httpapi.JobWrite}

func TestAFormOfADeviceMakesOneJobHoweverOftenItIsSent(t *testing.T) {
	w := newWorld(t)
	device := fmt.Sprintf("/ui/devices/%d/", w.bear(w.lab, "gpu-1", node(ready)))
	v := w.visit(works...)
	run := v.open(device).forms()["verify_connectivity"]
	first := v.send(run, "reason", "a <b>look</b>")
	if first.Status != http.StatusSeeOther || first.Header.Get("Location") != "/ui/jobs/1/" {
		t.Fatalf("answered %d to %q: %s", first.Status, first.Header.Get("Location"), first.Body)
	}
	again := v.send(run, "reason", "a <b>look</b>")
	if again.Status != http.StatusSeeOther || again.Header.Get("Location") != "/ui/jobs/1/" || w.count("select count(*) from jobs") != 1 {
		t.Errorf("sent twice it is answered %d to %q", again.Status, again.Header.Get("Location"))
	}
	v.send(run, "reason", "another").says(http.StatusUnprocessableEntity, "idempotency_key_reused", "job 1")
	v.open("/ui/jobs/1/").says(http.StatusOK, "pending", "gpu-1", "a <b>look</b>")
}

func TestAFormOfAnotherSessionIsNotFollowed(t *testing.T) {
	w := newWorld(t)
	device := fmt.Sprintf("/ui/devices/%d/", w.bear(w.lab, "gpu-1", node(ready)))
	v, other := w.visit(works...), w.visit(works...)
	run, foreign := v.open(device).forms()["verify_connectivity"], other.open(device).forms()["verify_connectivity"]
	if run.fields.Get("token") == foreign.fields.Get("token") || run.fields.Get("token") != v.open("/ui/devices/1/").forms()["verify_connectivity"].fields.Get("token") {
		t.Error("the token of forms is not of the session")
	}
	for name, token := range map[string]string{"of another session": foreign.fields.Get("token"), "none": "", "guessed": "00"} {
		t.Run(name, func(t *testing.T) {
			v.send(run, "token", token).says(http.StatusForbidden, "form_token_invalid", "load the page again")
		})
	}
	stranger := visitor{w, ""}
	if a := stranger.send(run); a.Status != http.StatusUnauthorized || a.forms()["login"].fields.Get("next") != device {
		t.Errorf("who is not logged in is answered %d, to come back to %v", a.Status, a.forms())
	}
	if n := w.count("select count(*) from jobs"); n != 0 {
		t.Errorf("%d jobs were made", n)
	}
	reader := w.visit(httpapi.DeviceRead, httpapi.JobRead)
	if forms := reader.open(device).forms(); len(forms) != 0 {
		t.Errorf("who may not submit is offered %v", forms)
	}
	mine := run
	mine.fields = url.Values{"token": {"x"}, "workflow": {"verify_connectivity"}}
	reader.send(mine).says(http.StatusForbidden, "scope_missing", "job:write")
}

// What the API refuses the page tells, beside the form as it was filled.
func TestAPageTellsWhyAFormIsRefused(t *testing.T) {
	w := newWorld(t)
	device := fmt.Sprintf("/ui/devices/%d/", w.bear(w.lab, "gpu-1", node(ready, leased)))
	v := w.visit(works...)
	forms := v.open(device).forms()
	move, ok := forms["move_to_test_cluster"]
	if !ok || move.fields.Get("p.cordon_only") != "true" || strings.Contains(strings.Join(move.names, " "), "force") {
		t.Fatalf("the form of a move that only cordoning lets be is %+v", move)
	}
	move.fields.Del("p.cordon_only")
	v.send(move).says(http.StatusConflict, "enrollment_proof_missing", "policies/eligibility/move_to_test_cluster.cue:", "gpu-1")
	v.send(move, "p.force_reclaim", "true", "reason", "CHG-1").says(http.StatusForbidden, "scope_missing", "job:force")
	for slug, f := range forms {
		for _, name := range f.names {
			if name == "p.direction" {
				a := v.send(f, "reason", "kept")
				a.says(http.StatusUnprocessableEntity, "parameter_invalid")
				if a.forms()[slug].fields.Get("reason") != "kept" || !strings.Contains(string(a.Body), "<details open>") {
					t.Errorf("%s is not shown as it was filled", slug)
				}
			}
		}
	}
	move.fields.Set("workflow", "make_coffee")
	v.send(move).says(http.StatusNotFound, "workflow_not_found")
	if n := w.count("select count(*) from jobs"); n != 0 {
		t.Errorf("%d jobs were made", n)
	}
}

func TestForceFromThePageNeedsTheScopeAndAReason(t *testing.T) {
	w := newWorld(t)
	w.exec("update sites set spec = spec || '{\"force_reclaim_enabled\": true}' where id = $1", w.lab.ID)
	id := w.bear(w.lab, "gpu-1", node(ready, func(i *facts.Ironic) {
		i.ProvisionState, i.Lessee = facts.ProvisionStateActive, facts.TextOf("c0ffee00000000000000000000000000")
		i.OurMark, i.InstanceBound, i.InstanceUUID = facts.False, facts.True, facts.TextOf("11111111-0000-4000-8000-000000000001")
	}))
	w.exec("update devices set enrollment_validated_ref = infrastructure_ref, enrollment_proof_source = 'api', enrollment_validated_at = now() where id = $1", id)
	device := fmt.Sprintf("/ui/devices/%d/", id)
	v := w.visit(append([]string{httpapi.JobForce}, works...)...)
	move, ok := v.open(device).forms()["move_to_test_cluster"]
	if !ok || !strings.Contains(strings.Join(move.names, " "), "p.force_reclaim") || move.fields.Has("p.force_reclaim") {
		t.Fatalf("who may force is offered %+v: %s", move, v.open(device).text())
	}
	v.open(device).says(http.StatusOK, "✗ instance_present", "Run with cordon_only or force_reclaim")
	move.fields.Del("p.cordon_only")
	v.send(move, "p.force_reclaim", "true").says(http.StatusUnprocessableEntity, "reason_missing")
	if a := v.send(move, "p.force_reclaim", "true", "reason", "CHG-4711"); a.Status != http.StatusSeeOther {
		t.Errorf("answered %d %s", a.Status, a.text())
	}
	if n := w.count("select count(*) from jobs where reason = 'CHG-4711' and parameters @> '{\"force_reclaim\": true}'"); n != 1 {
		t.Errorf("%d jobs force", n)
	}
}

func TestAFormCancelsAJob(t *testing.T) {
	w := newWorld(t)
	job := w.submit("verify_connectivity", nil, w.bear(w.lab, "gpu-1", node(ready)))
	page := fmt.Sprintf("/ui/jobs/%d/", job)
	v := w.visit(works...)
	cancel := v.open(page).forms()["cancel"]
	v.send(cancel, "token", "").says(http.StatusForbidden, "form_token_invalid")
	if forms := w.visit(httpapi.JobRead).open(page).forms(); len(forms) != 0 {
		t.Errorf("who may not cancel is offered %v", forms)
	}
	if a := v.send(cancel, "reason", "wrong rack"); a.Status != http.StatusSeeOther || a.Header.Get("Location") != page {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	a := v.open(page)
	a.says(http.StatusOK, "cancelled", "wrong rack")
	if len(a.forms()) != 0 {
		t.Error("a cancelled job can be cancelled")
	}
	v.send(cancel).says(http.StatusConflict, "job_terminal")
}

// The longest reason that a job may have goes through a form, whatever is in it.
func TestAFormTakesTheLongestReason(t *testing.T) {
	w := newWorld(t)
	job := w.submit("verify_connectivity", nil, w.bear(w.lab, "gpu-1", node(ready)))
	page := fmt.Sprintf("/ui/jobs/%d/", job)
	v := w.visit(works...)
	cancel := v.open(page).forms()["cancel"]
	v.send(cancel, "reason", strings.Repeat("🔧", 6000)).says(http.StatusRequestEntityTooLarge, "body_too_large", "16384 bytes")
	long := strings.Repeat("🔧", 1000)
	if a := v.send(cancel, "reason", long); a.Status != http.StatusSeeOther {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	v.open(page).says(http.StatusOK, "cancelled", long)
}
