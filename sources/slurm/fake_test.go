package slurm

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"
)

// fake is a small cluster behind slurmrestd's wire forms of one generation, as
// the recordings under testdata show them.
type fake struct {
	generation int // 38 (22.05), 42 (24.11), 45 (26.05)

	mu       sync.Mutex
	versions []string
	nodes    map[string]*fakeNode
	tokens   map[string]bool
	down     bool
	writes   []string                             // method, node and body of each write
	instead  func(http.ResponseWriter, bool) bool // answers a request (write?) itself when true
	after    func(http.ResponseWriter)            // once a node was deleted or created, before the answer
	before   func(f *fake, write bool)            // happens under the lock before a request is served
	now      int64
}

type fakeNode struct {
	states         []string // base first
	reason, setBy  string
	changed        int64
	extra, comment string
	busy           int64
	silent         bool
}

func newFake(generation, count int) *fake {
	f := &fake{generation: generation, nodes: map[string]*fakeNode{}, tokens: map[string]bool{"good": true}, now: time.Now().Unix()}
	f.versions = map[int][]string{
		38: {"v0.0.36", "v0.0.37", "v0.0.38"}, 42: {"v0.0.40", "v0.0.41", "v0.0.42"},
		45: {"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"},
	}[generation]
	for i := 1; i <= count; i++ {
		f.nodes[fmt.Sprintf("n%04d", i)] = &fakeNode{states: []string{"IDLE"}, busy: f.now - 3600}
	}
	return f
}

func (n *fakeNode) has(token string) bool {
	for _, s := range n.states {
		if s == token {
			return true
		}
	}
	return false
}

func (n *fakeNode) without(token string) {
	var kept []string
	for _, s := range n.states {
		if s != token {
			kept = append(kept, s)
		}
	}
	n.states = kept
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	write := r.Method != "GET"
	if f.before != nil {
		f.before(f, write)
	}
	if f.instead != nil && f.instead(w, write) {
		return
	}
	token := r.Header.Get("X-SLURM-USER-TOKEN")
	if token == "" {
		plain(w, 401, "Authentication failure")
		return
	}
	parts := strings.Split(strings.Trim(r.URL.EscapedPath(), "/"), "/")
	if len(parts) < 3 || parts[0] != "slurm" || !f.serves(parts[1]) {
		plain(w, 404, "Unable find requested URL. Please view /openapi/v3 for API reference.")
		return
	}
	switch bad := !f.tokens[token]; {
	case parts[2] == "ping" && f.generation > 38:
		f.answer(w, 200, map[string]any{"pings": []any{map[string]any{"hostname": "ctl", "responding": !f.down && !bad}}})
	case f.generation == 38 && (bad || f.down):
		f.fail(w, 500, -1, "Unspecified error", map[string]any{"nodes": []any{}})
	case bad:
		f.fail(w, 511, 1007, "Protocol authentication error", nil)
	case f.down:
		f.fail(w, 502, 1800, "Unable to contact slurm controller (connect failure)", nil)
	case parts[2] == "ping":
		f.answer(w, 200, map[string]any{"pings": []any{map[string]any{"hostname": "ctl", "ping": "UP"}}})
	case parts[2] == "nodes":
		var names []string
		for name := range f.nodes {
			names = append(names, name)
		}
		sort.Strings(names)
		all := []any{}
		for _, name := range names {
			all = append(all, f.wire(name))
		}
		f.answer(w, 200, map[string]any{"nodes": all})
	case parts[2] == "node" && len(parts) == 4 && !write:
		f.get(w, parts[3])
	case parts[2] == "node" && len(parts) == 4 && f.generation > 38 && r.Method == "POST":
		body, _ := io.ReadAll(r.Body)
		f.writes = append(f.writes, parts[3]+" "+string(body))
		f.post(w, parts[3], body)
	case parts[2] == "node" && len(parts) == 4 && f.generation > 38 && r.Method == "DELETE":
		f.writes = append(f.writes, "DELETE "+parts[3])
		f.delete(w, parts[3])
	case parts[2] == "new" && len(parts) == 4 && f.generation > 42 && r.Method == "POST":
		body, _ := io.ReadAll(r.Body)
		f.writes = append(f.writes, "NEW "+string(body))
		f.create(w, body)
	default:
		plain(w, 405, "Requested REST method is not defined at URL. Please view /openapi/v3 for API reference.")
	}
}

func (f *fake) serves(version string) bool {
	for _, v := range f.versions {
		if v == version {
			return true
		}
	}
	return false
}

func (f *fake) get(w http.ResponseWriter, name string) {
	switch {
	case f.nodes[name] != nil:
		f.answer(w, 200, map[string]any{"nodes": []any{f.wire(name)}})
		if n := f.nodes[name]; !n.silent { // was asked
			n.without("NOT_RESPONDING")
		}
	case f.generation == 38:
		f.fail(w, 500, 2018, "Invalid node name specified", map[string]any{"nodes": []any{}})
	default:
		f.fail(w, 200, 0, "No error", nil)
	}
}

// refuse is the status of a refused write.
func (f *fake) refuse() int {
	if f.generation < 45 {
		return 500
	}
	return 422
}

