package placement

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fake is a Placement in memory, as far as the adapter and the suite's admin
// speak to one.
type fake struct {
	*httptest.Server

	mu        sync.Mutex
	order     []string
	providers map[string]*fakeProvider
	asked     []string // "GET /resource_providers", …
	// intercept answers in place of the fake if it returns true.
	intercept func(w http.ResponseWriter, r *http.Request) bool
	token     string
}

type fakeProvider struct {
	name       string
	parent     string
	generation int
	traits     []string
	held       map[string]any // consumer → resources
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{providers: map[string]*fakeProvider{}, token: "admin"}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

// add puts a provider in; consumers hold something of it.
func (f *fake) add(uuid string, consumers ...string) *fakeProvider {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &fakeProvider{name: uuid, generation: 1, held: map[string]any{}, traits: []string{}}
	for _, c := range consumers {
		p.held[c] = map[string]any{"resources": map[string]int{"CUSTOM_GPU": 1}}
	}
	f.providers[uuid] = p
	f.order = append(f.order, uuid)
	return p
}

// requests gives what was asked for since the last call.
func (f *fake) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	reply(w, status, map[string]any{"errors": []any{map[string]any{
		"status": status, "title": http.StatusText(status), "code": code, "detail": "What the status says.\n\n " + detail + "  ", "request_id": "req-1",
	}}})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.Path)
	intercept, token := f.intercept, f.token
	f.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	if r.Header.Get("X-Auth-Token") != token {
		reply(w, 401, map[string]any{"message": "This server could not verify that you are authorized.<br /><br />\n", "code": "401 Unauthorized", "title": "Unauthorized"})
		return
	}
	if r.Header.Get("OpenStack-API-Version") != "placement 1.28" {
		refuse(w, 406, "", "Invalid microversion")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case path[0] == "resource_providers" && len(path) == 1 && r.Method == http.MethodGet:
		all := []any{}
		for _, uuid := range f.order {
			all = append(all, f.shown(uuid))
		}
		reply(w, 200, map[string]any{"resource_providers": all})
	case path[0] == "resource_providers" && len(path) == 1:
		uuid := body["uuid"].(string)
		p := &fakeProvider{name: body["name"].(string), held: map[string]any{}, traits: []string{}}
		if parent, nested := body["parent_provider_uuid"].(string); nested {
			p.parent = parent
		}
		f.providers[uuid] = p
		f.order = append(f.order, uuid)
		reply(w, 200, f.shown(uuid))
	case path[0] == "resource_providers":
		f.provider(w, r, path[1], strings.Join(path[2:], "/"), body)
	case path[0] == "allocations" && len(path) == 2:
		f.consumer(w, r, path[1], body)
	case path[0] == "resource_classes" || path[0] == "traits":
		reply(w, 204, nil)
	default:
		refuse(w, 404, "", "")
	}
}

func (f *fake) shown(uuid string) map[string]any {
	p := f.providers[uuid]
	shown := map[string]any{"uuid": uuid, "name": p.name, "generation": p.generation, "parent_provider_uuid": nil, "root_provider_uuid": uuid}
	if p.parent != "" {
		shown["parent_provider_uuid"], shown["root_provider_uuid"] = p.parent, p.parent
	}
	return shown
}

func (f *fake) provider(w http.ResponseWriter, r *http.Request, uuid, rest string, body map[string]any) {
	p := f.providers[uuid]
	switch {
	case p == nil:
		refuse(w, 404, "placement.undefined_code", "No resource provider with uuid "+uuid+" found")
	case r.Method == http.MethodDelete && len(p.held) > 0:
		refuse(w, 409, "placement.resource_provider.inuse", "Unable to delete resource provider "+uuid+": Resource provider has allocations.")
	case r.Method == http.MethodDelete:
		delete(f.providers, uuid)
		f.order = slices.DeleteFunc(f.order, func(u string) bool { return u == uuid })
		reply(w, 204, nil)
	case r.Method == http.MethodPut:
		if traits, ok := body["traits"].([]any); ok {
			p.traits = nil
			for _, t := range traits {
				p.traits = append(p.traits, t.(string))
			}
		}
		p.generation++
		reply(w, 200, map[string]any{"resource_provider_generation": p.generation})
	case rest == "":
		reply(w, 200, f.shown(uuid))
	case rest == "traits":
		reply(w, 200, map[string]any{"traits": p.traits, "resource_provider_generation": p.generation})
	default:
		reply(w, 200, map[string]any{"allocations": p.held, "resource_provider_generation": p.generation})
	}
}

// consumer keeps what a real Placement does: an allocation raises the generation
// of its providers, its end does not.
func (f *fake) consumer(w http.ResponseWriter, r *http.Request, consumer string, body map[string]any) {
	held := map[string]any{}
	for uuid, p := range f.providers {
		if resources, ok := p.held[consumer]; ok {
			held[uuid] = resources
		}
	}
	switch {
	case r.Method == http.MethodGet:
		reply(w, 200, map[string]any{"allocations": held})
	case r.Method == http.MethodPut:
		for uuid, resources := range body["allocations"].(map[string]any) {
			f.providers[uuid].held[consumer] = resources
			f.providers[uuid].generation++
		}
		reply(w, 204, nil)
	case len(held) == 0:
		refuse(w, 404, "placement.undefined_code", fmt.Sprintf("No allocations for consumer '%s'", consumer))
	default:
		for uuid := range held {
			delete(f.providers[uuid].held, consumer)
		}
		reply(w, 204, nil)
	}
}
