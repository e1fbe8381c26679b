package main

import (
	"net/http"
	"strings"
	"testing"
)

func TestALoginIsAllowedAtWhatThePersonNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args     []string
		code     int
		sent     string
		answer   string
		contains string
	}{
		"an address":      {[]string{"192.0.2.1"}, 0, `{"address":"192.0.2.1"}`, `{"all": false, "addresses": ["192.0.2.1"]}`, "again at 192.0.2.1"},
		"a device":        {[]string{"--device", "7"}, 0, `{"device_id":7}`, `{"all": false, "addresses": ["192.0.2.2"]}`, "again at 192.0.2.2"},
		"the whole site":  {[]string{"--all"}, 0, `{"all":true}`, `{"all": true, "addresses": []}`, "every BMC of site lab"},
		"nothing":         {nil, exitUsage, "", "", "say at which BMC"},
		"one and all":     {[]string{"192.0.2.1", "--all"}, exitUsage, "", "", "say at which BMC"},
		"device and all":  {[]string{"--device", "7", "--all"}, exitUsage, "", "", "device"},
		"more than a BMC": {[]string{"192.0.2.1", "192.0.2.2"}, exitUsage, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := converse(t, map[string]func(http.ResponseWriter){"POST /sites/lab/sources/bmc/allow-login/": says(200, "%s", c.answer)})
			code, out, errs := server.types(t, append([]string{"bmc", "allow-login", "lab"}, c.args...)...)
			if code != c.code || !strings.Contains(out+errs, c.contains) || strings.TrimSpace(strings.Join(server.sent, "")) != c.sent {
				t.Errorf("code %d, %s %s, sent %q", code, out, errs, server.sent)
			}
		})
	}
}
