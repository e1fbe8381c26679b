package redfish

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// A BMC that is broken shows it the way BMCs do.
func TestBMCsThatMisbehave(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	for _, c := range []struct {
		name   string
		set    func(b *world.BMC)
		status int // 0: no answer
		id     string
	}{
		{"dead", func(b *world.BMC) { b.Dead = true }, 0, ""},
		{"not ready", func(b *world.BMC) { b.NotReady = f.clock.now().Add(time.Minute) }, 503, "ServiceTemporarilyUnavailable"},
		{"ready again", func(b *world.BMC) { b.NotReady = f.clock.now().Add(-time.Minute) }, 200, ""},
		{"password changed", func(b *world.BMC) { b.Password = "another-one" }, 401, "NoValidSession"},
		{"sessions full", func(b *world.BMC) { b.Full = true }, 503, "SessionLimitExceeded"},
		{"slow", func(b *world.BMC) { b.Slow = 30 }, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.edit(tray, func(m *world.Machine) { m.BMC = world.BMC{}; c.set(&m.BMC) })
			began := time.Now()
			g, err := f.try(http.MethodGet, tray, systemPath, nil)
			switch {
			case c.status == 0 && err == nil:
				t.Errorf("answers %d", g.status)
			case c.status == 0:
			case err != nil:
				t.Error(err)
			case g.status != c.status || c.id != "" && g.messageID() != registry+c.id:
				t.Errorf("answers %d %s", g.status, g.messageID())
			}
			if wait := time.Duration(f.machine(tray).BMC.Slow) * time.Millisecond; time.Since(began) < wait {
				t.Errorf("answered in %s", time.Since(began))
			}
		})
	}
}

// Sessions have few slots; one that is ended or forgotten for long is free
// again; a BMC that restarts has none.
func TestSessionsRunOut(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{MaxSessions: 2})
	login := func() *got {
		return f.ask(http.MethodPost, tray, sessionsPath, object{"UserName": "admin", "Password": "simulator-0"}, "Authorization", "")
	}
	first, second := login(), login()
	if first.status != http.StatusCreated || second.status != http.StatusCreated {
		t.Fatalf("logins answer %d and %d", first.status, second.status)
	}
	if third := login(); third.status != http.StatusServiceUnavailable || third.messageID() != registry+"SessionLimitExceeded" {
		t.Errorf("one too many answers %d %s", third.status, third.messageID())
	}
	token := first.header.Get("X-Auth-Token")
	if g := f.ask(http.MethodGet, tray, systemPath, nil, "X-Auth-Token", token); g.status != http.StatusOK {
		t.Errorf("with its token it answers %d", g.status)
	}
	if g := f.ask(http.MethodDelete, tray, second.header.Get("Location"), nil, "X-Auth-Token", token); g.status != http.StatusNoContent {
		t.Errorf("ending a session answers %d", g.status)
	}
	if again := login(); again.status != http.StatusCreated {
		t.Errorf("into the free slot: %d", again.status)
	}
	f.clock.advance(sessionTimeout + time.Second)
	if g := f.ask(http.MethodGet, tray, systemPath, nil, "X-Auth-Token", token); g.status != http.StatusUnauthorized {
		t.Errorf("a session of long ago answers %d", g.status)
	}
	late := login()
	f.ask(http.MethodPost, tray, managerPath+"/Actions/Manager.Reset", object{"ResetType": "ForceRestart"})
	if g := f.ask(http.MethodGet, tray, root, nil); g.status != http.StatusServiceUnavailable {
		t.Errorf("while it restarts it answers %d", g.status)
	}
	f.clock.advance(managerRestart)
	if g := f.ask(http.MethodGet, tray, systemPath, nil, "X-Auth-Token", late.header.Get("X-Auth-Token")); g.status != http.StatusUnauthorized {
		t.Errorf("a session from before the restart answers %d", g.status)
	}
}

// A boot override holds for one boot or for all, and an ETag for one change.
func TestBootOverrides(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	change := func(boot object) *got {
		etag := f.ask(http.MethodGet, tray, systemPath, nil).header.Get("ETag")
		return f.ask(http.MethodPatch, tray, systemPath, object{"Boot": boot}, "If-Match", etag)
	}
	boot := func() (target, enabled any) {
		b, _ := f.ask(http.MethodGet, tray, systemPath, nil).body["Boot"].(object)
		return b["BootSourceOverrideTarget"], b["BootSourceOverrideEnabled"]
	}
	restart := func() {
		f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "ForceRestart"})
		f.clock.advance(3 * world.PowerDelay)
	}
	for _, c := range []struct {
		enabled             string
		target, afterwards  any
		enabledAfterRestart any
	}{
		{"Once", "Pxe", "None", "Disabled"},
		{"Continuous", "Hdd", "Hdd", "Continuous"},
	} {
		if g := change(object{"BootSourceOverrideTarget": c.target, "BootSourceOverrideEnabled": c.enabled}); g.status != http.StatusOK {
			t.Fatalf("the change answers %d %v", g.status, g.body)
		}
		if target, enabled := boot(); target != c.target || enabled != c.enabled {
			t.Errorf("it is %v %v", target, enabled)
		}
		restart()
		if target, enabled := boot(); target != c.afterwards || enabled != c.enabledAfterRestart {
			t.Errorf("after a restart it is %v %v", target, enabled)
		}
	}
	if g := change(object{"BootSourceOverrideEnabled": "Disabled"}); g.status != http.StatusOK {
		t.Errorf("disabling answers %d", g.status)
	}
	if target, _ := boot(); target != "None" {
		t.Errorf("disabled it is %v", target)
	}
}

