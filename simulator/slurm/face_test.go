package slurm

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

func (r *rig) outside() (effects []world.Effect) {
	for _, e := range r.world.Effects(0) {
		if e.Face == "slurm" {
			effects = append(effects, e)
		}
	}
	return effects
}

// A request that changes something is told once, one that is refused or only
// reads not at all.
func TestEachWriteIsOneEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t, 45)
	post := func(path, body string) int { return r.ask("POST", "/slurm/v0.0.45/"+path, body, "root", r.root()).Code }
	for _, ask := range []struct {
		name, path, body string
		status           int
		effects          []string // of all so far, op and subject
	}{
		{"a drain", "node/n0005", `{"state":["DRAIN"],"reason":"x"}`, 200, []string{"update DRAIN n0005"}},
		{"a resume of a node that is not drained", "node/n0006", `{"state":["RESUME"]}`, 422, []string{"update DRAIN n0005"}},
		{"an unknown node", "node/nosuch", `{"state":["DRAIN"]}`, 422, []string{"update DRAIN n0005"}},
		{"a job", "job/submit", `{"script":"sleep 5","job":{"name":"j","current_working_directory":"/tmp","environment":["A=b"],"required_nodes":["n0007"]}}`, 200,
			[]string{"update DRAIN n0005", "submit job n0007"}},
		{"several nodes", "node/n[0010-0011]", `{"state":["DRAIN"]}`, 200, []string{"update DRAIN n0005", "submit job n0007", "update DRAIN n0010,n0011"}},
	} {
		if got := post(ask.path, ask.body); got != ask.status {
			t.Errorf("%s: %d", ask.name, got)
		}
		var told []string
		for _, e := range r.outside() {
			told = append(told, e.Op+" "+e.Subject)
		}
		if !slices.Equal(told, ask.effects) {
			t.Errorf("%s: effects are %q", ask.name, told)
		}
	}
}

// slurmrestd asks a controller that has just started: the nodes are unknown for
// some seconds, and then as they were.
func TestAfterTheControllersStartNodesAreUnknown(t *testing.T) {
	t.Parallel()
	for _, generation := range []int{38, 42, 45} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, generation)
			path := fmt.Sprintf("/slurm/v0.0.%d/node/n0001", generation)
			state := func() string {
				nodes, _ := r.get(t, path)["nodes"].([]any)
				if len(nodes) == 0 {
					return "no nodes"
				}
				text, _ := json.Marshal(nodes[0].(map[string]any)["state"])
				return string(text)
			}
			want := map[bool][2]string{true: {`"unknown"`, `"idle"`}, false: {`["UNKNOWN"]`, `["IDLE"]`}}[generation == 38]
			r.do(t, func(s *world.State) { s.SlurmController(testSite, true, false) })
			if got := state(); got != "no nodes" {
				t.Errorf("while the controller is down: %s", got)
			}
			r.do(t, func(s *world.State) { s.SlurmController(testSite, false, false) })
			if got := state(); got != want[0] {
				t.Errorf("just after its start: %s", got)
			}
			r.now = r.now.Add(world.SlurmctldPoll)
			if got := state(); got != want[1] {
				t.Errorf("later: %s", got)
			}
		})
	}
}

// 24.11 goes on showing the reason of a drain that is over, the others do not.
func TestWhoKeepsAnOldReason(t *testing.T) {
	t.Parallel()
	for generation, kept := range map[int]bool{38: false, 42: true, 45: false} {
		r := newRig(t, generation)
		for _, u := range []world.SlurmUpdate{{State: []string{"DRAIN"}, Reason: "bad fan", User: "root"}, {State: []string{"RESUME"}}} {
			r.do(t, func(s *world.State) { _ = s.UpdateSlurmNode(testSite, "n0001", u) })
		}
		node := r.get(t, fmt.Sprintf("/slurm/v0.0.%d/node/n0001", generation))["nodes"].([]any)[0].(map[string]any)
		if (node["reason"] == "bad fan") != kept {
			t.Errorf("%d shows %q", generation, node["reason"])
		}
	}
}

