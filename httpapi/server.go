package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

const (
	maxBody           = 8 << 20 // bytes
	maxHeader         = 64 << 10
	readHeaderTimeout = 10 * time.Second
	readTimeout       = 30 * time.Second // of a whole request
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Policies tells by what is decided. devices.Policy implements it.
type Policies interface {
	Current() *engine.Bundle // nil while none is loaded
	Status() devices.PolicyStatus
}

// Deps are what a server is made of.
type Deps struct {
	DB       *store.DB
	Devices  *devices.Service
	Policies Policies
	Jobs     *jobs.Service // nil only where ProcessOnly

	Operations *operations.Service // nil only where ProcessOnly

	// Auth tells whose a credential is. Nil: whoever asks from this machine may
	// do everything, others nothing; see CheckExposure.
	Auth Authenticator

	// ProcessOnly leaves out the API and the page: health, readiness and metrics
	// are all that a replica of other roles answers.
	ProcessOnly bool

	Clock    func() time.Time // the database's
	Log      hclog.Logger
	Registry *prometheus.Registry // what /metrics shows; the server's own metrics are added to it

	Rate            Rate          // of one principal
	RequestTimeout  time.Duration // of one answer, default 30 s
	ShutdownTimeout time.Duration // to finish what is under way, default 20 s
}

// Server answers the API. It keeps no state between requests but the buckets of
// its rate limits and who follows events.
type Server struct {
	Deps
	routes   []route
	contract *contract
	pages    *pages
	router   *mux.Router
	limiter  *limiter
	metrics  *metrics
	draining atomic.Bool
	ending   chan struct{} // closed when Serve is to end: who follows events is let go
	streams  chan struct{} // one a connection that follows events

	formSecret []byte // of this process, where nobody logs in
}

// New makes a server. It fails where the OpenAPI document and the routes are
// not of one mind.
func New(d Deps) (*Server, error) {
	if d.RequestTimeout == 0 {
		d.RequestTimeout = 30 * time.Second
	}
	if d.ShutdownTimeout == 0 {
		d.ShutdownTimeout = 20 * time.Second
	}
	s := &Server{Deps: d, limiter: newLimiter(d.Rate, time.Now), ending: make(chan struct{}), streams: make(chan struct{}, streamsMost)}
	s.formSecret = make([]byte, tokenBytes)
	_, _ = rand.Read(s.formSecret) // never fails
	var err error
	if s.contract, err = loadContract(); err != nil {
		return nil, err
	}
	if s.pages, err = loadPages(); err != nil {
		return nil, err
	}
	if s.routes = s.table(); d.ProcessOnly {
		s.routes = slices.DeleteFunc(s.routes, func(one route) bool { return !ofProcess(one.path) })
	}
	if s.router, err = s.newRouter(); err != nil {
		return nil, err
	}
	if s.metrics, err = newMetrics(d.Registry); err != nil {
		return nil, err
	}
	return s, nil
}

// Serve answers on l until ctx ends, then finishes what is under way. It is
// called once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		ErrorLog: s.Log.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the API on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.draining.Store(true)
	close(s.ending)
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.ShutdownTimeout)
	defer cancel()
	err := server.Shutdown(ending)
	if err != nil {
		err = errors.Join(fmt.Errorf("stop the API within %s: %w", s.ShutdownTimeout, err), server.Close())
	}
	<-served
	return err
}
