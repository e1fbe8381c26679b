package placement

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/musterhq/muster/simulator/world"
)

// exchange is one that was recorded with a real Placement.
type exchange struct {
	Method, Path, Version string
	Token                 *string
	Body                  json.RawMessage
	Status                int
	Location, Says, Code  string
	Cut                   bool // Says is the beginning only
	Answer                any
}

// What a real Placement 8.0 answered to the life of a provider, with every
// mistake in between, the simulated one answers too.
func TestTheAnswersAreThoseOfARealPlacement(t *testing.T) {
	t.Parallel()
	body, err := os.ReadFile("testdata/answers-8.0.0.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []exchange
	if err := json.Unmarshal(body, &recorded); err != nil {
		t.Fatal(err)
	}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(New(w, "empty", Options{}))
	t.Cleanup(server.Close)
	for i := range recorded {
		play(t, server, &recorded[i])
	}
}

func play(t *testing.T, server *httptest.Server, e *exchange) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), e.Method, server.URL+e.Path, strings.NewReader(string(e.Body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", "admin")
	if e.Token != nil {
		r.Header.Set("X-Auth-Token", *e.Token)
	}
	if e.Version != "" {
		r.Header.Set("OpenStack-API-Version", "placement "+e.Version)
	}
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(answer.Body)
	if closed := answer.Body.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	what := e.Method + " " + e.Path + " " + string(e.Body)
	if answer.StatusCode != e.Status {
		t.Fatalf("%s: the status is %d, not %d: %s", what, answer.StatusCode, e.Status, got)
	}
	if at := strings.TrimPrefix(answer.Header.Get("Location"), server.URL); at != e.Location {
		t.Errorf("%s: the location is %q", what, at)
	}
	var value any
	var wrong struct {
		Errors []struct{ Detail, Code string }
	}
	if len(got) > 0 && (json.Unmarshal(got, &value) != nil || json.Unmarshal(got, &wrong) != nil) {
		t.Fatalf("%s: the answer is %s", what, got)
	}
	if e.Answer != nil && !reflect.DeepEqual(value, e.Answer) {
		t.Errorf("%s: it answers\n%v\nnot\n%v", what, value, e.Answer)
	}
	if e.Says == "" && e.Code == "" {
		return
	}
	if len(wrong.Errors) != 1 || wrong.Errors[0].Code != e.Code {
		t.Fatalf("%s: the errors are %+v", what, wrong)
	}
	if detail := wrong.Errors[0].Detail; e.Says != "" && detail != e.Says && !(e.Cut && strings.HasPrefix(detail, e.Says)) {
		t.Errorf("%s: it says\n%q\nnot\n%q", what, detail, e.Says)
	}
}