// Of many changes with one ETag one alone succeeds.
func TestOneETagIsForOneChange(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	etag := f.ask(http.MethodGet, tray, systemPath, nil).header.Get("ETag")
	statuses := make([]int, 8)
	var group sync.WaitGroup
	for i := range statuses {
		group.Go(func() {
			if g, err := f.try(http.MethodPatch, tray, systemPath, object{"AssetTag": strconv.Itoa(i)}, "If-Match", etag); err == nil {
				statuses[i] = g.status
			}
		})
	}
	group.Wait()
	slices.Sort(statuses)
	if statuses[0] != http.StatusOK || statuses[1] != http.StatusPreconditionFailed || statuses[7] != http.StatusPreconditionFailed {
		t.Errorf("they answer %v", statuses)
	}
}

// An update is a task that is watched; it ends with the version, or failed
// without it.
func TestUpdatesAreTasks(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	simple := func(image string) *got {
		return f.ask(http.MethodPost, tray, updatePath+"/Actions/UpdateService.SimpleUpdate", object{"ImageURI": image, "Targets": []string{firmwarePath + "/UEFI"}})
	}
	version := func() any { return f.ask(http.MethodGet, tray, firmwarePath+"/UEFI", nil).body["Version"] }
	before := version()

	g := simple("http://images/uefi@2.0.7.fwpkg")
	monitor := g.header.Get("Location")
	if g.status != http.StatusAccepted || !strings.HasPrefix(monitor, monitorsPath) || g.body["TaskState"] != "Running" {
		t.Fatalf("it answers %d %v at %q", g.status, g.body, monitor)
	}
	if again := simple("http://images/uefi@2.0.8.fwpkg"); again.status != http.StatusServiceUnavailable {
		t.Errorf("a second one meanwhile answers %d", again.status)
	}
	f.clock.advance(world.UpdateTime / 2)
	if g := f.ask(http.MethodGet, tray, monitor, nil); g.status != http.StatusAccepted || g.body["PercentComplete"] != 50.0 || version() != before {
		t.Errorf("half way it answers %d, %v percent, version %v", g.status, g.body["PercentComplete"], version())
	}
	f.clock.advance(world.UpdateTime)
	if g := f.ask(http.MethodGet, tray, monitor, nil); g.status != http.StatusOK || g.body["TaskState"] != "Completed" || version() != "2.0.7" {
		t.Errorf("at the end it answers %d, %v, version %v", g.status, g.body["TaskState"], version())
	}

	f.edit(tray, func(m *world.Machine) { m.BMC.BadImage = true })
	task := strings.Replace(f.push(tray, "bmc_9.9.bin"), monitorsPath, tasksPath, 1)
	f.clock.advance(world.UpdateTime)
	g = f.ask(http.MethodGet, tray, task, nil)
	if g.body["TaskState"] != "Exception" || g.body["TaskStatus"] != "Critical" || f.machine(tray).Firmware["FW_BMC_0"] == "9.9" {
		t.Errorf("a bad image ends %v %v", g.body["TaskState"], g.body["TaskStatus"])
	}
}

// push sends an image for the BMC itself; the monitor is given.
func (f *fleet) push(key, name string) string {
	f.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormField("UpdateParameters")
	if err == nil {
		err = json.NewEncoder(part).Encode(object{"Targets": []string{}})
	}
	if err == nil {
		part, err = form.CreateFormFile("UpdateFile", name)
	}
	if err == nil {
		_, err = part.Write(bytes.Repeat([]byte("image"), 1000))
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		f.Fatal(err)
	}
	g := f.ask(http.MethodPost, key, pushPath, body.String(), "Content-Type", form.FormDataContentType())
	if g.status != http.StatusAccepted {
		f.Fatalf("the push answers %d %v", g.status, g.body)
	}
	return g.header.Get("Location")
}

