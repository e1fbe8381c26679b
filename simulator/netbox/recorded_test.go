package netbox

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// recording is one exchange with a real NetBox.
type recording struct {
	Name          string
	Method        string
	Path          string
	Request       string
	Authorization *string
	Accept        *string
	ContentType   string `json:"Content-Type"`
	IfMatch       string `json:"If-Match"`
	Status        int
	Type          string
	ETag          bool
	Location      string
	Body          any  // of a refusal, and of some objects
	Count         *int // of a list
	Got           *int
	Next          string
	First         any // of a list
}

// The tokens of the recordings.
const (
	adminToken  = "TOKEN00000000000000000000000000000000000"
	secondToken = "nbt_KEY.SECRET"
)

var recordedTokens = []Token{
	{Text: adminToken}, {Text: secondToken}, {Text: "reader", ReadOnly: true}, {Text: "limited", Site: "site-a"}, {Text: "nobody", Nothing: true},
	{Text: "expired", Expired: true},
}

// send asks as a recorded request did.
func (r *rig) send(one *recording) *httptest.ResponseRecorder {
	req := httptest.NewRequest(one.Method, one.Path, strings.NewReader(one.Request))
	req.Header.Set("Accept", "application/json")
	if one.Accept != nil {
		req.Header.Set("Accept", *one.Accept)
	}
	authorization := "Token " + adminToken
	if one.Authorization != nil {
		authorization = *one.Authorization
	}
	for prefix, token := range map[string]string{"p-ro-": "reader", "p-limited-": "limited", "p-none-": "nobody", "auth-no-permission": "nobody", "auth-expired": "expired"} {
		if strings.HasPrefix(one.Name, prefix) {
			authorization = "Token " + token
		}
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	if one.Request != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if one.ContentType != "" {
		req.Header.Set("Content-Type", one.ContentType)
	}
	switch one.Name {
	case "w-if-match-good":
		req.Header.Set("If-Match", r.tag(2))
	default:
		if one.IfMatch != "" {
			req.Header.Set("If-Match", one.IfMatch)
		}
	}
	w := httptest.NewRecorder()
	r.face.ServeHTTP(w, req)
	r.now = r.now.Add(time.Millisecond)
	return w
}

func (r *rig) tag(id int) (tag string) {
	r.world.Read(func(s *world.State) { tag = etag(s.Object(world.KindDevice, id)) })
	return tag
}

// last is the newest device's id.
func (r *rig) last() (id int) {
	r.world.Read(func(s *world.State) {
		for _, o := range s.Objects.Of(world.KindDevice) {
			id = o.ID
		}
	})
	return id
}

// stage gives a recorded request the ids of this run: the real one's sequences
// lost some to what was refused.
func (r *rig) stage(one *recording) {
	switch one.Name {
	case "delete-one", "delete-again":
		id := r.last()
		if one.Name == "delete-again" {
			id++
		}
		one.Path = fmt.Sprintf("/api/dcim/devices/%d/", id)
	case "b-delete":
		one.Request = fmt.Sprintf(`[{"id": %d}, {"id": %d}]`, r.last()-1, r.last())
	}
}

// The face answers what real NetBoxes of seven releases answered: the status, the
// form of every object down to its members' types, how many a question finds and
// what the next page is called, and each refusal word for word.
func TestAnswersAsRecorded(t *testing.T) {
	t.Parallel()
	for version, release := range releases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			body, err := os.ReadFile("testdata/" + release.name + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var all []recording
			if err := json.Unmarshal(body, &all); err != nil {
				t.Fatal(err)
			}
			r := newRig(t, version, recordedTokens...)
			for i := range all {
				one := &all[i]
				r.stage(one)
				compare(t, one, r.send(one))
			}
		})
	}
}

