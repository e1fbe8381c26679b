package ironic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources"
)

func noWait(ctx context.Context, _ time.Duration) error { return ctx.Err() }

func TestTheVersionIsNegotiatedDown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		least, most int
		cap         string
		bare        bool
		want        string
		lost        []string
		refusal     string
	}{
		"the newest understood":      {1, 96, "", false, "1.82", nil, ""},
		"what the server has":        {1, 70, "", false, "1.70", nil, ""},
		"the least that has all":     {1, 65, "", false, "1.65", nil, ""},
		"without lessee":             {1, 64, "", false, "1.64", []string{"lessee"}, ""},
		"without owner":              {1, 49, "", false, "1.49", []string{"owner", "lessee"}, ""},
		"the least of all":           {1, 37, "", false, "1.37", []string{"fault", "owner", "lessee"}, ""},
		"without traits":             {1, 36, "", false, "", nil, "upgrade Ironic"},
		"a server that is too new":   {90, 96, "", false, "", nil, "upgrade muster"},
		"no newer than configured":   {1, 82, "1.65", false, "1.65", nil, ""},
		"configured too new":         {1, 96, "1.96", false, "1.82", nil, ""},
		"a proxy that drops headers": {1, 70, "", true, "1.70", nil, ""},
	} {
		f := newFake(t)
		f.least, f.most, f.bare = test.least, test.most, test.bare
		f.add("u", "active", nil)
		c := (&peer{config: Config{URL: f.URL, Version: test.cap}}).client(t, quick)
		end, err := c.List(t.Context(), func([]sources.Record) error { return nil })
		if test.refusal != "" {
			wantKind(t, err, sources.KindRefused)
			if !strings.Contains(err.Error(), test.refusal) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil || c.current.sc.Microversion != test.want || !slices.Equal(end.Lost, test.lost) || end.Records != 1 {
			t.Errorf("%s: %v, version %+v, end %+v", name, err, c.current, end)
		}
	}
}

// A server that is upgraded or rolled back between two listings is spoken to
// in its own version from the next listing on.
func TestTheVersionFollowsTheServer(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("u", "active", nil)
	c := (&peer{config: Config{URL: f.URL}}).client(t, quick)
	list(t, c)
	set := func(most int) { f.mu.Lock(); f.most = most; f.mu.Unlock() }
	set(60) // rolled back
	_, err := c.List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindTransient)
	if _, end := list(t, c); !slices.Equal(end.Lost, []string{"lessee"}) {
		t.Errorf("after the rollback: %+v", end)
	}
	set(82)
	list(t, c) // in the old version still, which the server also speaks
	if _, end := list(t, c); len(end.Lost) != 0 {
		t.Errorf("after the upgrade: %+v", end)
	}
}

func TestADeadIronicDoesNotKeepTheClientFromBeingMade(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("u", "active", nil)
	down := true
	var mu sync.Mutex
	f.intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if down {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	f.Config.ErrorLog = nil
	c := (&peer{config: Config{URL: f.URL}}).client(t, quick)
	for range 2 {
		_, err := c.List(t.Context(), func([]sources.Record) error { return nil })
		wantKind(t, err, sources.KindTransient)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	list(t, c)
}

func TestConfigurationsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]Config{
		"no url":                   {},
		"no scheme":                {URL: "ironic:6385"},
		"credentials in the url":   {URL: "http://u:p@ironic:6385"},
		"unknown auth":             {URL: "http://h", Auth: "oauth"},
		"basic without a password": {URL: "http://h", Auth: AuthHTTPBasic, User: "u"},
		"keystone without a url":   {Auth: AuthKeystone, User: "u", Password: "p", Keystone: Keystone{Project: "x"}},
		"keystone without project": {Auth: AuthKeystone, User: "u", Password: "p", Keystone: Keystone{URL: "http://k"}},
		"credential without one":   {Auth: AuthKeystone, Keystone: Keystone{URL: "http://k", ApplicationCredential: "id"}},
		"an odd interface":         {Auth: AuthKeystone, User: "u", Password: "p", Keystone: Keystone{URL: "http://k", Project: "x", Interface: "private"}},
		"an odd version":           {URL: "http://h", Version: "latest"},
		"no CA":                    {URL: "https://h", HTTP: sources.Options{TLS: sources.TLS{CAFile: "/does/not/exist"}}},
	} {
		if _, err := New(config, time.Now, hclog.NewNullLogger()); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%s: the error shows the credentials: %v", name, err)
		}
	}
}

