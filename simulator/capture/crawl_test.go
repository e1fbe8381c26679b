package capture_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/capture"
)

// A crawl only reads, one at a time, never what is not to be read, and nowhere
// else.
func TestACrawlKeepsToItself(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked []string
	under, most := 0, 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("another host is asked for %s", r.URL) }))
	t.Cleanup(elsewhere.Close)
	link := func(path string) map[string]any { return map[string]any{"@odata.id": path} }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		under++
		most = max(most, under)
		mu.Unlock()
		defer func() { mu.Lock(); under--; mu.Unlock() }()
		switch r.URL.Path {
		case "/redfish/v1/":
			_ = json.NewEncoder(w).Encode(map[string]any{
				"Systems": link("/redfish/v1/Systems"), "AccountService": link("/redfish/v1/AccountService"), "SessionService": link("/redfish/v1/SessionService"),
				"Far": link(elsewhere.URL + "/redfish/v1/Systems"), "Out": link("/redfish/../admin"), "Jobs": link("/redfish/v1/Managers/1/Jobs"),
				"LogServices": link("/redfish/v1/Managers/1/LogServices"), "Licences": link("/redfish/v1/LicenseService/Licenses"),
				"Certificates": link("/redfish/v1/Managers/1/NetworkProtocol/HTTPS/Certificates"), "Moved": link("/redfish/v1/Moved"),
			})
		case "/redfish/v1/Systems":
			_ = json.NewEncoder(w).Encode(map[string]any{"Members": []any{link("/redfish/v1/Systems/1"), link("/redfish/v1/Systems/1#/Oem")}, "Members@odata.nextLink": "/redfish/v1/Systems?$skip=1"})
		case "/redfish/v1/Moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "/redfish/v1/Systems/1":
			w.Header().Set("ETag", `"7"`)
			_ = json.NewEncoder(w).Encode(map[string]any{"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{"target": "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"}}})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	outcome, err := capture.Crawl(t.Context(), server.URL, capture.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if most != 1 {
		t.Errorf("%d requests are under way at a time", most)
	}
	for _, line := range asked {
		if !strings.HasPrefix(line, "GET /redfish") || capture.Never(line) || strings.Contains(line, "Actions") {
			t.Errorf("it asked %s", line)
		}
	}
	if outcome.Skipped != 6 || outcome.Foreign != 1 || len(asked) != 7 {
		t.Errorf("it skipped %d and left %d others, and asked %v", outcome.Skipped, outcome.Foreign, asked)
	}
	if a := outcome.Tree["/redfish/v1/Systems/1"]; a.Headers["ETag"] != `"7"` {
		t.Errorf("a system is %+v", a)
	}
	if a := outcome.Tree["/redfish/v1/Moved"]; a.Status != http.StatusTemporaryRedirect {
		t.Errorf("what has moved is %+v", a)
	}
}

// A BMC that refuses the login is asked once, and one that is silent a few times.
func TestACrawlGivesUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
		most    int
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, "refuses the login", 1},
		"silent":  {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "no answer", 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked.Add(1); c.handler(w, r) }))
			t.Cleanup(server.Close)
			_, err := capture.Crawl(t.Context(), server.URL, capture.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || int(asked.Load()) > c.most {
				t.Errorf("after %d requests: %v", asked.Load(), err)
			}
		})
	}
}

// What was read before a bound is given, and that it is not the whole.
func TestABoundCutsACrawlShort(t *testing.T) {
	t.Parallel()
	_, port := fleet(t)
	target := "http://" + net.JoinHostPort("127.1.1.9", port)
	outcome, err := capture.Crawl(t.Context(), target, capture.Options{User: "admin", Password: "simulator-0", Resources: 9})
	if err != nil || outcome.Whole || len(outcome.Tree) != 9 {
		t.Errorf("a bound on resources: %+v, %v", outcome, err)
	}
	outcome, err = capture.Crawl(t.Context(), target, capture.Options{User: "admin", Password: "simulator-0", Bytes: 3000})
	if err != nil || outcome.Whole || len(outcome.Tree) < 2 || len(outcome.Tree) > 9 {
		t.Errorf("a bound on bytes: %+v, %v", outcome, err)
	}
	first := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first {
			<-r.Context().Done()
			return
		}
		first = false
		_, _ = w.Write([]byte(`{"v1":"/redfish/v1/"}`))
	}))
	t.Cleanup(server.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	outcome, err = capture.Crawl(ctx, server.URL, capture.Options{})
	if err != nil || outcome.Whole || len(outcome.Tree) != 1 {
		t.Errorf("a deadline: %+v, %v", outcome, err)
	}
}
