package reconciler

import (
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/slurm"
)

// SourceMeter counts the calls to source systems, by endpoint.
type SourceMeter struct {
	calls      *prometheus.HistogramVec // endpoint, method, status
	retries    *prometheus.CounterVec   // endpoint
	breaker    *prometheus.GaugeVec     // endpoint
	unmodelled *prometheus.CounterVec   // site, token
	decode     *prometheus.CounterVec   // site, fact

	bmcUnmodelled *prometheus.CounterVec // site, fact
	bmcDecode     *prometheus.CounterVec // site, fact
	bmcTries      *prometheus.CounterVec // site, result
	bmcRound      *prometheus.GaugeVec   // site
}

// NewSourceMeter registers the counters.
func NewSourceMeter(reg prometheus.Registerer) (*SourceMeter, error) {
	m := &SourceMeter{
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "muster_source_call_seconds",
			Help: "Calls to source systems; status 0 had no answer.", Buckets: prometheus.ExponentialBuckets(0.005, 2.5, 10)}, []string{"endpoint", "method", "status"}),
		retries:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_source_retries_total", Help: "Calls that were tried again."}, []string{"endpoint"}),
		breaker:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_source_breaker_open", Help: "1 while calls to the endpoint are refused by our own breaker."}, []string{"endpoint"}),
		unmodelled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_slurm_unmodelled_total", Help: "State tokens of SLURM that muster does not know."}, []string{"site", "token"}),
		decode:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_slurm_decode_failed_total", Help: "Single fields of SLURM nodes that could not be read."}, []string{"site", "fact"}),

		bmcUnmodelled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_bmc_unmodelled_total", Help: "Values of BMCs that muster does not know."}, []string{"site", "fact"}),
		bmcDecode:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_bmc_decode_failed_total", Help: "Single facts of BMCs that could not be read."}, []string{"site", "fact"}),
		bmcTries:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: "muster_bmc_tries_total", Help: "BMCs that were asked in rounds: answered (refusals included), refused, silent."}, []string{"site", "result"}),
		bmcRound:      prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "muster_bmc_round_seconds", Help: "Time of the newest round over a site's BMCs."}, []string{"site"}),
	}
	for _, c := range []prometheus.Collector{
		m.calls, m.retries, m.breaker, m.unmodelled, m.decode, m.bmcUnmodelled, m.bmcDecode, m.bmcTries, m.bmcRound,
	} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of sources: %w", err)
		}
	}
	return m, nil
}

// Call counts one try.
func (m *SourceMeter) Call(endpoint, method string, status int, took time.Duration) {
	m.calls.WithLabelValues(endpoint, method, strconv.Itoa(status)).Observe(took.Seconds())
}

// Retry counts a call that is tried again.
func (m *SourceMeter) Retry(endpoint string) { m.retries.WithLabelValues(endpoint).Inc() }

// Breaker shows whether calls are refused.
func (m *SourceMeter) Breaker(endpoint string, open bool) {
	value := 0.0
	if open {
		value = 1
	}
	m.breaker.WithLabelValues(endpoint).Set(value)
}

// Slurm gives the meter of one site's SLURM client.
func (m *SourceMeter) Slurm(site string) slurm.Meter { return slurmMeter{m, site} }

type slurmMeter struct {
	*SourceMeter
	site string
}

// Unmodelled counts a token; its node is in the log alone.
func (m slurmMeter) Unmodelled(_, token string) { m.unmodelled.WithLabelValues(m.site, token).Inc() }

// DecodeFailed counts a field.
func (m slurmMeter) DecodeFailed(fact string) { m.decode.WithLabelValues(m.site, fact).Inc() }

// Redfish gives the meter of one site's BMCs.
func (m *SourceMeter) Redfish(site string) redfish.Meter { return redfishMeter{m, site} }

type redfishMeter struct {
	*SourceMeter
	site string
}

// Unmodelled counts a value; which it was is in the log alone.
func (m redfishMeter) Unmodelled(fact, _ string) { m.bmcUnmodelled.WithLabelValues(m.site, fact).Inc() }

// DecodeFailed counts a fact.
func (m redfishMeter) DecodeFailed(fact string) { m.bmcDecode.WithLabelValues(m.site, fact).Inc() }

// Round counts who was asked.
func (m redfishMeter) Round(answered, silent, refused int, took time.Duration) {
	for result, n := range map[string]int{"answered": answered, "silent": silent, "refused": refused} {
		m.bmcTries.WithLabelValues(m.site, result).Add(float64(n))
	}
	m.bmcRound.WithLabelValues(m.site).Set(took.Seconds())
}