func (f *fake) post(w http.ResponseWriter, name string, body []byte) {
	n := f.nodes[name]
	var u update
	switch {
	case json.Unmarshal(body, &u) != nil:
		plain(w, 400, "Unable to parse query.")
		return
	case n == nil:
		f.fail(w, f.refuse(), 2018, "Invalid node name specified", nil)
		return
	}
	if u.Extra != nil {
		n.extra = *u.Extra
	}
	if u.Comment != nil {
		n.comment = *u.Comment
	}
	if u.Reason != "" {
		n.reason, n.changed, n.setBy = u.Reason, f.now, "root"
	}
	for _, state := range u.State {
		switch {
		case state == "DRAIN":
			f.drain(n)
		case (state == "RESUME" || state == "UNDRAIN") && n.has("DRAIN"), state == "RESUME" && n.has("DOWN"):
			f.resume(n, state)
		case f.generation == 42:
			f.fail(w, 500, 2028, "Invalid node state specified", nil)
			return
		default:
			f.fail(w, 422, 2180, "Invalid node state transition", nil)
			return
		}
	}
	f.answer(w, 200, map[string]any{"warnings": []any{}})
}

// delete takes a dynamic node away that is not at work.
func (f *fake) delete(w http.ResponseWriter, name string) {
	n := f.nodes[name]
	switch {
	case n == nil:
		f.fail(w, f.refuse(), 2018, "Invalid node name specified", nil)
		return
	case !n.has("DYNAMIC_NORM") || n.has("ALLOCATED"):
		f.fail(w, f.refuse(), 2028, "Invalid node state specified", nil)
		return
	}
	delete(f.nodes, name)
	if f.after != nil {
		f.after(w)
	}
	f.answer(w, 200, nil)
}

func (f *fake) create(w http.ResponseWriter, body []byte) {
	var in struct {
		Conf string `json:"node_conf"`
	}
	_ = json.Unmarshal(body, &in)
	first, _, _ := strings.Cut(in.Conf, " ")
	name := strings.TrimPrefix(first, "NodeName=")
	if f.nodes[name] != nil {
		f.fail(w, f.refuse(), 2168, "Node already exists in the node table", nil)
		return
	}
	f.dynamic(name)
	if f.after != nil {
		f.after(w)
	}
	f.answer(w, 200, nil)
}

func (f *fake) dynamic(name string) {
	f.nodes[name] = &fakeNode{states: []string{"IDLE", "CLOUD", "POWERED_DOWN", "DYNAMIC_NORM"}, busy: f.now - 3600}
}

func (f *fake) drain(n *fakeNode) {
	if !n.has("DRAIN") {
		n.states = append(n.states, "DRAIN")
	}
}

func (f *fake) resume(n *fakeNode, how string) {
	n.without("DRAIN")
	if how == "RESUME" && n.has("DOWN") {
		n.states[0] = "IDLE"
	}
	if !n.has("NOT_RESPONDING") { // until it is asked
		n.states = append(n.states, "NOT_RESPONDING")
	}
	if n.states[0] == "IDLE" {
		n.busy = f.now
	}
	if f.generation != 42 && n.states[0] != "DOWN" { // 24.11 keeps the old reason
		n.reason, n.changed, n.setBy = "", 0, ""
	}
}

// silence has slurmctld give up a node, answers has its slurmd start anew.
func (f *fake) silence(n *fakeNode) {
	n.without("NOT_RESPONDING")
	n.states[0], n.silent = "DOWN", true
	n.states = append(n.states, "NOT_RESPONDING")
	switch {
	case n.reason == "":
		n.reason = "Not responding"
	case !strings.Contains(n.reason, "Not responding"):
		n.reason += " : Not responding"
	}
	n.changed, n.setBy = f.now, "slurm"
}

func (f *fake) answers(n *fakeNode) {
	n.without("NOT_RESPONDING")
	n.silent = false
	if strings.HasPrefix(n.reason, "Not responding") {
		n.states[0], n.busy = "IDLE", f.now
	}
}

// wire writes a node as the generation does.
func (f *fake) wire(name string) map[string]any {
	n := f.nodes[name]
	out := map[string]any{"name": name, "reason": n.reason, "reason_set_by_user": n.setBy, "comment": n.comment, "extra": n.extra, "partitions": []string{"main"}, "last_busy": n.busy}
	if f.generation == 38 {
		flags := append([]string{}, n.states[1:]...)
		out["state"], out["state_flags"], out["reason_changed_at"] = strings.ToLower(n.states[0]), flags, n.changed
		if n.setBy == "" {
			out["reason_set_by_user"] = nil
		}
		return out
	}
	out["state"] = n.states
	out["reason_changed_at"] = map[string]any{"set": true, "infinite": false, "number": n.changed}
	return out
}

func (f *fake) answer(w http.ResponseWriter, status int, body map[string]any) {
	if body == nil {
		body = map[string]any{}
	}
	body["meta"] = map[string]any{"slurm": map[string]any{"release": fmt.Sprint(f.generation)}}
	if body["errors"] == nil {
		body["errors"] = []any{}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fake) fail(w http.ResponseWriter, status, number int, text string, body map[string]any) {
	if body == nil {
		body = map[string]any{}
	}
	one := map[string]any{"error": text, "error_number": number, "description": "Failure"}
	if f.generation == 38 {
		one = map[string]any{"error": text, "errno": number}
	}
	body["errors"] = []any{one}
	f.answer(w, status, body)
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
