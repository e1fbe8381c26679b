package engine

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/musterhq/muster/facts"
)

func TestTemplatesQuoteFacts(t *testing.T) {
	t.Parallel()
	f := &facts.Facts{}
	f.Ironic.ProvisionState = facts.ProvisionStateDeployFailed
	f.Ironic.LastError = facts.TextOf("no \x00image\x1b[31m")
	f.Ironic.MaintenanceReason = facts.TextOf(strings.Repeat("ä", 2000))
	f.Ironic.Fault = facts.TextOf("1st ... fault")
	f.BMC.Failures = facts.BMCFailures(3) // the third value, 2
	for name, test := range map[string]struct{ text, want string }{
		"plain":               {"MaintenanceSet", "MaintenanceSet"},
		"an enum":             {"Ironic says {ironic.provision_state}", "Ironic says deploy failed"},
		"a reason":            {"{ironic.provision_state:camel}", "DeployFailed"},
		"null says so":        {"fault {ironic.target_power_state}", "fault null"},
		"null as a reason":    {"{ironic.power_state:camel}", "Null"},
		"a digit first":       {"{ironic.fault:camel}", "X1stFault"},
		"a number":            {"{bmc.failures} tries", "2 tries"},
		"what cannot be kept": {"{ironic.last_error}", "no image [31m"},
		"two":                 {"{bmc.failures}{ironic.fault}.", "21st ... fault."},
	} {
		tmpl, err := templateOf(test.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.render(f, 64); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	long, _ := templateOf("{ironic.maintenance_reason}")
	if got := long.render(f, maxMessage); utf8.RuneCountInString(got) != maxMessage || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%d runes", utf8.RuneCountInString(got))
	}
	for _, bad := range []string{"{ironic.typo}", "{ironic.fault", "{}", "{ironic.traits}"} {
		if _, err := templateOf(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
