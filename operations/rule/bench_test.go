package rule_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/operations/rule"
)

func BenchmarkRule(b *testing.B) {
	v := validator(b)
	data, err := os.ReadFile("testdata/examples/forceful_power_on.json")
	if err != nil {
		b.Fatal(err)
	}
	var many strings.Builder
	many.WriteString("steps:\n")
	for i := range 100 {
		fmt.Fprintf(&many, "- {component_type: compute, stage: %d, pre_operation: [{name: Sleep, parameters: {duration: 1s}}], main_operation: {name: PowerControl}, post_operation: [{name: VerifyPowerStatus, timeout: 1m, poll_interval: 1s, parameters: {expected_status: \"on\"}}]}\n", i+1)
	}
	for name, d := range map[string]rule.Document{"6 steps": {Data: data}, "100 steps": {Data: []byte(many.String()), YAML: true}} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				if _, err := v.Steps(d, rule.Head{Name: "x", OperationType: "power_control", Operation: "power_on"}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
