package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics count answers by route template and status class: how many label
// values there are does not depend on the fleet.
type metrics struct {
	seconds *prometheus.HistogramVec // method, route, class
}

func newMetrics(registry *prometheus.Registry) (*metrics, error) {
	m := &metrics{seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "muster_http_request_seconds", Help: "Time to answer requests, by route and class of status.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	}, []string{"method", "route", "class"})}
	if err := registry.Register(m.seconds); err != nil {
		return nil, fmt.Errorf("register the metrics of the API: %w", err)
	}
	return m, nil
}

func (m *metrics) answered(method, route string, status int, took time.Duration) {
	if route == "" {
		route, method = "none", "" // methods of unknown addresses are the caller's choice
	}
	m.seconds.WithLabelValues(method, route, strconv.Itoa(status/100)+"xx").Observe(took.Seconds())
}

func (s *Server) serveMetrics(w http.ResponseWriter, r *http.Request) {
	promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{Timeout: s.RequestTimeout}).ServeHTTP(w, r)
}