// Status codes do not tell meanings apart; the texts do, however they are wrapped.
func TestErrorsAreClassifiedByMeaning(t *testing.T) {
	t.Parallel()
	wrap := func(text string) string {
		return fmt.Sprintf(`{"error_message": %q}`, fmt.Sprintf(`{"debuginfo": null, "faultcode": "Client", "faultstring": %q}`, text))
	}
	for name, test := range map[string]struct {
		status int
		body   string
		kind   sources.Kind
		says   string
	}{
		"locked":                   {409, wrap("Node u is locked by host cond-1, please retry after the current operation is completed."), sources.KindLocked, "cond-1"},
		"locked, older wording":    {409, wrap("child_node u is presently locked"), sources.KindLocked, ""},
		"busy":                     {409, wrap("Node u can not be updated while a state transition is in progress."), sources.KindLocked, ""},
		"lock lost on the way":     {400, wrap("Node u found not to be locked on release"), sources.KindLocked, ""},
		"associated":               {409, wrap("Node u is associated with instance i1."), sources.KindConflict, "i1"},
		"instance elsewhere":       {409, wrap("Instance i1 is already associated with a node, it cannot be associated with this other node u"), sources.KindConflict, ""},
		"duplicate name":           {409, wrap("A node with name n1 already exists."), sources.KindConflict, ""},
		"wrong state":              {400, wrap(`The requested action "provide" can not be performed on node "u" while it is in state "enroll".`), sources.KindConflict, "enroll"},
		"in maintenance":           {400, wrap("The deploy operation can't be performed on node u because it's in maintenance mode."), sources.KindConflict, ""},
		"wrong request":            {400, wrap("Invalid trait gold"), sources.KindRefused, "gold"},
		"no conductor":             {400, wrap("No valid host was found. Reason: No conductor service registered which supports driver x for conductor group ''."), sources.KindTransient, ""},
		"missing":                  {404, wrap("Node u could not be found."), sources.KindMissing, ""},
		"missing, said by a proxy": {404, "<html>u could not be found</html>", sources.KindTransient, "not Ironic's answer"},
		"no such route":            {404, `{"error_message": {"code": 404, "title": "Not Found", "description": "no route"}}`, sources.KindRefused, "no route"},
		"version":                  {406, wrap("Version 1.99 was requested"), sources.KindTransient, "1.99"},
		"server error":             {500, wrap("database is locked"), sources.KindTransient, ""},
		"too many":                 {429, "", sources.KindTransient, ""},
		"http_basic":               {401, `{"error": {"message": "Incorrect username or password", "code": 401}}`, sources.KindForbidden, "Incorrect"},
		"single-encoded":           {409, `{"faultstring": "Node u is locked by host c"}`, sources.KindLocked, ""},
		"a plain text inside":      {403, `{"error_message": "no role"}`, sources.KindForbidden, "no role"},
	} {
		c := (&peer{config: Config{URL: "http://h"}}).client(t)
		header := http.Header{"Retry-After": {"7"}}
		err := c.classify("do it", gophercloud.ErrUnexpectedResponseCode{Actual: test.status, Body: []byte(test.body), ResponseHeader: header})
		if err.Kind != test.kind || !strings.Contains(err.Message, test.says) || err.RetryAfter != 7*time.Second {
			t.Errorf("%s: %v, retry after %s", name, err, err.RetryAfter)
		}
	}
}

func TestGoneIsOnlySaidByIronic(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		gone   bool
	}{
		"Ironic":          {404, `{"error_message": "{\"faultstring\": \"Node u could not be found.\"}"}`, true},
		"a proxy":         {404, "<html>404</html>", false},
		"no route":        {404, `{"error_message": "{\"title\": \"Not Found\"}"}`, false},
		"an empty answer": {404, "", false},
		"gone":            {410, "", false},
		"forbidden":       {403, `{"error_message": "{\"faultstring\": \"Node u could not be found.\"}"}`, false},
		"another node":    {200, `{"uuid": "v"}`, false},
		"no node":         {200, `{"name": "u"}`, false},
		"html":            {200, `<html>`, false},
	} {
		c, _ := answering(t, test.status, func(string) string { return test.body })
		r, err := c.Get(t.Context(), "u")
		if err == nil || r != nil || errors.Is(err, sources.ErrGone) != test.gone {
			t.Errorf("%s: %v, %v", name, r, err)
		}
	}
}

// A token that Keystone ended is asked for anew once a request; credentials
// that Keystone no longer knows are not asked about for ever.
func TestKeystoneTokens(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.add("u", "active", nil)
	var mu sync.Mutex
	valid, issued, known := "", 0, true
	keystone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case r.Method == http.MethodGet:
			fmt.Fprintf(w, `{"version": {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": "http://%s/v3/"}]}}`, r.Host)
		case !known:
			w.WriteHeader(404)
			fmt.Fprint(w, `{"error": {"code": 404, "message": "Could not find Application Credential: x.", "title": "Not Found"}}`)
		default:
			issued++
			valid = fmt.Sprintf("token-%d", issued)
			w.Header().Set("X-Subject-Token", valid)
			w.WriteHeader(201)
			fmt.Fprintf(w, `{"token": {"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": [{"type": "baremetal", "endpoints": [
				{"interface": "public", "region": "elsewhere", "region_id": "elsewhere", "url": "http://127.0.0.1:1"},
				{"interface": "public", "region": "here", "region_id": "here", "url": "%s/v1"}]}]}}`, f.URL)
		}
	}))
	t.Cleanup(keystone.Close)
	f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Auth-Token") == valid {
			return false
		}
		w.WriteHeader(401)
		fmt.Fprint(w, `{"error": {"code": 401, "message": "The request you have made requires authentication."}}`)
		return true
	}
	config := Config{Auth: AuthKeystone, User: "u", Password: "p", Keystone: Keystone{URL: keystone.URL + "/v3", Project: "x", Region: "here"}}
	c := (&peer{config: config}).client(t, quick)
	list(t, c)
	end := func() { mu.Lock(); valid = "ended"; mu.Unlock() }
	end()
	list(t, c)
	if issued != 2 {
		t.Errorf("%d tokens were issued, not 2", issued)
	}
	end()
	mu.Lock()
	known = false
	mu.Unlock()
	_, err := c.Get(t.Context(), "u")
	wantKind(t, err, sources.KindForbidden)
	if errors.Is(err, sources.ErrGone) {
		t.Error("Keystone's word was taken for Ironic's")
	}

	config.Keystone.Region = "nowhere"
	mu.Lock()
	known = true
	mu.Unlock()
	_, err = (&peer{config: config}).client(t, quick).List(t.Context(), func([]sources.Record) error { return nil })
	wantKind(t, err, sources.KindRefused)
	if !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("the error does not name the region: %v", err)
	}
}
