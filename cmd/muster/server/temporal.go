package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/workflows"
)

const (
	temporalEvery = 10 * time.Second // between two looks at Temporal
	temporalAsk   = 5 * time.Second  // for its answer
)

// Temporal says where the workflows run.
type Temporal struct {
	Address   string // host:port
	Namespace string
	// Before the name of every task queue.
	TaskQueuePrefix string

	TLS         bool   // with the system's authorities where CA is empty
	CA          string // files
	Certificate string
	Key         string
	APIKey      string // file:PATH or env:NAME; read for every call, so that it can be replaced
}

// ConnectTemporal makes a client of a Temporal, which may be away: each call
// fails until it is there, and again while it is not. The caller closes it.
// What the configuration names wrongly is an error now.
func ConnectTemporal(o Temporal, log hclog.Logger) (client.Client, error) {
	c := client.Options{
		HostPort: o.Address, Namespace: o.Namespace, Identity: owner(), Logger: workflows.Logger(log.Named("temporal")),
	}
	if o.TLS {
		secure, err := o.tls()
		if err != nil {
			return nil, err
		}
		c.ConnectionOptions.TLS = secure
	}
	if o.APIKey != "" {
		if _, err := registry.Secret(o.APIKey); err != nil {
			return nil, fmt.Errorf("read Temporal's API key (temporal.api_key): %w", err)
		}
		c.Credentials = client.NewAPIKeyDynamicCredentials(func(context.Context) (string, error) { return registry.Secret(o.APIKey) })
	}
	lazy, err := client.NewLazyClient(c)
	if err != nil {
		return nil, fmt.Errorf("make a client of the Temporal at %s: %w", o.Address, err)
	}
	return lazy, nil
}

func (o *Temporal) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		text, err := os.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("read the authorities for Temporal (temporal.tls.ca): %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the authorities for Temporal (temporal.tls.ca): %s holds no certificate in PEM form", o.CA)
		}
	}
	if o.Certificate == "" {
		return c, nil
	}
	// Read for every connection: certificates are renewed while muster runs.
	read := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(o.Certificate, o.Key)
		if err != nil {
			return nil, fmt.Errorf("read the certificate for Temporal (temporal.tls.certificate, temporal.tls.key): %w", err)
		}
		return &pair, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	c.GetClientCertificate = read
	return c, nil
}

// temporalWatch looks at Temporal and tells when it goes and comes back. It
// changes nothing else: what muster knows and answers needs no Temporal.
type temporalWatch struct {
	client    client.Client
	namespace string
	log       hclog.Logger
	up        prometheus.Gauge
}

func newTemporalWatch(c client.Client, namespace string, log hclog.Logger, metrics prometheus.Registerer) (*temporalWatch, error) {
	w := &temporalWatch{client: c, namespace: namespace, log: log, up: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "muster_temporal_up", Help: "1 when Temporal answers and has the namespace, 0 when jobs wait for it.",
	})}
	if err := metrics.Register(w.up); err != nil {
		return nil, fmt.Errorf("register the metric of Temporal: %w", err)
	}
	return w, nil
}

// run looks until ctx ends.
func (w *temporalWatch) run(ctx context.Context, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var before error
	for first := true; ; first = false {
		err := w.look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil && (first || before != nil):
			w.up.Set(1)
			w.log.Info("Temporal answers", "namespace", w.namespace)
		case err != nil && (first || before == nil):
			w.up.Set(0)
			w.log.Warn("Temporal is away: jobs wait until it is back, all else goes on", "error", err)
		}
		before = err
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (w *temporalWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, temporalAsk)
	defer cancel()
	_, err := w.client.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: w.namespace})
	var missing *serviceerror.NamespaceNotFound
	if errors.As(err, &missing) {
		return fmt.Errorf("it has no namespace %s: create it there, or name another (temporal.namespace): %w", w.namespace, err)
	}
	return err
}
