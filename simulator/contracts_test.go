package simulator_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
)

// asked is one request to a service of muster's own contracts.
func asked(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The small contracts of a site know their token, fail by rules as every system
// does, tell what was asked of them without a secret, and know it after a
// restart.
func TestTheSmallContractsOfASite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	e, end := run(t, dir)
	site := e.Sites[1]
	token := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	if e.Sites[0].Credentials != "" || e.Sites[0].DHCP == "" || e.Sites[0].Topology == "" {
		t.Errorf("the first site has %+v", e.Sites[0])
	}
	const reservation = `{"mac": "b8:ce:f6:00:00:01", "address": "127.2.1.200"}`
	for _, c := range []struct {
		method, url, token, body string
		status                   int
	}{
		{"PUT", site.DHCP + "/v1/reservations/d1", "wrong", reservation, 401},
		{"PUT", site.DHCP + "/v1/reservations/d1", token(e.Secrets.DHCP), reservation, 201},
		{"PUT", site.DHCP + "/v1/reservations/d1", token(e.Secrets.DHCP), reservation, 200},
		{"PUT", site.DHCP + "/v1/reservations/d1", token(e.Secrets.DHCP), "{", 400},
		{"PUT", site.DHCP + "/v1/reservations/d1", token(e.Secrets.DHCP), `{"device": "d2", "mac": "b8:ce:f6:00:00:01", "address": "127.2.1.200"}`, 422},
		{"POST", site.DHCP + "/v1/reservations/d1", token(e.Secrets.DHCP), reservation, 405},
		{"PUT", site.Credentials + "/v1/credentials/d1", token(e.Secrets.Topology), "", 401},
		{"PUT", site.Credentials + "/v1/credentials/d1", token(e.Secrets.Credentials), "", 201},
		{"PUT", site.Credentials + "/v1/credentials/d1", token(e.Secrets.Credentials), "", 200},
		{"PUT", site.Credentials + "/v1/credentials/d1", token(e.Secrets.Credentials), `{"user": "admin"}`, 422},
		{"PUT", site.Credentials + "/v1/credentials/d2", token(e.Secrets.Credentials), `{"user": "admin", "password": "given-canary"}`, 201},
		{"POST", site.Topology + "/v1/sync-intents", token(e.Secrets.Topology), `{"name": "n", "device": "d1", "site": "sim2", "action": "remove"}`, 202},
		{"GET", site.Topology + "/v1/sync-intents/none", token(e.Secrets.Topology), "", 404},
		{"DELETE", site.DHCP + "/v1/reservations/none", token(e.Secrets.DHCP), "", 404},
	} {
		if status, body := asked(t, c.method, c.url, c.token, c.body); status != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.method, c.url, c.body, status, body, c.status)
		}
	}
	_, minted := asked(t, "GET", site.Credentials+"/v1/credentials/d1", token(e.Secrets.Credentials), "")
	where, _, err := simulator.ReadControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := control.Dial(where.URL, where.Token)
	var told []string
	effects, err := c.Effects(t.Context(), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range effects.Effects {
		told = append(told, one.Face+" "+one.Op+" "+one.Subject)
	}
	if want := "dhcp reserve d1, credentials mint d1, credentials store d2, topology declare remove d1"; strings.Join(told, ", ") != want || strings.Contains(fmt.Sprint(effects), "canary") {
		t.Errorf("told is %v", effects.Effects)
	}
	for _, face := range []string{"dhcp", "credentials", "topology"} {
		rule, err := c.Fault(t.Context(), control.Fault{Rule: faultproxy.Rule{Kind: faultproxy.Status, Face: face, Site: "sim2", Code: 503}})
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := asked(t, "GET", strings.Replace(site.DHCP, "/dhcp", "/"+face, 1)+"/v1/x", token(e.Secrets.DHCP), ""); status != 503 {
			t.Errorf("%s answers %d under the rule %+v", face, status, rule)
		}
	}
	end()
	e, _ = run(t, dir)
	if status, body := asked(t, "GET", e.Sites[1].Credentials+"/v1/credentials/d1", token(e.Secrets.Credentials), ""); status != 200 || body != minted {
		t.Errorf("after a restart: %d, the same: %v", status, body == minted)
	}
}
