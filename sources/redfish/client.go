package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

// Target is one BMC as the inventory knows it.
type Target struct {
	Address string // the ref of its record: a name or an IP, a prefix length is ignored
	Name    string // of its device, for the choice of credentials
	Class   facts.DeviceClass
	Health  facts.RedfishHealth // of its chassis, as last read; null for none
}

// Credential names the secret for the BMCs whose device's name fits Match, a
// pattern with * and ?. The secret's text is user:password. Of RefStore it is the
// device's own, as Config.Store gives it; a device without one has the next
// credential that fits: that which its BMC came with.
type Credential struct {
	Match string
	Ref   string
}

// TLS says which certificate of a BMC is accepted: one that the system's
// authorities or those of CAFile vouch for, or, where fingerprints are given,
// one of these (with a CAFile besides, either).
type TLS struct {
	CAFile       string
	Fingerprints []string // SHA-256 of the leaf, hex with or without colons
	Insecure     bool     // any
}

// Config says which BMCs there are and how they are reached. Zero values take
// the defaults.
type Config struct {
	Targets     func(ctx context.Context) ([]Target, error)               // required
	Secret      func(ref string) (string, error)                          // required: resolves a Credential's Ref
	Store       func(ctx context.Context, device string) (Account, error) // what RefStore means; sources.ErrGone: the device has none there
	Credentials []Credential                                              // the first whose Match fits
	Port        int                                                       // default 443
	Networks    []string                                                  // CIDRs; an address outside all of them is not dialled
	TLS         TLS

	Timeout        time.Duration // of one BMC in a round, default 60 s
	ConnectTimeout time.Duration // default 10 s
	RequestTimeout time.Duration // of one request, default 20 s, never beyond Timeout
	InFlight       int           // BMCs asked at a time, default 256
	BodyLimit      int64         // bytes of one answer, default 8 MiB
	FirmwareEvery  time.Duration // how often a round reads the inventory of firmware, default 1 h

	Rand  func() float64 // in [0,1), for the order of a round; default none: the inventory's
	Meter Meter          // default none
}

// Meter receives what could not be used and how rounds went, for metrics. Its
// methods are called from many goroutines.
type Meter interface {
	Unmodelled(fact, value string) // a value that muster does not know
	DecodeFailed(fact string)      // a fact of one BMC that could not be read
	Round(answered, silent, refused int, took time.Duration)
}

type noMeter struct{}

func (noMeter) Unmodelled(string, string)          {}
func (noMeter) DecodeFailed(string)                {}
func (noMeter) Round(int, int, int, time.Duration) {}

// Client is the BMCs of one site. It may be used by many goroutines.
type Client struct {
	config   Config
	networks []netip.Prefix
	trust    trust
	clock    sources.Clock
	log      hclog.Logger
	refusals refusals
	firmware versions
	own      ownLogins

	bootSettle time.Duration // for a BMC to show what it was told

	mu       sync.Mutex
	suspects map[string]struct{} // address key: silent or slow in the round before
}

var _ sources.Source = (*Client)(nil)

// New gives a client. Nothing is asked of any BMC yet.
func New(c Config, clock sources.Clock, log hclog.Logger) (*Client, error) {
	const op = "configure the BMCs"
	if clock == nil || c.Targets == nil || c.Secret == nil {
		return nil, errors.New(op + ": a clock, targets and secrets are needed")
	}
	c = c.withDefaults()
	client := &Client{config: c, clock: clock, log: log, suspects: map[string]struct{}{}, bootSettle: 10 * time.Second}
	if log == nil {
		client.log = hclog.NewNullLogger()
	}
	client.log = client.log.Named("redfish")
	for _, text := range c.Networks {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is no network such as 10.20.0.0/16", op, text)
		}
		client.networks = append(client.networks, network)
	}
	if len(client.networks) == 0 {
		return nil, errors.New(op + ": at least one network is needed: BMCs are dialled only inside the site's networks")
	}
	for _, credential := range c.Credentials {
		if credential.Match == "" || credential.Ref == "" {
			return nil, errors.New(op + ": a credential needs a match and a ref")
		}
		if credential.Ref == RefStore && c.Store == nil {
			return nil, errors.New(op + ": a credential is in the store, and the site has no credentials service (sources.credentials)")
		}
	}
	var err error
	if client.trust, err = newTrust(c.TLS); err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return client, nil
}

func (c Config) withDefaults() Config {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.Timeout, 60*time.Second)
	def(&c.ConnectTimeout, 10*time.Second)
	def(&c.RequestTimeout, 20*time.Second)
	def(&c.FirmwareEvery, time.Hour)
	c.RequestTimeout = min(c.RequestTimeout, c.Timeout)
	if c.Port == 0 {
		c.Port = 443
	}
	if c.InFlight <= 0 {
		c.InFlight = 256
	}
	if c.BodyLimit <= 0 {
		c.BodyLimit = 8 << 20
	}
	if c.Meter == nil {
		c.Meter = noMeter{}
	}
	return c
}

// Close has nothing to release: connections live no longer than what they were
// opened for.
func (c *Client) Close() {}

// Get reads one BMC by its address. One that gives no answer is an error of
// KindTransient; one that the inventory does not have is refused, since an
// address says of nothing that it is gone.
func (c *Client) Get(ctx context.Context, ref string) (*sources.Record, error) {
	op := "read the BMC " + sources.CleanText(ref, 64)
	target, err := c.target(ctx, op, ref)
	if err != nil {
		return nil, err
	}
	record := c.poll(ctx, target, c.logins())
	if record.Unanswered != "" {
		return nil, &sources.Error{Kind: sources.KindTransient, Op: op, Message: record.Unanswered}
	}
	record.Ref = ref
	return &record, nil
}

func (c *Client) target(ctx context.Context, op, ref string) (Target, error) {
	targets, err := c.config.Targets(ctx)
	if err != nil {
		return Target{}, fmt.Errorf("%s: list the site's BMCs: %w", op, err)
	}
	key := fleet.AddressKey(ref)
	for _, t := range targets {
		if fleet.AddressKey(t.Address) == key {
			return t, nil
		}
	}
	return Target{}, &sources.Error{Kind: sources.KindRefused, Op: op, Message: "the inventory has no device with this BMC"}
}

// AllowLogin lets a credential that a BMC refused be tried there again: a person
// asks for it. An empty address means every BMC. What the store said is asked for
// anew.
func (c *Client) AllowLogin(address string) {
	c.refusals.forget(fleet.AddressKey(address))
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	clear(c.own.by)
}
