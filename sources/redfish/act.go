package redfish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// What a write can end with beside an error of the BMC. Callers tell them apart
// with errors.Is.
var (
	// ErrUnknownOutcome says that the answer to a write was lost and that nothing
	// tells whether it was carried out. It must not be sent again blindly.
	ErrUnknownOutcome = errors.New("the answer was lost, and what can be read does not tell whether it was carried out")
	// ErrNoEffect says that the BMC accepted a write which then changed nothing.
	ErrNoEffect = errors.New("accepted_without_effect: the BMC accepted it, and nothing changed")
	// ErrNotAllowed says that the BMC declares none of the ways that were given.
	ErrNotAllowed = errors.New("the BMC declares none of the ways that were asked for")
)

// logoutTimeout is for the end of a session, whatever became of the act.
const logoutTimeout = 5 * time.Second

// acting opens one BMC for an act. Its login is known to be usable.
func (c *Client) acting(ctx context.Context, op string, target Target) (*bmc, *sources.Error) {
	return c.actingAs(op, target, c.logins().of(ctx, target.Name))
}

func (c *Client) actingAs(op string, target Target, l login) (*bmc, *sources.Error) {
	b := c.bmc(target, l)
	switch {
	case !b.anonymous:
		return b, nil
	case l.err != nil:
		b.close()
		return nil, unusable(op, l)
	}
	b.close()
	return nil, &sources.Error{Kind: sources.KindForbidden, Op: op, Message: b.why.Error(), Err: b.why}
}

// Login shows that a BMC takes the credential: what only its accounts may read is
// read, then a session is opened and ended. Nothing else is done.
func (c *Client) Login(ctx context.Context, target Target) error {
	op := "log in to the BMC of " + target.Name
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return fault
	}
	defer b.close()
	if err := b.lets(ctx); err != nil {
		return c.failure(op, nil, err)
	}
	return nil
}

// lets shows that the BMC takes the login.
func (b *bmc) lets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.client.config.Timeout)
	defer cancel()
	if err := b.root(ctx); err != nil {
		return err
	}
	if _, err := b.listed(ctx, b.service("Systems")); err != nil {
		return err
	}
	_, end, err := b.session(ctx)
	if err != nil {
		return err
	}
	end()
	return nil
}

// Power is what a machine's power was seen to be.
type Power struct {
	State  string // "" where the BMC does not say or muster does not know it
	Marker string // changes with each reset; "" where the BMC has none
	At     time.Time
}

// Power reads a machine's power, or a shelf's, now.
func (c *Client) Power(ctx context.Context, target Target) (Power, error) {
	op := "read the power of " + target.Name
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return Power{}, fault
	}
	defer b.close()
	p, err := b.power(ctx)
	if err != nil {
		return Power{}, c.failure(op, nil, err)
	}
	return p, nil
}

func (b *bmc) power(ctx context.Context) (Power, error) {
	if b.target.Class == facts.DeviceClassPowershelf {
		return b.shelfPower(ctx)
	}
	_, a, err := b.machine(ctx)
	if err != nil {
		return Power{}, err
	}
	return powerNow(a), nil
}

func powerNow(a *answer) Power {
	state, _ := powerOf(a.doc)
	return Power{State: state, Marker: marker(a.doc), At: a.at}
}

func (b *bmc) shelfPower(ctx context.Context) (Power, error) {
	s := &scan{bmc: b, f: &facts.BMC{}}
	at := b.client.clock()
	if err := b.root(ctx); err != nil {
		return Power{}, err
	}
	if err := s.chassisList(ctx); err != nil {
		return Power{}, err
	}
	s.shelf(ctx)
	return Power{State: s.f.PowerState.String(), At: at}, nil
}

// marker gives what changes with each reset of a System: when it was last
// reset, else when its boot last came to a new stage. Instants before the year
// 2000 are clocks that were never set.
func marker(system document) string {
	if at := system.text("LastResetTime"); set(at) {
		return "reset at " + at
	}
	if at := system.object("BootProgress").text("LastStateTime"); set(at) {
		return "boot stage at " + at
	}
	return ""
}

