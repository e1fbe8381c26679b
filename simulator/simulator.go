package simulator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/slurm"
	"github.com/musterhq/muster/simulator/world"
)

// Options are what a simulator runs with.
type Options struct {
	Dir   string // everything is kept there
	Shape world.Shape
	Still bool             // nothing happens unless somebody asks for it
	Clock func() time.Time // default time.Now
	Log   hclog.Logger     // default none

	// Ready is told once everything listens.
	Ready func(Endpoints)
}

const (
	headerLimit = 10 * time.Second
	idleLimit   = 2 * time.Minute
	bmcIdle     = 15 * time.Second // BMCs keep few connections, and ten thousand of them on one machine none for long
	stopLimit   = 3 * time.Second  // for answers under way
	liveEvery   = time.Second      // what is due happens at the latest so late
)

// simulator is one run.
type simulator struct {
	Options
	world   *world.World
	rules   faultproxy.Rules
	secrets secrets
	said    Endpoints

	http, bmc net.Listener
}

// secrets are what the faces know their users by.
type secrets struct {
	password, slurm, netbox, bmc, control string
	dhcp, credentials, topology           string
}

// Run runs the fleet of a directory until ctx ends. One process at a time has a
// directory; a *world.ShapeError says that it holds a fleet of another size.
func Run(ctx context.Context, o Options) (err error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	s := &simulator{Options: o}
	if s.Dir, err = filepath.Abs(o.Dir); err != nil {
		return err
	}
	owned, err := lock(ctx, s.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, owned.Close()) }()
	if s.world, err = world.Open(world.Options{Dir: s.Dir, Shape: o.Shape, Clock: o.Clock, Lives: !o.Still}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.world.Close()) }()
	if err := s.readSecrets(); err != nil {
		return err
	}
	if err := s.listen(ctx); err != nil {
		return err
	}
	return s.serve(ctx)
}

// readSecrets gives the fleet its secrets, once, and writes for its users what
// they show.
func (s *simulator) readSecrets() error {
	dir := filepath.Join(s.Dir, "secrets")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the simulator's secrets: %w", err)
	}
	for name, one := range map[string]struct {
		into *string
		make func() string
	}{
		"password": {&s.secrets.password, rand.Text}, "netbox-token": {&s.secrets.netbox, netboxToken},
		"slurm-key": {&s.secrets.slurm, rand.Text}, "bmc-password": {&s.secrets.bmc, rand.Text},
		"dhcp-token": {&s.secrets.dhcp, rand.Text}, "credentials-token": {&s.secrets.credentials, rand.Text}, "topology-token": {&s.secrets.topology, rand.Text},
	} {
		text, err := secret(filepath.Join(dir, name), one.make)
		if err != nil {
			return fmt.Errorf("read the simulator's secret: %w", err)
		}
		*one.into = text
	}
	s.secrets.control = "sim_" + rand.Text()
	s.said.Secrets = Secrets{
		Password: filepath.Join(dir, "password"), NetBox: filepath.Join(dir, "netbox-token"),
		Slurm: filepath.Join(dir, "slurm-token"), BMC: filepath.Join(dir, "bmc"), Factory: filepath.Join(dir, "bmc-factory"),
		DHCP: filepath.Join(dir, "dhcp-token"), Credentials: filepath.Join(dir, "credentials-token"), Topology: filepath.Join(dir, "topology-token"),
	}
	err := writeFile(s.said.Secrets.BMC, bmcUser+":"+s.secrets.bmc+"\n")
	if err == nil {
		err = writeFile(s.said.Secrets.Factory, bmcUser+":"+world.FactoryPassword+"\n")
	}
	if err == nil {
		err = writeFile(s.said.Secrets.Slurm, slurm.Token([]byte(s.secrets.slurm), "root", s.Clock(), tokenLife)+"\n")
	}
	if err != nil {
		return fmt.Errorf("write the simulator's secrets: %w", err)
	}
	return nil
}

// tokenLife is how long SLURM's token is good for: it is made anew at each start.
const tokenLife = 365 * 24 * time.Hour

// netboxToken makes a token of NetBox's first kind: forty hexadecimal digits.
func netboxToken() string {
	var bytes [20]byte
	_, _ = rand.Read(bytes[:]) // it never fails
	return hex.EncodeToString(bytes[:])
}

// listen takes the ports of the last run, or others.
func (s *simulator) listen(ctx context.Context) (err error) {
	last, _, err := ReadEndpoints(s.Dir)
	if err != nil {
		return err
	}
	if s.http, err = listenAgain(ctx, &net.ListenConfig{}, "127.0.0.1", portIn(last.URL)); err != nil {
		return err
	}
	bmc, err := listenAgain(ctx, &net.ListenConfig{Control: onLoopback}, "0.0.0.0", last.BMCPort)
	if err != nil {
		return errors.Join(fmt.Errorf("listen for the BMCs: %w", err), s.http.Close())
	}
	s.bmc = loopbackOnly{bmc}
	s.said.PID, s.said.Shape, s.said.User = os.Getpid(), s.world.Shape(), userName
	s.said.URL, s.said.BMCPort = "http://"+s.http.Addr().String(), portOf(bmc)
	s.said.Sites, s.said.Devices = describe(s.world, s.said.URL)
	return nil
}

// serve says where everything is and answers until ctx ends.
func (s *simulator) serve(ctx context.Context) error {
	secure, err := s.bmcServer()
	if err != nil {
		return errors.Join(err, s.http.Close(), s.bmc.Close())
	}
	faces, err := s.faces()
	if err != nil {
		return errors.Join(err, s.http.Close(), s.bmc.Close())
	}
	plain := s.server(faces)
	if err := s.tell(); err != nil {
		return errors.Join(err, s.http.Close(), s.bmc.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return ended(plain.Serve(s.http)) })
	group.Go(func() error { return ended(secure.ServeTLS(s.bmc, "", "")) })
	group.Go(func() error { return s.live(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		for _, server := range []*http.Server{plain, secure} {
			if server.Shutdown(stopping) != nil {
				_ = server.Close()
			}
		}
		return nil
	})
	s.Log.Info("the simulated fleet is up", "url", s.said.URL, "bmc_port", s.said.BMCPort, "sites", len(s.said.Sites), "devices", s.said.Devices)
	if s.Ready != nil {
		s.Ready(s.said)
	}
	return group.Wait()
}

func (s *simulator) tell() error {
	if err := writeJSON(filepath.Join(s.Dir, controlName), Control{PID: s.said.PID, URL: s.said.URL + "/control", Token: s.secrets.control}); err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.Dir, endpointsName), s.said)
}

// live lets what is due happen although nobody looks.
func (s *simulator) live(ctx context.Context) error {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.world.Read(func(*world.State) {})
		}
	}
}

func (s *simulator) server(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: headerLimit, IdleTimeout: idleLimit,
		ErrorLog: s.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
}

func ended(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// controlHandler is the simulator's own API.
func (s *simulator) controlHandler() http.Handler {
	return control.New(control.Options{World: s.world, Rules: &s.rules, Token: s.secrets.control})
}
