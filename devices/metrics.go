package devices

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count what the service does; none has a label per device.
type metrics struct {
	readings    *prometheus.CounterVec   // source, result
	rows        *prometheus.CounterVec   // table
	changes     *prometheus.CounterVec   // kind
	apply       *prometheus.HistogramVec // source
	projection  prometheus.Histogram
	projected   *prometheus.CounterVec // result
	leaseLosses prometheus.Counter
}

func newMetrics() *metrics {
	buckets := prometheus.ExponentialBuckets(0.001, 2, 14)
	return &metrics{
		readings: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_readings_total",
			Help: "Readings of sources by what became of them."}, []string{"source", "result"}),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_rows_written_total",
			Help: "Rows that judgements wrote."}, []string{"table"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_status_changes_total",
			Help: "Changes of a status axis, births included."}, []string{"kind"}),
		apply: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_apply_seconds",
			Help: "Time to apply one batch of readings.", Buckets: buckets}, []string{"source"}),
		projection: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "muster_projection_seconds",
			Help: "Time to verify every device of one site.", Buckets: buckets}),
		projected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_projected_devices_total",
			Help: "Devices that projections verified, and those of them that had to be written."}, []string{"result"}),
		leaseLosses: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_stale_leases_total",
			Help: "Writes refused because the lease of the sweep had passed to another replica."}),
	}
}

// Instrument registers the service's metrics; call it before the first use.
func (s *Service) Instrument(reg prometheus.Registerer) error {
	m := s.metrics
	for _, c := range []prometheus.Collector{m.readings, m.rows, m.changes, m.apply, m.projection, m.projected, m.leaseLosses} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register the metrics of devices: %w", err)
		}
	}
	return nil
}

func (m *metrics) applied(source string, a *Applied, took time.Duration) {
	for result, n := range map[string]int{
		"changed": a.Changed, "unchanged": a.Unchanged, "ignored": a.Ignored, "unknown": len(a.Unknown), "refused": len(a.Refused),
	} {
		m.readings.WithLabelValues(source, result).Add(float64(n))
	}
	m.apply.WithLabelValues(source).Observe(took.Seconds())
}

func (m *metrics) wrote(r Rows, changes map[string]int) {
	for table, n := range map[string]int{
		"devices": r.Devices, "facts": r.Facts, "conditions": r.Conditions, "device_writers": r.Writers, "lifecycle_events": r.Events,
	} {
		m.rows.WithLabelValues(table).Add(float64(n))
	}
	for kind, n := range changes {
		m.changes.WithLabelValues(kind).Add(float64(n))
	}
}