func compare(t *testing.T, one *recording, got *httptest.ResponseRecorder) {
	t.Helper()
	if got.Code != one.Status {
		t.Errorf("%s: %d, recorded %d: %.300s", one.Name, got.Code, one.Status, got.Body)
		return
	}
	if kind := got.Header().Get("Content-Type"); kind != one.Type && one.Status != 204 && one.Status/100 != 3 {
		t.Errorf("%s: %q, recorded %q", one.Name, kind, one.Type)
	}
	if tagged := got.Header().Get("ETag") != ""; tagged != one.ETag {
		t.Errorf("%s: an ETag: %v, recorded %v", one.Name, tagged, one.ETag)
	}
	if one.Location != "" && one.Status == 301 && got.Header().Get("Location") != one.Location {
		t.Errorf("%s: to %q, recorded %q", one.Name, got.Header().Get("Location"), one.Location)
	}
	if one.Got != nil {
		compareList(t, one, got.Body.Bytes())
		return
	}
	if one.Body == nil {
		return
	}
	var sent any
	if err := json.Unmarshal(got.Body.Bytes(), &sent); err != nil {
		t.Errorf("%s: %v: %.300s", one.Name, err, got.Body)
		return
	}
	if one.Status < 400 {
		for _, d := range differences("", sent, one.Body) {
			t.Errorf("%s: %s", one.Name, d)
		}
		return
	}
	g, _ := json.Marshal(sent)
	w, _ := json.Marshal(one.Body)
	if string(g) != string(w) && !alike(one.Name, string(g), string(w)) {
		t.Errorf("%s: %.300s, recorded %.300s", one.Name, g, w)
	}
}

// alike allows what a text may say otherwise: the choices of a lookup, other
// objects of the real database, the place of a mistake.
func alike(name, got, want string) bool {
	until, ok := map[string]string{"w-role-by-whole-object": "Choices are", "bad-json": "line 1", "delete-in-use-site": "objects were found"}[name]
	if !ok {
		return false
	}
	g, _, _ := strings.Cut(got, until)
	w, _, _ := strings.Cut(want, until)
	if name == "delete-in-use-site" {
		return strings.HasPrefix(g, `{"detail":"Unable to delete object. `)
	}
	return g == w
}

func compareList(t *testing.T, one *recording, body []byte) {
	t.Helper()
	var list struct {
		Count   *int
		Next    *string
		Results []any
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Errorf("%s: %v", one.Name, err)
		return
	}
	next := ""
	if list.Next != nil {
		_, next, _ = strings.Cut(*list.Next, "?")
	}
	if unlike := (list.Count == nil) != (one.Count == nil) || list.Count != nil && *list.Count != *one.Count; unlike || len(list.Results) != *one.Got || next != one.Next {
		t.Errorf("%s: %s of %s, next %q; recorded %d of %s, next %q", one.Name, fmt.Sprint(len(list.Results)), show(list.Count), next, *one.Got, show(one.Count), one.Next)
		return
	}
	if len(list.Results) == 0 || one.First == nil {
		return
	}
	if strings.HasPrefix(one.Name, "filter") || strings.HasPrefix(one.Name, "order") || strings.HasPrefix(one.Name, "page") {
		g, w := list.Results[0].(map[string]any)["id"], one.First.(map[string]any)["id"]
		if g != w && one.Name != "order-status" && one.Name != "order--last_updated" { // equal ones come in any order
			t.Errorf("%s: begins with %v, recorded %v", one.Name, g, w)
		}
		return
	}
	for _, d := range differences("", list.Results[0], one.First) {
		t.Errorf("%s: %s", one.Name, d)
	}
}

func show(n *int) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// free are members that hold what anybody likes.
var free = []string{"config_context", "local_context_data", "blob", "installed-apps", "installed_apps", "plugins"}

// differences tells where two JSON values are not of the same form. Null and an
// empty list agree with everything.
func differences(at string, got, want any) (found []string) {
	if got == nil || want == nil {
		return nil
	}
	if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) {
		return []string{fmt.Sprintf("%s is %T, recorded %T", at, got, want)}
	}
	switch w := want.(type) {
	case map[string]any:
		g := got.(map[string]any)
		for key := range w {
			if _, ok := g[key]; !ok {
				found = append(found, at+"."+key+" is missing")
			} else if !slices.Contains(free, key) {
				found = append(found, differences(at+"."+key, g[key], w[key])...)
			}
		}
		for key := range g {
			if _, ok := w[key]; !ok {
				found = append(found, at+"."+key+" is not in the recording")
			}
		}
	case []any:
		if g := got.([]any); len(g) > 0 && len(w) > 0 {
			found = append(found, differences(at+"[]", g[0], w[0])...)
		}
	}
	slices.Sort(found)
	return found
}
