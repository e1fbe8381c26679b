package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/muster/client"
)

func TestALeftTokenIsShownToItsOwnServerOnly(t *testing.T) {
	t.Parallel()
	left := client.Credentials{URL: "http://127.0.0.1:8480", Token: "left"}
	for name, c := range map[string]struct {
		said client.Credentials
		want client.Credentials
	}{
		"nothing said":             {client.Credentials{}, client.Credentials{URL: left.URL, Token: "left"}},
		"the same server":          {client.Credentials{URL: left.URL + "/"}, client.Credentials{URL: left.URL, Token: "left"}},
		"another server":           {client.Credentials{URL: "http://other"}, client.Credentials{URL: "http://other"}},
		"another token":            {client.Credentials{Token: "said"}, client.Credentials{URL: left.URL, Token: "said"}},
		"another server and token": {client.Credentials{URL: "http://other", Token: "said"}, client.Credentials{URL: "http://other", Token: "said"}},
	} {
		got, err := client.Pick(c.said, left)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := client.Pick(client.Credentials{}, client.Credentials{}); !errors.Is(err, client.ErrNowhere) {
		t.Errorf("without any: %v", err)
	}
}

func TestCredentialsAreTheirOwnersAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if c, err := client.ReadCredentials(dir); err != nil || c != (client.Credentials{}) {
		t.Errorf("of an empty folder: %+v, %v", c, err)
	}
	want := client.Credentials{URL: "u", Token: "t", Database: "d"}
	for range 2 { // the second replaces the first
		if err := want.Write(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := client.ReadCredentials(dir); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "cli.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func open(t *testing.T, handler http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := client.New(client.Credentials{URL: server.URL, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestListsAreReadToTheirEnd(t *testing.T) {
	t.Parallel()
	var asked []string
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if r.URL.Query().Get("cursor") == "" {
			fmt.Fprint(w, `{"items": [1, 2], "next": "/api/v1/things/?cursor=x&limit=1000"}`)
			return
		}
		fmt.Fprint(w, `{"items": [3], "next": null}`)
	})
	got, err := client.List[int](t.Context(), c, "/things/", url.Values{}, 0)
	if err != nil || !cmp.Equal(got, []int{1, 2, 3}) {
		t.Errorf("%v, %v", got, err)
	}
	if want := []string{"/api/v1/things/?limit=1000", "/api/v1/things/?cursor=x&limit=1000"}; !cmp.Equal(asked, want) {
		t.Errorf("asked %q", asked)
	}
	if got, err := client.List[int](t.Context(), c, "/things/", url.Values{}, 1); err != nil || !cmp.Equal(got, []int{1}) {
		t.Errorf("at most one: %v, %v", got, err)
	}
}

func TestAPageOfAnotherServerIsNotFollowed(t *testing.T) {
	t.Parallel()
	shown := make(chan string, 1)
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown <- r.Header.Get("Authorization") }))
	t.Cleanup(thief.Close)
	for name, handler := range map[string]http.HandlerFunc{
		"next":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"items": [], "next": %q}`, thief.URL) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) },
	} {
		if _, err := client.List[int](t.Context(), open(t, handler), "/things/", url.Values{}, 0); err == nil {
			t.Errorf("%s: it is followed", name)
		}
	}
	if len(shown) > 0 {
		t.Errorf("it was shown %q", <-shown)
	}
}

func TestAnswersThatAreNoneAreToldApart(t *testing.T) {
	t.Parallel()
	var value any
	refused := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"status": 403, "code": "scope_missing", "detail": "this needs a token with the scope x", "errors": [{"pointer": "/a", "detail": "b"}]}`)
	})
	var answer *client.AnswerError
	err := refused.Get(t.Context(), "/x/", nil, &value)
	if !errors.As(err, &answer) || !answer.Refused() || answer.Code != "scope_missing" || err.Error() != "this needs a token with the scope x (403 scope_missing)\n  /a: b" {
		t.Errorf("refused: %v", err)
	}
	failed := open(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprint(w, `{"status": 500, "code": "internal_error", "detail": "x"}`)
	})
	if err := failed.Get(t.Context(), "/x/", nil, &value); !errors.As(err, &answer) || answer.Refused() {
		t.Errorf("failed: %v", err)
	}
	other := open(t, func(w http.ResponseWriter, _ *http.Request) { http.NotFound(w, nil) })
	if err := other.Get(t.Context(), "/x/", nil, &value); err == nil || errors.As(err, &answer) && answer.Code == "" {
		t.Errorf("of another program: %v", err)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	c, err := client.New(client.Credentials{URL: gone.URL})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), "/x/", nil, &value); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("nobody there: %v", err)
	}
}
