package httpapi_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoliciesAreShownAsReviewed(t *testing.T) {
	w := newWorld(t)
	var names []string
	for _, family := range w.get("/api/v1/policies/")["families"].([]any) {
		names = append(names, family.(map[string]any)["family"].(string))
	}
	for _, want := range []string{"conditions", "eligibility", "inventory", "limits", "status"} {
		if !slices.Contains(names, want) {
			t.Errorf("no family %s in %v", want, names)
		}
	}
	for _, name := range names {
		path := "/api/v1/policies/" + name + "/"
		family := w.get(path)
		if name == "status" {
			family = family["family"].(map[string]any)
		}
		texts := map[string][]string{}
		for _, file := range family["files"].([]any) {
			f := file.(map[string]any)
			texts[f["path"].(string)] = strings.Split(f["text"].(string), "\n")
		}
		for _, ladder := range family["ladders"].([]any) {
			l := ladder.(map[string]any)
			for _, rung := range l["rungs"].([]any) {
				r := rung.(map[string]any)
				if line := at(t, texts, r["pos"].(string)); !strings.Contains(line, `"`+r["name"].(string)+`"`) {
					t.Errorf("rung %v of %v is said to stand at %v: %s", r["name"], l["name"], r["pos"], line)
				}
			}
		}
	}
	w.ask(w.token, http.MethodGet, "/api/v1/policies/nonsense/", nil).refused(http.StatusNotFound, "family_not_found")
}

// at gives the line of a text that a place names.
func at(t *testing.T, texts map[string][]string, pos string) string {
	t.Helper()
	path, number, _ := strings.Cut(pos, ":")
	line := 0
	for _, digit := range number {
		line = line*10 + int(digit-'0')
	}
	if line < 1 || line > len(texts[path]) {
		t.Fatalf("%s is no place", pos)
	}
	return texts[path][line-1]
}

func TestTheCatalogueOfConditionsIsShown(t *testing.T) {
	w := newWorld(t)
	v := w.get("/api/v1/policies/conditions/")
	for _, one := range v["condition_types"].([]any) {
		c := one.(map[string]any)
		if c["type"] == "CustodyIntent" && (c["absent"] != "False" || c["durable"] != true || c["condition_of"] != "none") {
			t.Errorf("CustodyIntent is %v", c)
		}
		if c["type"] == "Enrolled" && (c["hold_limit_seconds"] != 86400.0 || !cmp.Equal(c["sources"], any([]any{"ironic"}))) {
			t.Errorf("Enrolled is %v", c)
		}
	}
	if len(v["condition_types"].([]any)) < 20 || len(v["writers"].([]any)) < 4 {
		t.Errorf("%d types, %d writers", len(v["condition_types"].([]any)), len(v["writers"].([]any)))
	}
}

func TestAWhatIfIsAnsweredByThePolicy(t *testing.T) {
	w := newWorld(t)
	evaluate := func(body fields) map[string]any {
		t.Helper()
		a := w.post(w.token, "/policies/evaluate/", body)
		if a.Status != http.StatusOK {
			t.Fatalf("answered %d %s", a.Status, a.Body)
		}
		return a.json()["operational"].(map[string]any)
	}
	facts := fields{
		"device": fields{"device_class": "gpu_compute", "inventory_status": "active"},
		"ironic": fields{"listed": true, "provision_state": "available", "maintenance": false, "instance_bound": false, "our_mark": false, "lessee": "", "traits": []string{"CUSTOM_READY"}},
	}
	conditions := fields{
		"ProvisionFailed": "False", "Maintenance": "False", "Enrolled": "True", "CustomerReady": "True", "InstanceAllocated": "False",
		"MaintenancePool": "False", "ProvisionAvailable": "True", "ValidationAllocated": "False",
	}
	maintained := maps.Clone(conditions)
	maintained["Maintenance"] = "True"
	for name, try := range map[string]struct {
		body fields
		want string
	}{
		"conditions alone":           {fields{"conditions": conditions}, "available"},
		"another condition":          {fields{"conditions": maintained}, "quarantine"},
		"facts of a site":            {fields{"site": "lab", "facts": facts}, "available"},
		"a condition over the facts": {fields{"site": "lab", "facts": facts, "conditions": fields{"Maintenance": "True"}}, "quarantine"},
		"stale and held":             {fields{"conditions": conditions, "stale": []string{"CustomerReady"}, "operational_status": "quarantine"}, "quarantine"},
		"stale and kept":             {fields{"conditions": conditions, "stale": []string{"CustomerReady"}, "operational_status": "available"}, "available"},
		"nothing":                    {fields{}, "unknown"},
	} {
		if got := evaluate(try.body); got["outcome"] != try.want {
			t.Errorf("%s: %v by %v, want %s", name, got["outcome"], got["rung"], try.want)
		}
	}
}

func TestWhatIsMisspeltIsNotJudged(t *testing.T) {
	w := newWorld(t)
	faults := w.post(w.token, "/policies/evaluate/", fields{
		"facts":      fields{"ironic": fields{"provision_stat": "active"}, "slurm": fields{"states": []string{"DRAINED"}}, "redfish": fields{}},
		"conditions": fields{"Maintainance": "True"},
		"stale":      []string{"Enrolled", "Nonsense"},
	}).refused(http.StatusBadRequest, "request_invalid")
	want := []string{"/conditions/Maintainance", "/facts/ironic", "/facts/redfish", "/facts/slurm", "/stale/1"}
	if got := slices.Sorted(maps.Keys(faults)); !slices.Equal(got, want) {
		t.Errorf("told of %v, want %v", faults, want)
	}
	w.post(w.token, "/policies/evaluate/", fields{"site": "moon"}).refused(http.StatusNotFound, "site_not_found")
}
