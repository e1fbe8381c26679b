package reconciler

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// metrics count what the loops do; none has a label per device.
type metrics struct {
	sweeps      *prometheus.HistogramVec // source, result
	records     *prometheus.CounterVec   // source
	undecodable *prometheus.CounterVec   // source
	dropped     *prometheus.CounterVec   // source
	concluded   *prometheus.CounterVec   // source, outcome
	projections *prometheus.CounterVec   // result
	leaseLosses prometheus.Counter
	queue       *prometheus.GaugeVec // queue
	age         *prometheus.GaugeVec // site, source
	failing     *prometheus.GaugeVec // site, source
	withheld    *prometheus.GaugeVec // site, source
	findings    *prometheus.GaugeVec // site, source, kind
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		sweeps: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_sweep_seconds",
			Help: "Time of one sweep of one source of one site.", Buckets: prometheus.ExponentialBuckets(0.01, 2, 16)}, []string{"source", "result"}),
		records:     counter("muster_sweep_records_total", "Records that listings gave.", "source"),
		undecodable: counter("muster_sweep_undecodable_total", "Records that could not be read.", "source"),
		dropped:     counter("muster_sweep_dropped_total", "Records without a readable identity.", "source"),
		concluded:   counter("muster_sweep_concluded_total", "What ends of listings concluded: gone, missing, joined, moved, born, ambiguous, unjoined.", "source", "outcome"),
		projections: counter("muster_projections_total", "Projections of whole sites.", "result"),
		leaseLosses: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_lease_losses_total", Help: "Leases that passed to another replica while this one worked."}),
		queue:       gauge("muster_queue_age_seconds", "Age of the oldest work that is due and that nobody works on.", "queue"),
		age:         gauge("muster_source_age_seconds", "Age of the newest complete listing; -1 before the first.", "site", "source"),
		failing:     gauge("muster_source_failing_seconds", "How long the source has been failing; 0 while it works.", "site", "source"),
		withheld:    gauge("muster_source_withheld", "1 while a listing is not believed and waits for a person.", "site", "source"),
		findings:    gauge("muster_source_findings", "Findings of the newest listing.", "site", "source", "kind"),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.sweeps, m.records, m.undecodable, m.dropped, m.concluded, m.projections, m.leaseLosses, m.queue, m.age, m.failing, m.withheld, m.findings,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of the reconciler: %w", err)
		}
	}
	return m, nil
}

// observe shows the state of all sources as the database has it, the same on
// every replica.
func (r *Reconciler) observe(ctx context.Context, sites []fleet.Site) error {
	sweep, projection, err := store.Backlog(ctx, r.DB)
	if err != nil {
		return err
	}
	reports, err := store.AllSourceReports(ctx, r.DB)
	if err != nil {
		return err
	}
	m, now, names := r.metrics, r.DB.Now(), map[int64]string{}
	for i := range sites {
		names[sites[i].ID] = sites[i].Spec.Name
	}
	m.queue.WithLabelValues("sweeps").Set(sweep.Seconds())
	m.queue.WithLabelValues("projections").Set(projection.Seconds())
	for _, vector := range []*prometheus.GaugeVec{m.age, m.failing, m.withheld, m.findings} {
		vector.Reset()
	}
	for i := range reports {
		site := names[reports[i].SiteID]
		if site == "" {
			site = strconv.FormatInt(reports[i].SiteID, 10)
		}
		m.report(site, &reports[i], now)
	}
	return nil
}

func (m *metrics) report(site string, s *store.SourceReport, now time.Time) {
	age, failing, withheld := -1.0, 0.0, 0.0
	if !s.At.IsZero() {
		age = now.Sub(s.At).Seconds()
	}
	if !s.FailingSince.IsZero() {
		failing = now.Sub(s.FailingSince).Seconds()
	}
	if s.Alert != "" {
		withheld = 1
	}
	m.age.WithLabelValues(site, s.Source).Set(age)
	m.failing.WithLabelValues(site, s.Source).Set(failing)
	m.withheld.WithLabelValues(site, s.Source).Set(withheld)
	for kind, n := range s.Findings {
		m.findings.WithLabelValues(site, s.Source, kind).Set(float64(n))
	}
}
