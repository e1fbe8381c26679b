package slurm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// rig is a cluster of 64 nodes as the recordings were taken of, behind the face.
type rig struct {
	world *world.World
	face  http.Handler
	key   []byte
	now   time.Time
}

const testSite = "sim2" // that has no cluster of its own

func newRig(t *testing.T, generation int) *rig {
	t.Helper()
	r := &rig{key: []byte("a key of the tests"), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	var err error
	r.world, err = world.Open(world.Options{Shape: world.Shape{Sites: 2, Racks: 1}, Clock: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	r.do(t, func(s *world.State) {
		for i := 1; i <= 64; i++ {
			n := &world.SlurmNode{Name: fmt.Sprintf("n%04d", i), Site: testSite, Base: world.SlurmIdle, Partitions: world.SlurmPartitions(), Features: []string{"live", "rack1"}, Boot: s.Now}
			s.SlurmNodes.Put(world.Key(testSite, n.Name), n)
		}
	})
	r.face, err = New(r.world, testSite, Options{Generation: generation, Key: r.key, Patience: time.Millisecond, Clock: func() time.Time { return r.now }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) do(t *testing.T, change func(s *world.State)) {
	t.Helper()
	if err := r.world.Do(world.Effect{Face: world.FaceWorld, Op: "test"}, func(s *world.State) error { change(s); return nil }); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) ask(method, path, body, user, token string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		req.Header.Set("X-SLURM-USER-TOKEN", token)
		req.Header.Set("X-SLURM-USER-NAME", user)
	}
	w := httptest.NewRecorder()
	r.face.ServeHTTP(w, req)
	return w
}

func (r *rig) root() string { return Token(r.key, "root", r.now, time.Hour) }

// get asks as root and decodes the answer.
func (r *rig) get(t *testing.T, path string) map[string]any {
	t.Helper()
	w := r.ask("GET", path, "", "root", r.root())
	var d map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
		t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	return d
}

func (r *rig) job(t *testing.T, script string, state string, after time.Duration) (id int) {
	took, code := run(script)
	r.do(t, func(s *world.State) {
		id = s.SubmitSlurmJob(&world.SlurmJob{Site: testSite, Name: "ok", User: "root", Partition: "main", Folder: "/tmp", Run: took, Exit: code, Limit: time.Minute})
	})
	r.now = r.now.Add(after)
	if state == world.JobCancelled {
		r.do(t, func(s *world.State) { _ = s.CancelSlurmJob(testSite, id) })
	}
	return id
}

// recording is one exchange with a real server.
type recording struct {
	Method  string
	Path    string
	Request string
	Status  int
	Type    string
	Body    any
	Text    string
}

func readRecordings(t *testing.T, file string) (names []string, all map[string]recording) {
	t.Helper()
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &all); err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^"([^"]+)":`).FindAllStringSubmatch(string(body), -1) {
		names = append(names, match[1])
	}
	return names, all
}

var jobPath = regexp.MustCompile(`/job/(\d+|null)$`)

// stage brings the cluster to where it was when an answer was recorded, and gives
// the path, the user and the token of the request.
func (r *rig) stage(t *testing.T, name string, one recording) (path, user, token string) {
	path, user, token = one.Path, "root", r.root()
	id := 0
	switch name {
	case "ctld-down-nodes":
		r.do(t, func(s *world.State) { s.SlurmController(testSite, true, false) })
	case "down-resume":
		r.do(t, func(s *world.State) {
			_ = s.UpdateSlurmNode(testSite, "n0024", world.SlurmUpdate{State: []string{"DOWN"}, Reason: "x"})
		})
	case "job-ok-pending":
		id = r.job(t, "sleep 2", "", 0)
	case "job-ok-running", "job-timeout-running", "job-delete":
		id = r.job(t, "sleep 60", "", 2*time.Second)
	case "job-ok-done", "job-delete-again":
		id = r.job(t, "sleep 2", "", 10*time.Second)
	case "job-fail-done":
		id = r.job(t, "exit 7", "", 10*time.Second)
	case "job-timeout-done":
		id = r.job(t, "sleep 100", "", 90*time.Second)
	case "job-cancelled":
		id = r.job(t, "sleep 300", world.JobCancelled, 2*time.Second)
	case "alice-drain", "alice-submit":
		user, token = "alice", Token(r.key, "alice", r.now, time.Hour)
	case "alice-token-as-root":
		token = Token(r.key, "alice", r.now, time.Hour)
	case "tok-expired-nodes", "tok-expired-ping":
		token = Token(r.key, "root", r.now, -time.Minute)
	case "tok-garbage-nodes":
		token = "garbage"
	case "update-time":
		path, _, _ = strings.Cut(path, "?")
		path += fmt.Sprintf("?update_time=%d", r.now.Add(time.Hour).Unix())
	}
	if name == "job-delete-again" {
		r.do(t, func(s *world.State) { _ = s.CancelSlurmJob(testSite, id) })
	}
	if id != 0 {
		path = jobPath.ReplaceAllString(path, fmt.Sprintf("/job/%d", id))
	}
	return path, user, token
}