// What real servers of the three releases answer to mistakes of a client, beyond
// what was recorded.
func TestMistakesOfAClient(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, method, path, body string
		anonymous                bool
		want                     map[int]string // by generation: status and what the answer holds
	}{
		{"no token, no such version", "GET", "/slurm/v0.0.99/ping", "", true, map[int]string{38: "401 Authentication failure", 42: "401 Authentication failure", 45: "401 Authentication failure"}},
		{"no such method", "DELETE", "V/nodes", "", false, map[int]string{38: "405 Requested REST method", 42: "404 Unable find requested URL", 45: "404 Unable to find requested URL"}},
		{"a list in the path", "GET", "V/node/n0001,n0002", "", false, map[int]string{38: "400 Unable to parse URL path.", 42: "400 Unable to parse URL path.", 45: "404 Invalid or unknown URL path"}},
		{"no such partition", "GET", "V/partition/nosuch", "", false, map[int]string{38: `500 "errno":2000`, 42: `422 "error_number":9000`, 45: "200 Unable to find partition nosuch"}},
		{"a number for a state", "POST", "V/node/n0001", `{"state":5}`, false, map[int]string{42: `500 "error_number":9206`, 45: `500 "error_number":9206`}},
		{"a list for a body", "POST", "V/node/n0001", `[1]`, false, map[int]string{42: `500 "error_number":9209`, 45: `500 "error_number":9209`}},
		{"no body", "POST", "V/node/n0001", ``, false, map[int]string{42: `200 "errors":[]`, 45: `200 "errors":[]`}},
		{"a number for a text", "POST", "V/node/n0001", `{"extra":5}`, false, map[int]string{42: "200 (Slurm type=64 bit integer): 5", 45: "200 (Slurm type=64 bit integer): 5"}},
		{"small letters", "POST", "V/node/n0001", `{"state":["drain"]}`, false, map[int]string{42: `200 "errors":[]`, 45: `200 "errors":[]`}},
		{"part of a hostlist", "POST", "V/node/n%5B00", `{"state":["DRAIN"]}`, false, map[int]string{42: `500 "error_number":2018`, 45: `422 "error_number":2018`}},
	} {
		for generation, want := range c.want {
			r, token := newRig(t, generation), ""
			if !c.anonymous {
				token = r.root()
			}
			w := r.ask(c.method, strings.Replace(c.path, "V/", fmt.Sprintf("/slurm/v0.0.%d/", generation), 1), c.body, "root", token)
			status, text, _ := strings.Cut(want, " ")
			if fmt.Sprint(w.Code) != status || !strings.Contains(w.Body.String(), text) {
				t.Errorf("%s, %d: %d %s", c.name, generation, w.Code, w.Body)
			}
		}
	}
}

func TestExpandsHostlists(t *testing.T) {
	t.Parallel()
	for list, want := range map[string][]string{
		"n1": {"n1"}, "n1,m2": {"n1", "m2"}, "n[01-03,7]": {"n01", "n02", "n03", "n7"}, "a[1-2],b[8-10]": {"a1", "a2", "b8", "b9", "b10"},
		"n[3-1]": nil, "n[1-": nil, "n[x-y]": nil, "n[1-99999999]": nil,
	} {
		got, err := expand(list)
		if !slices.Equal(got, want) || (err != nil) != (want == nil) {
			t.Errorf("%s: %q, %v", list, got, err)
		}
	}
}

// What a script says of its own length.
func TestReadsHowLongAScriptRuns(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		took time.Duration
		code int
	}{
		"#!/bin/sh\nsleep 30; sleep 5": {35 * time.Second, 0}, "exit 7": {time.Second, 7}, "sleep 2\nexit 1": {2 * time.Second, 1}, "./burn": {runTime, 0},
	} {
		if took, code := run(script); took != want.took || code != want.code {
			t.Errorf("%q: %s, %d", script, took, code)
		}
	}
}

// BenchmarkListing lists a thousand nodes of each generation's newest version.
func BenchmarkListing(b *testing.B) {
	for _, generation := range []int{38, 42, 45} {
		b.Run(fmt.Sprint(generation), func(b *testing.B) {
			r := &rig{key: []byte("k"), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
			var err error
			if r.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 2, Racks: 1}, Clock: func() time.Time { return r.now }}); err != nil {
				b.Fatal(err)
			}
			if err := r.world.Do(world.Effect{Face: world.FaceWorld}, func(s *world.State) error {
				for i := range 1000 {
					n := &world.SlurmNode{Name: fmt.Sprintf("n%04d", i), Site: testSite, Base: world.SlurmIdle, Partitions: world.SlurmPartitions(), Boot: s.Now}
					s.SlurmNodes.Put(world.Key(testSite, n.Name), n)
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			if r.face, err = New(r.world, testSite, Options{Generation: generation, Key: r.key, Clock: func() time.Time { return r.now }}); err != nil {
				b.Fatal(err)
			}
			path, token := fmt.Sprintf("/slurm/v0.0.%d/nodes", generation), r.root()
			for b.Loop() {
				if w := r.ask("GET", path, "", "root", token); w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
			}
		})
	}
}
