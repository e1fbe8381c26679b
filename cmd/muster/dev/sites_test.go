package dev

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources/credentials"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/sources/registry"
)

// described starts a still simulated fleet of four sites and reads what is said of
// them.
func described(t *testing.T) (simulator.Endpoints, []fleet.SiteSpec) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	said, ended := make(chan simulator.Endpoints, 1), make(chan error, 1)
	go func() {
		ended <- simulator.Run(ctx, simulator.Options{Dir: dir, Shape: world.Shape{Sites: 4, Racks: 1}, Still: true, Ready: func(e simulator.Endpoints) { said <- e }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var e simulator.Endpoints
	select {
	case e = <-said:
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	specs, err := (&simulation{dir: dir}).sites(e)
	if err != nil || len(specs) != 4 {
		t.Fatalf("%d sites, %v", len(specs), err)
	}
	return e, specs
}

// What is said of a simulated site is a site that muster takes, with a client for
// all that workflows ask for; where BMCs have passwords of their own, the store
// knows those of the machines that are enrolled, and the others have what they
// came with.
func TestSimulatedSitesHaveWhatWorkflowsAskFor(t *testing.T) {
	t.Parallel()
	e, specs := described(t)
	clients := registry.New(registry.Options{Clock: time.Now, BMCs: func(context.Context, int64) ([]redfish.Target, error) { return nil, nil }})
	t.Cleanup(clients.Close)
	for i := range specs {
		site := &fleet.Site{ID: int64(i + 1), Spec: specs[i]}
		served := map[string]bool{}
		for _, name := range []string{"netbox", "ironic", "placement", "nova", "imaging", "slurm", "bmc", "dhcp", "credentials", "topology"} {
			if !site.Spec.Serves(name) {
				continue
			}
			served[name] = true
			_, release, err := clients.Open(site, name)
			if err != nil {
				t.Errorf("%s: %v", site.Spec.Name, err)
				continue
			}
			release()
		}
		if managed := !site.Spec.InventoryOnly; managed != served["dhcp"] || managed != served["topology"] || managed != site.Spec.Enrolment.DHCP || managed != (site.Spec.Imaging != nil) ||
			served["imaging"] != site.Spec.PlacementEnabled || managed && site.Spec.Enrolment.Node == nil || served["credentials"] != e.Sites[i].CredentialStore {
			t.Errorf("%s serves %v, enrols by %+v, images by %+v", site.Spec.Name, served, site.Spec.Enrolment, site.Spec.Imaging)
		}
		if served["bmc"] {
			logsIn(t, clients, site, e.Sites[i].CredentialStore)
		}
	}
}

// logsIn shows that each BMC of the first rack's compute trays takes the login
// that the site's row leads to.
func logsIn(t *testing.T, clients *registry.Registry, site *fleet.Site, store bool) {
	t.Helper()
	client, release, err := clients.Open(site, "bmc")
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	users := map[string]int{}
	for unit := 9; unit <= 26; unit++ { // behind the shelves
		target := redfish.Target{Name: trayName(site, unit), Address: trayAddress(site, unit)}
		account, err := client.(*redfish.Client).Account(t.Context(), target)
		if err != nil {
			t.Fatal(err)
		}
		users[account.Password]++
		if err := client.(*redfish.Client).Login(t.Context(), target); err != nil {
			t.Errorf("%s: %v", target.Name, err)
		}
	}
	if want := map[bool]int{false: 1, true: 2}[store]; len(users) != want {
		t.Errorf("%s: its BMCs have %d passwords, want %d", site.Spec.Name, len(users), want)
	}
}

func trayName(site *fleet.Site, unit int) string {
	return fmt.Sprintf("%s-r01-c%02d", site.Spec.Name, unit-8)
}

func trayAddress(site *fleet.Site, unit int) string {
	return fmt.Sprintf("127.%s.1.%d", strings.TrimPrefix(site.Spec.Name, "sim"), unit)
}

// A BMC that nobody has set up is given the password that the store makes, and a
// reset to its defaults takes it back.
func TestANewBMCGetsAPasswordOfItsOwnAndLosesIt(t *testing.T) {
	t.Parallel()
	e, specs := described(t)
	clients := registry.New(registry.Options{Clock: time.Now, BMCs: func(context.Context, int64) ([]redfish.Target, error) { return nil, nil }})
	t.Cleanup(clients.Close)
	site := &fleet.Site{ID: 1, Spec: specs[1]}
	open := func(name string) any {
		client, release, err := clients.Open(site, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(release)
		return client
	}
	bmc, store := open("bmc").(*redfish.Client), open("credentials").(*credentials.Client)
	target := redfish.Target{Name: trayName(site, 26), Address: trayAddress(site, 26)}
	came, err := bmc.Account(t.Context(), target)
	if err != nil || came.Password != world.FactoryPassword {
		t.Fatalf("before: %v %v", came, err)
	}
	own, err := store.Ensure(t.Context(), target.Name)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := bmc.SetPassword(t.Context(), target, redfish.Account{}, own.User, own.Password); err != nil {
			t.Fatal(err)
		}
	}
	if now, err := bmc.Account(t.Context(), target); err != nil || now != redfish.Account(own) || own.Password == came.Password {
		t.Errorf("%v %v", now, err)
	}
	if err := bmc.Login(t.Context(), target); err != nil {
		t.Errorf("with its own: %v", err)
	}
	if err := bmc.FactoryReset(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if err := store.Delete(t.Context(), target.Name); err != nil {
		t.Fatal(err)
	}
	c, _, err := simulator.ReadControl(filepath.Dir(filepath.Dir(e.Secrets.BMC)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := control.Dial(c.URL, c.Token).Advance(t.Context(), time.Minute); err != nil { // it restarts
		t.Fatal(err)
	}
	bmc.AllowLogin("")
	if err := bmc.Login(t.Context(), target); err != nil {
		t.Errorf("with what it came with: %v", err)
	}
}