// The face answers what real servers of the three releases answered: the status,
// the form of the body down to every member's type, and each error word for word.
func TestAnswersAsRecorded(t *testing.T) {
	t.Parallel()
	for generation, release := range map[int]string{38: "22.05.8", 42: "24.11.5", 45: "26.05.5"} {
		t.Run(release, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, generation)
			names, all := readRecordings(t, "testdata/"+release+".json")
			for _, full := range names {
				one := all[full]
				_, name, _ := strings.Cut(full, "/")
				path, user, token := r.stage(t, name, one)
				body := strings.ReplaceAll(one.Request, `"live"`, `"burnin"`)
				got := r.ask(one.Method, path, body, user, token)
				if got.Code != one.Status {
					t.Errorf("%s: %d, recorded %d: %s", full, got.Code, one.Status, got.Body)
					continue
				}
				if one.Body == nil {
					if got.Body.String() != one.Text {
						t.Errorf("%s: %q, recorded %q", full, got.Body, one.Text)
					}
					continue
				}
				var sent any
				if err := json.Unmarshal(got.Body.Bytes(), &sent); err != nil {
					t.Errorf("%s: %v: %s", full, err, got.Body)
					continue
				}
				for _, d := range differences("", shorten(sent), one.Body) {
					t.Errorf("%s: %s", full, d)
				}
				compareErrors(t, full, sent, one.Body)
				if name == "ctld-down-ping" {
					r.do(t, func(s *world.State) { s.SlurmController(testSite, false, false) })
				}
			}
		})
	}
}

// shorten keeps the first of each list of a document, as the recordings do.
func shorten(v any) any {
	o, _ := v.(map[string]any)
	for _, name := range []string{"nodes", "jobs", "partitions"} {
		if list, ok := o[name].([]any); ok && len(list) > 1 {
			o[name] = list[:1]
		}
	}
	return v
}

func compareErrors(t *testing.T, name string, got, want any) {
	t.Helper()
	for _, member := range []string{"errors", "warnings"} {
		g, _ := json.Marshal(got.(map[string]any)[member])
		w, _ := json.Marshal(want.(map[string]any)[member])
		if string(g) != string(w) {
			t.Errorf("%s: %s are %s, recorded %s", name, member, g, w)
		}
	}
}

// differences tells where two JSON values are not of the same form. Null and an
// empty list agree with everything.
func differences(at string, got, want any) (found []string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			if got == nil {
				return nil
			}
			return []string{fmt.Sprintf("%s is %T, recorded an object", at, got)}
		}
		for key := range w {
			if _, ok := g[key]; !ok {
				found = append(found, at+"."+key+" is missing")
			} else {
				found = append(found, differences(at+"."+key, g[key], w[key])...)
			}
		}
		for key := range g {
			if _, ok := w[key]; !ok {
				found = append(found, at+"."+key+" is not in the recording")
			}
		}
	case []any:
		g, ok := got.([]any)
		if !ok {
			return []string{fmt.Sprintf("%s is %T, recorded a list", at, got)}
		}
		if len(g) > 0 && len(w) > 0 {
			found = append(found, differences(at+"[]", g[0], w[0])...)
		}
	default:
		if got != nil && want != nil && fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
			found = append(found, fmt.Sprintf("%s is %T, recorded %T", at, got, want))
		}
	}
	slices.Sort(found)
	return found
}
