package workflows

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/jobs/codes"
)

// metrics count what becomes of work; none has a label per device.
type metrics struct {
	devices   *prometheus.CounterVec // workflow, status, code
	internal  *prometheus.CounterVec // workflow
	handed    *prometheus.CounterVec // act, result
	converged *prometheus.CounterVec // found
	queues    prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		devices: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_job_devices_ended_total",
			Help: "Devices of jobs whose work ended, by how, and by the code of those that failed."}, []string{"workflow", "status", "code"}),
		internal: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_job_internal_errors_total",
			Help: "Devices of jobs that failed with an error that has no code. It should be zero."}, []string{"workflow"}),
		handed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_executions_handed_total",
			Help: "Starts and cancels that were handed to Temporal, and those that it did not take."}, []string{"act", "result"}),
		converged: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_executions_converged_total",
			Help: "Executions whose rows did not agree with Temporal, by what Temporal said."}, []string{"found"}),
		queues: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_worker_queues",
			Help: "Task queues of Temporal that this replica takes work from. 0: Temporal is away."}),
	}
	for _, c := range []prometheus.Collector{m.devices, m.internal, m.handed, m.converged, m.queues} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of workflows: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) ended(workflow string, e ending) {
	m.devices.WithLabelValues(workflow, string(e.Status), string(e.Code)).Inc()
	if e.Code == codes.InternalError {
		m.internal.WithLabelValues(workflow).Inc()
	}
}
