package schema_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
)

const site = `
name: "ams1"
engagement_mode: "fully_managed"
placement_enabled: false
trait_based: true
customer_ready_trait: "CUSTOM_READY"
lessees: {enrol: "p-enrol", slurm: "p-slurm", maintenance: ""}
inventory: "ironic"
sources: {
	ironic: {url: "https://ironic.example/v1", auth: "http_basic", username: "muster", password: "file:/run/secrets/ironic"}
	slurm: {url: "http://slurm.example:6820", token: "env:SLURM_JWT", versions: ["v0.0.42"]}
	bmc: {networks: ["10.0.0.0/8", "fd00::/8"], credentials: [{match: "r01-*", ref: "env:BMC"}]}
}
`

const config = `
database: url: "env:DATABASE"
listen: "[::1]:8480"
roles: ["api"]
auth: oidc: {issuer: "https://id.example", audience: "muster"}
sites: ["ams1.cue"]
`

// What an operator writes of a site and of the server is refused with the line
// of the mistake; a secret in the clear is one.
func TestSitesAndConfiguration(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		definition, text, from, to string
		refused                    string // "" where it is accepted
	}{
		"a site":                           {"#Site", site, "", "", ""},
		"a site of recordings":             {"#Site", site, `sources: {`, `sources: recorded: ironic: "ironic.json", sources: {`, ""},
		"slurmrestd on a socket":           {"#Site", site, `url: "http://slurm.example:6820", token: "env:SLURM_JWT", `, `url: "unix:/run/slurmrestd.sock", `, ""},
		"a name that is none":              {"#Site", site, `"ams1"`, `"AMS 1"`, "doc.cue:2:"},
		"a mode that is none":              {"#Site", site, `"fully_managed"`, `"managed"`, "doc.cue:3:"},
		"leases left out":                  {"#Site", site, "lessees: {enrol: \"p-enrol\", slurm: \"p-slurm\", maintenance: \"\"}\n", "", "lessees"},
		"one lease left out":               {"#Site", site, `enrol: "p-enrol", `, "", "enrol"},
		"Placement left open":              {"#Site", site, "placement_enabled: false\n", "", "placement_enabled"},
		"a trait-based site without trait": {"#Site", site, "customer_ready_trait: \"CUSTOM_READY\"\n", "", "customer_ready_trait"},
		"a password in the clear":          {"#Site", site, `"file:/run/secrets/ironic"`, `"hunter2"`, "doc.cue:10:"},
		"a password in the address":        {"#Site", site, `https://ironic.example/v1`, `https://muster:hunter2@ironic.example/v1`, "doc.cue:10:"},
		"basic auth without a user":        {"#Site", site, `username: "muster", `, "", "username"},
		"a key that is none":               {"#Site", site, `versions:`, `version:`, "doc.cue:11:"},
		"an API version that is none":      {"#Site", site, `"v0.0.42"`, `"42"`, "doc.cue:11:"},
		"a credential in the store":        {"#Site", site, `ref: "env:BMC"}]}`, `ref: "store"}]}, credentials: {url: "https://keys.example", token: "env:KEYS"}`, ""},
		"a store that there is not":        {"#Site", site, `"env:BMC"`, `"store"`, "sources.credentials"},
		"a service without an address":     {"#Site", site, `slurm: {`, `dhcp: {}, slurm: {`, "sources.dhcp.url"},
		"a network that is none":           {"#Site", site, `"10.0.0.0/8"`, `"10.0.0.0/40"`, "doc.cue:12:"},
		"NetBox without its sites":         {"#Site", site, `inventory: "ironic"`, `inventory: "netbox", netbox: instance: "main"`, "netbox.sites"},

		"a configuration":              {"#Config", config, "", "", ""},
		"a database address":           {"#Config", config, `"env:DATABASE"`, `"postgres://muster@db/muster"`, ""},
		"no database":                  {"#Config", config, "database: url: \"env:DATABASE\"\n", "", "database"},
		"another database":             {"#Config", config, `"env:DATABASE"`, `"mysql://db"`, "doc.cue:2:"},
		"a port alone":                 {"#Config", config, `"[::1]:8480"`, `"8480"`, "doc.cue:3:"},
		"a role that is none":          {"#Config", config, `["api"]`, `["api", "leader"]`, "doc.cue:4:"},
		"a weak algorithm":             {"#Config", config, `audience: "muster"`, `audience: "muster", algorithms: ["HS256"]`, "doc.cue:5:"},
		"a certificate without a key":  {"#Config", config, `roles: ["api"]`, `roles: ["api"], tls: certificate: "tls.pem"`, "key"},
		"a duration that is none":      {"#Config", config, `roles: ["api"]`, `roles: ["api"], shutdown_timeout: "20"`, "doc.cue:4:"},
		"a key that is none in config": {"#Config", config, `sites:`, `site:`, "doc.cue:6:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(tt.text, tt.from) {
				t.Fatalf("the document does not hold %q", tt.from)
			}
			text := strings.Replace(tt.text, tt.from, tt.to, 1)
			var into map[string]any
			err := engine.Decode(muster.Bundle(), tt.definition, "doc.cue", []byte(text), &into)
			switch {
			case tt.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.refused != "" && err == nil:
				t.Error("accepted")
			case tt.refused != "" && !strings.Contains(err.Error(), tt.refused):
				t.Errorf("the error lacks %q:\n%v", tt.refused, err)
			}
		})
	}
}
