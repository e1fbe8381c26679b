package engine

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/musterhq/muster/facts"
)

// FuzzLoad puts arbitrary text in the place of a policy file: it loads, or it is
// refused with findings that say where; it never panics, and a bundle that loads
// judges an empty device.
func FuzzLoad(f *testing.F) {
	mini := miniFiles(f)
	const file = "policies/status/status.cue"
	whole := string(mini[file].Data)
	f.Add(whole)
	for _, edit := range [][2]string{
		{`"True"`, `!="True"`}, {`"True"`, `=~"^T"`}, {`"True"`, `*"True" | "Unknown"`}, {`"True"`, `"Tru"`}, {`"True"`, `<"U"`}, {`"True"`, `string`},
		{`then: "failed"`, ``}, {`otherwise: "free"`, `otherwise: otherwise`}, {`rungs: [`, `rungs: [for x in [1, 2] {`}, {`"healthy" | "unknown"`, `!="critical" & !="degraded"`},
		{`#when: conditions: Failed: "True"`, `#when: any: [{conditions: Failed: "True"}, {}]`},
		{`#when: conditions: Failed: "True"`, `#when: not: [{conditions: Failed: "True"}, {conditions: Maintenance: !="False"}]`},
		{`#when: conditions: Failed: "True"`, `#when: {conditions: Failed: "True"} | {conditions: Maintenance: "True"}`},
		{`#when: conditions: Failed: "True"`, `#when: {if true {conditions: Failed: "True"}}`},
	} {
		f.Add(strings.Replace(whole, edit[0], edit[1], 1))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 8<<10 {
			t.Skip("longer than any policy file needs to be to break the loader")
		}
		tree := fstest.MapFS{}
		for name, file := range mini {
			tree[name] = file
		}
		tree[file] = &fstest.MapFile{Data: []byte(text)}
		started := time.Now()
		b, findings, err := Load(tree, Options{})
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("the load took %v", took)
		}
		if err != nil {
			if b != nil || len(findings) == 0 && !strings.Contains(err.Error(), "read bundle") {
				t.Fatalf("refused without a finding: %v", err)
			}
			return
		}
		device := &facts.Facts{}
		var c facts.Codes
		device.Intern(&c)
		b.Health(device, &c)
		b.Frozen(device, &c)
		b.CustomerReady(device, &c)
		b.operational.byMasks(0, b.absentUnknown)
		if status := b.RungName(b.Derive(&Standing{})); status == "" {
			t.Error("no rung")
		}
	})
}

// FuzzTemplate reads arbitrary texts: one that is accepted renders within its
// limit.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"", "plain", "{ironic.last_error}", "{ironic.provision_state:camel}", "{", "}", "{}", "a{slurm.reason}b{bmc.failures}", "{ironic.traits}"} {
		f.Add(text, "why")
	}
	f.Fuzz(func(t *testing.T, text, fact string) {
		tmpl, err := templateOf(text)
		if err != nil {
			return
		}
		device := &facts.Facts{}
		device.Ironic.LastError, device.Slurm.Reason = facts.TextOf(fact), facts.TextOf(fact)
		if got := tmpl.render(device, maxReason); len([]rune(got)) > maxReason || strings.ContainsRune(got, 0) {
			t.Errorf("%q rendered to %q", text, got)
		}
	})
}
