package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/config"
)

func TestPasswordsAreMasked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://u:hidden@h/d":                 "postgres://u:xxxxx@h/d",
		"postgres://u:hid:den@h:5432/d?x=1":       "postgres://u:xxxxx@h:5432/d?x=1",
		"postgres://u:hid%zzden@h/d":              "postgres://u:xxxxx@h/d",
		"postgres://u@h/d?password=hidden":        "postgres://u@h/d?password=xxxxx",
		"postgres://h/d?user=u&PASSWORD=hidden&a": "postgres://h/d?user=u&PASSWORD=xxxxx&a",
		"postgres://u@h/d":                        "postgres://u@h/d",
		"file:/run/secrets/url":                   "file:/run/secrets/url",
		"env:DATABASE":                            "env:DATABASE",
	} {
		if got := config.Mask(url); got != want || strings.Contains(got, "hidden") {
			t.Errorf("%s is shown as %s, not %s", url, got, want)
		}
	}
}

func TestEveryKeyIsAVariable(t *testing.T) {
	t.Parallel()
	values := map[string]string{
		"database.url": "postgres://h/d", "database.max_connections": "40", "database.statement_timeout": "1m", "roles": "api, reconciler",
		"listen": "[::1]:1", "tls.certificate": "c", "tls.key": "k", "auth.tokens": "false", "auth.oidc.issuer": "https://i",
		"auth.oidc.audience": "a", "auth.oidc.scope_claim": "s", "auth.oidc.algorithms": "RS256,EdDSA", "log.level": "warn", "log.json": "false",
		"policies": "p", "sites": "a.cue,b.cue", "reconciler.sweeps": "3", "reconciler.lease": "9s", "shutdown_timeout": "7s",
		"temporal.address": "t:7233", "temporal.namespace": "n1", "temporal.tls.ca": "ca", "temporal.tls.certificate": "c", "temporal.tls.key": "k",
		"temporal.api_key": "env:KEY", "temporal.task_queue_prefix": "blue",
	}
	var environ []string
	for _, key := range config.Keys() {
		value, ok := values[key]
		if !ok {
			t.Errorf("the key %s is not tried here", key)
		}
		environ = append(environ, config.Variable(key)+"="+value)
	}
	r, err := config.Load(config.Input{Schema: muster.Bundle(), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	shown, err := r.Values()
	if err != nil {
		t.Fatal(err)
	}
	if len(shown) != len(values) {
		t.Errorf("%d of %d keys are shown", len(shown), len(values))
	}
	for _, v := range shown {
		if v.Origin != config.FromEnvironment {
			t.Errorf("%s comes from the %s", v.Key, v.Origin)
		}
	}
	if r.Config.Database.MaxConnections != 40 || r.Config.Roles[1] != "reconciler" || r.Config.TLS.Key != "k" || r.Config.Log.JSON || time.Duration(r.Config.Reconciler.Lease) != 9*time.Second {
		t.Errorf("it comes to %+v", r.Config)
	}
}

func TestFlagsOutrankTheEnvironment(t *testing.T) {
	t.Parallel()
	r, err := config.Load(config.Input{
		Schema: muster.Bundle(), Environ: []string{"MUSTER_DATABASE_URL=postgres://env/d", "MUSTER_LISTEN=127.0.0.1:1"},
		Flags: map[string]string{"database.url": "postgres://flag/d"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.Config.Database.URL != "postgres://flag/d" || r.Config.Listen != "127.0.0.1:1" || r.Origins["database.url"] != config.FromCommandLine {
		t.Errorf("it comes to %+v from %v", r.Config, r.Origins)
	}
}

func TestTemporalIsConfigured(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, file string
		address    string // "": none
		tls        bool
		err        string
	}{
		{"nowhere", `database: url: "postgres://h/d"`, "", false, ""},
		{"with defaults", `temporal: address: "[::1]:7233"`, "[::1]:7233", false, ""},
		{"with the system's authorities", `temporal: {address: "h:1", tls: {}}`, "h:1", true, ""},
		{"with a certificate", `temporal: {address: "h:1", tls: {certificate: "c", key: "k"}}`, "h:1", true, ""},
		{"with half a certificate", `temporal: {address: "h:1", tls: certificate: "c"}`, "", false, "temporal.tls"},
		{"by a URL", `temporal: address: "http://h:1"`, "", false, "temporal.address"},
		{"with an open secret", `temporal: {address: "h:1", api_key: "s3cret"}`, "", false, "temporal.api_key"},
		{"without an address", `temporal: namespace: "n1"`, "", false, "temporal.address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "muster.cue")
			if err := os.WriteFile(file, []byte("database: url: \"postgres://h/d\"\n"+tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := config.Load(config.Input{Schema: muster.Bundle(), File: file})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) || strings.Contains(err.Error(), "s3cret") {
					t.Errorf("%v, not an error that names %s", err, tt.err)
				}
				return
			}
			c := r.Config.Temporal
			switch {
			case err != nil || (c == nil) != (tt.address == ""):
				t.Fatalf("%+v, %v", c, err)
			case c == nil:
			case c.Address != tt.address || c.Namespace != "muster" || (c.TLS != nil) != tt.tls:
				t.Errorf("it comes to %+v", c)
			case c.TLS != nil && c.TLS.Key != "" && c.TLS.Key != filepath.Join(filepath.Dir(file), "k"):
				t.Errorf("the key's file is %s, not beside the configuration", c.TLS.Key)
			}
		})
	}
}