// A collection can be had with its members in one answer.
func TestExpand(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	g := f.ask(http.MethodGet, tray, boardPath+"/Processors?$expand=.($levels=1)", nil)
	members, _ := g.body["Members"].([]any)
	if len(members) != 6 {
		t.Fatalf("it has %d members", len(members))
	}
	if first, _ := members[0].(object); first["ProcessorType"] != "GPU" {
		t.Errorf("the first is %v", members[0])
	}
	if g := f.ask(http.MethodGet, tray, systemsPath+"?$expand=nonsense", nil); g.status != http.StatusBadRequest {
		t.Errorf("nonsense answers %d", g.status)
	}
}

// A rack whose last shelf goes off has no power: its machines and their BMCs are
// gone, and come back switched off.
func TestShelvesFeedTheRack(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	reset := func(n int, kind string) {
		key := "sim1/sim1-r01-p0" + strconv.Itoa(n)
		if g := f.ask(http.MethodPost, key, chassisPath+"/powershelf/Actions/Chassis.Reset", object{"ResetType": kind}); g.status != http.StatusNoContent {
			t.Fatalf("%s of %s answers %d %v", kind, key, g.status, g.body)
		}
	}
	for n := 1; n < 8; n++ {
		reset(n, "ForceOff")
	}
	f.clock.advance(world.PowerDelay)
	if g := f.ask(http.MethodGet, tray, systemPath, nil); g.body["PowerState"] != "On" {
		t.Fatalf("with one shelf the tray is %v", g.body["PowerState"])
	}
	reset(8, "ForceOff")
	f.clock.advance(world.PowerDelay)
	if g, err := f.try(http.MethodGet, tray, systemPath, nil); err == nil {
		t.Errorf("without power the tray's BMC answers %d", g.status)
	}
	psu := f.ask(http.MethodGet, "sim1/sim1-r01-p08", chassisPath+"/powershelf/PowerSubsystem/PowerSupplies/PSU_0", nil)
	if psu.body["PowerState"] != "Off" {
		t.Errorf("a supply is %v", psu.body["PowerState"])
	}
	reset(3, "On")
	f.clock.advance(world.PowerDelay)
	if g := f.ask(http.MethodGet, tray, systemPath, nil); g.body["PowerState"] != "Off" {
		t.Errorf("with power again the tray is %v", g.body["PowerState"])
	}
}

// The ways of a BMC that can be chosen.
func TestOptions(t *testing.T) {
	t.Parallel()
	t.Run("an On that is lost", func(t *testing.T) {
		t.Parallel()
		f := serve(t, Options{SwallowOn: true})
		for _, kind := range []string{"ForceOff", "On"} {
			if g := f.ask(http.MethodPost, tray, resetPath, object{"ResetType": kind}); g.status != http.StatusNoContent {
				t.Fatalf("%s answers %d", kind, g.status)
			}
		}
		f.clock.advance(3 * world.PowerDelay)
		if f.machine(tray).On {
			t.Error("the machine is on")
		}
	})
	for _, status := range []int{http.StatusBadRequest, http.StatusConflict} {
		t.Run("already there is "+strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			f := serve(t, Options{Already: status})
			if g := f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "On"}); g.status != status {
				t.Errorf("On when on answers %d", g.status)
			}
		})
	}
	t.Run("lenient", func(t *testing.T) {
		t.Parallel()
		f := serve(t, Options{Lenient: true})
		g := f.ask(http.MethodGet, tray, systemPath, nil)
		if g.header.Get("ETag") != "" || !strings.Contains(string(marshal(g.body)), "ResetType@Redfish.AllowableValues") {
			t.Errorf("a System is told as %v", g.body["Actions"])
		}
		if g := f.ask(http.MethodPatch, tray, systemPath, object{"AssetTag": "x", "Colour": "red"}); g.status != http.StatusNoContent || f.machine(tray).AssetTag != "x" {
			t.Errorf("a change answers %d", g.status)
		}
		if g := f.ask(http.MethodGet, tray, sessionsPath, nil); g.status != http.StatusNotFound {
			t.Errorf("sessions answer %d", g.status)
		}
	})
	t.Run("a host in Location", func(t *testing.T) {
		t.Parallel()
		f := serve(t, Options{Absolute: true})
		if at := f.push(tray, "bmc_9.9.bin"); !strings.HasPrefix(at, "http://127.") {
			t.Errorf("Location is %s", at)
		}
	})
}

// Each BMC answers with a certificate of its own address, which the authority's
// file vouches for, also after a start.
func TestCertificatesAreOfTheAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := OpenAuthority(dir, time.Now); err != nil {
		t.Fatal(err)
	}
	a, err := OpenAuthority(dir, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp4", "0.0.0.0:0", a.TLS())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for _, address := range []string{"127.1.2.3", "127.1.2.4"} {
		dialer := &tls.Dialer{Config: &tls.Config{RootCAs: a.Pool(), MinVersion: tls.VersionTLS12}}
		conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(address, port))
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if names := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].IPAddresses; len(names) != 1 || names[0].String() != address {
			t.Errorf("%s has a certificate of %v", address, names)
		}
		_ = conn.Close()
	}
}
