package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

func connect(t *testing.T, handle http.HandlerFunc, change func(*Config)) *Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	config := Config{Name: "the test service", URL: server.URL + "/base/", Token: "canary-token", HTTP: sources.Options{Retries: -1, BreakerFailures: -1}}
	if change != nil {
		change(&config)
	}
	c, err := New(config, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func ask(ctx context.Context, c *Client) error {
	var into struct{ Value int }
	return c.Do(ctx, Request{Op: "ask", Method: http.MethodGet, Path: []string{"things", "a/b c"}}, &into)
}

func TestAnswersAreJudgedByWhatTheServiceSays(t *testing.T) {
	t.Parallel()
	page := "<html>gone</html>"
	for name, c := range map[string]struct {
		status int
		body   string
		want   sources.Kind
		gone   bool
	}{
		"an answer":                        {200, `{"value": 1}`, "", false},
		"no JSON":                          {200, page, sources.KindTransient, false},
		"an empty answer":                  {200, "", sources.KindTransient, false},
		"a field of another type":          {200, `{"value": "x"}`, sources.KindTransient, false},
		"none, said by the service":        {404, `{"code": "not_found", "message": "no"}`, sources.KindMissing, true},
		"none, said by something else":     {404, page, sources.KindTransient, false},
		"none, in a form of somebody else": {404, `{"detail": "not found"}`, sources.KindTransient, false},
		"a 404 of another code":            {404, `{"code": "no_such_route", "message": "no"}`, sources.KindTransient, false},
		"a conflict":                       {409, `{"code": "conflict", "message": "no"}`, sources.KindConflict, false},
		"a lock":                           {423, `{"code": "locked", "message": "no"}`, sources.KindLocked, false},
		"a code that is not known":         {409, `{"code": "odd_code", "message": "no"}`, sources.KindConflict, false},
		"what is wrong":                    {422, `{"code": "invalid", "message": "no"}`, sources.KindRefused, false},
		"a page instead of a refusal":      {422, page, sources.KindTransient, false},
		"no token":                         {401, `{"code": "unauthorized", "message": "no"}`, sources.KindForbidden, false},
		"a proxy that lets nobody in":      {403, page, sources.KindForbidden, false},
		"a failure":                        {500, `{"code": "unavailable", "message": "no"}`, sources.KindTransient, false},
		"too much":                         {429, `{"code": "slow_down", "message": "no"}`, sources.KindTransient, false},
		"a redirect":                       {302, "", sources.KindRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := connect(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.EscapedPath() != "/base/v1/things/a%2Fb%20c" || r.Header.Get("Authorization") != "Bearer canary-token" {
					t.Errorf("asked %s as %q", r.URL.EscapedPath(), r.Header.Get("Authorization"))
				}
				if c.status == 302 {
					w.Header().Set("Location", "http://elsewhere.invalid/")
				}
				w.WriteHeader(c.status)
				_, _ = fmt.Fprint(w, c.body)
			}, nil)
			err := ask(t.Context(), client)
			if c.want == "" && err == nil {
				return
			}
			if err == nil || sources.KindOf(err) != c.want || errors.Is(err, sources.ErrGone) != c.gone {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// Whatever a service echoes, an error shows no token, and of a service whose
// answers hold secrets nothing but its code.
func TestErrorsShowNoSecrets(t *testing.T) {
	t.Parallel()
	for _, mute := range []bool{false, true} {
		for status, body := range map[int]string{
			422: `{"code": "invalid", "message": "canary-token may not set canary-password", "password": "canary-password"}`,
			200: `{"value": "canary-password"}`,
			500: `canary-password`,
			409: `{"code": "canary-password", "message": "canary-password"}`,
		} {
			c := connect(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(status)
				_, _ = fmt.Fprint(w, body)
			}, func(c *Config) { c.Mute = mute })
			err := ask(t.Context(), c)
			if err == nil || strings.Contains(err.Error(), "canary-token") || mute && strings.Contains(fmt.Sprintf("%+v %#v", err, err), "canary-password") {
				t.Errorf("mute %v, HTTP %d: %v", mute, status, err)
			}
		}
	}
}

func TestARenewedTokenIsTakenUpOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	var asked atomic.Int32
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer new" {
			write("new") // renewed while the request is under way
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"code": "unauthorized"}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"value": 1}`)
	}, func(c *Config) { c.Token, c.TokenFile = "", file })
	if err := ask(t.Context(), c); err != nil || asked.Load() != 2 {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestConfigurationAndNames(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "dhcp.example", "ftp://dhcp.example", "http://dhcp.example?x=1", "http://user:canary@dhcp.example"} {
		if _, err := New(Config{Name: "the test service", URL: url}, time.Now); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: %v", url, err)
		}
	}
	c := connect(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") }, nil)
	for _, name := range []string{"", ".", ".."} {
		if err := c.Do(t.Context(), Request{Op: "ask", Method: http.MethodGet, Path: []string{"things", name}}, nil); sources.KindOf(err) != sources.KindRefused {
			t.Errorf("%q: %v", name, err)
		}
	}
}
