package rack

import (
	"testing"
	"time"

	"github.com/musterhq/muster/operations/component"
)

// BenchmarkARack measures what a rack's task on a real Temporal takes over its
// longest path: of 18 trays three rounds of six, each 200 ms. What is more than
// that is overhead, of which the one look behind is a part.
func BenchmarkARack(b *testing.B) {
	c := realTemporal(b)
	const each, rounds = 200 * time.Millisecond, 3
	var over time.Duration
	for range b.N {
		h := newHall(ruleOf(b, "power_control", "power_off", `steps:
- component_type: compute
  stage: 1
  max_parallel: 6
  main_operation: {name: PowerControl}
  post_operation: [{name: VerifyPowerStatus, timeout: 30s, poll_interval: 1s, parameters: {expected_status: "off"}}]
`), 18, 0, 0, component.On)
		h.takes = each
		l := newLive(b, c, h)
		began := time.Now()
		ended(b, l.begin(b, TaskWorkflow), nil)
		over += time.Since(began) - rounds*each
		h.ends(b, "succeeded")
		l.stop()
	}
	b.ReportMetric(float64(over.Milliseconds())/float64(b.N), "ms-over/op")
}