func set(text string) bool {
	at, err := sources.ParseTime(text)
	return err == nil && at.Year() >= 2000
}

// machine finds the System that is the machine and reads it.
func (b *bmc) machine(ctx context.Context) (uri string, a *answer, err error) {
	if b.services == nil {
		if err := b.root(ctx); err != nil {
			return "", nil, err
		}
	}
	systems, err := b.listed(ctx, b.service("Systems"))
	if err != nil {
		return "", nil, err
	}
	if uri, err = b.host(systems); err != nil {
		return "", nil, err
	}
	if uri, err = b.path(uri); err != nil {
		return "", nil, err
	}
	a, err = b.get(ctx, uri)
	return uri, a, err
}

// session logs in with gofish for one act. Where the BMC has no sessions, or no
// slot for one, it is basic authentication. end closes the session whatever
// became of ctx; the login itself is not cut short by ctx, since a session whose
// id nobody learnt stays open.
func (b *bmc) session(ctx context.Context) (api *gofish.APIClient, end func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	config := gofish.ClientConfig{
		Endpoint: b.base, Username: b.login.user, Password: b.login.password,
		HTTPClient: b.http, ReuseConnections: true, NoModifyTransport: true,
	}
	apart := context.WithoutCancel(ctx)
	loggingIn, cancel := context.WithTimeout(apart, b.client.config.RequestTimeout)
	defer cancel()
	api, err = gofish.ConnectContext(loggingIn, config)
	if err == nil {
		session, none := api.GetSession()
		if none == nil && session.Token != "" {
			return api.WithContext(ctx), func() { b.logOut(apart, api) }, nil
		}
		err = &Refused{Class: ClassForeign, Status: http.StatusCreated, Text: "it logged in and gave no session"}
		if none == nil {
			b.logOut(apart, api)
		}
	}
	if ClassOf(asRefused(err)) == ClassCredential {
		b.refusedLogin()
		return nil, nil, asRefused(err)
	}
	config.BasicAuth = true
	if api, err = gofish.ConnectContext(loggingIn, config); err != nil {
		return nil, nil, asRefused(err)
	}
	return api.WithContext(ctx), func() {}, nil
}

func (b *bmc) logOut(apart context.Context, api *gofish.APIClient) {
	ctx, cancel := context.WithTimeout(apart, logoutTimeout)
	defer cancel()
	api.WithContext(ctx).Logout()
}

// asRefused turns gofish's error of an answer into ours, told by message id.
func asRefused(err error) error {
	var answered *schemas.Error
	if !errors.As(err, &answered) || answered.HTTPReturnedStatusCode == 0 {
		return err
	}
	a := &answer{status: answered.HTTPReturnedStatusCode, header: http.Header{}}
	_, raw, _ := strings.Cut(answered.Error(), ": ")
	a.body = []byte(raw)
	a.doc = parse(a.body)
	return a.refusal(false)
}

// sent is what became of one write.
type sent struct {
	err  error // of the BMC, classified, or of the way
	lost bool  // it may have been carried out although it failed
}

// written judges the error of a write.
func written(err error) sent {
	err = asRefused(err)
	var refused *Refused
	switch {
	case err == nil:
		return sent{}
	case errors.As(err, &refused):
		lost := refused.Status == http.StatusInternalServerError || refused.Status == http.StatusBadGateway || refused.Status == http.StatusGatewayTimeout
		return sent{err: err, lost: lost && refused.Class == ClassFault}
	}
	return sent{err: err, lost: !neverSent(err)}
}

// until reads again and again until done says so, at most for within. The
// last thing read is done's to keep. A reading that fails is tried again.
func (c *Client) until(ctx context.Context, within, pause time.Duration, look func(context.Context) (bool, error)) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		done, err = look(ctx)
		if done || ctx.Err() != nil {
			return done, err
		}
		if ClassOf(err) == ClassCredential {
			return false, err // looking on would lock the account
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return false, err
		}
	}
}

func refusedf(op string, err error, format string, args ...any) *sources.Error {
	return &sources.Error{Kind: sources.KindRefused, Op: op, Message: fmt.Sprintf(format, args...), Err: err}
}
