package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/muster/dev"
	"github.com/musterhq/muster/simulator"
)

// TestADevelopmentServerOnASimulatedFleet runs one `muster dev` on the fleet that
// it brings along. Each step goes on where the one before has left it.
func TestADevelopmentServerOnASimulatedFleet(t *testing.T) {
	t.Parallel()
	d := newDevelopment(t)
	d.facts = ""
	t.Cleanup(func() {
		if d.cmd != nil {
			_ = d.cmd.Process.Kill()
			<-d.exited
		}
	})
	welcome := d.start(t, "127.0.0.1:0", "--sites", "4", "--racks", "1")
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"it says what fits the fleet", func(t *testing.T) { d.saysFleet(t, welcome) }},
		{"every source is read", d.everySource},
		{"devices have many statuses and each is explained", d.manyStatuses},
		{"a fault of a machine is seen", d.seesFault},
		{"a fault of a source writes nothing", d.bearsFault},
		{"kill -9 of the fleet: it is there again", d.fleetKilled},
		{"another size is refused", d.otherSize},
		{"kill -9 of the server: the same world goes on", d.serverKilled},
		{"a taken port: the sites follow", d.takenPort},
		{"Ctrl-C ends the fleet too", d.fleetEnds},
	} {
		if !t.Run(step.name, step.run) {
			t.Fatalf("the steps behind this one rest on it\n%s", d.log)
		}
	}
}

func (d *development) saysFleet(t *testing.T, welcome string) {
	for _, want := range []string{`explain device sim\d-r01-c\d\d `, `simulator fault health sim\d-r01-\w+ --part gpus`, ` vet `, `simulated`} {
		if !regexp.MustCompile(want).MatchString(welcome) {
			t.Errorf("it does not say %q:\n%s", want, welcome)
		}
	}
}

// fleet gives what the simulator says of itself.
func (d *development) fleet(t *testing.T) simulator.Endpoints {
	t.Helper()
	e, there, err := simulator.ReadEndpoints(filepath.Join(d.data, dev.FleetDir))
	if err != nil || !there {
		t.Fatalf("the simulator says nothing: %v", err)
	}
	return e
}

// sourcesGood waits until every source of every site is read well.
func (d *development) sourcesGood(t *testing.T) {
	t.Helper()
	out := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(200 * time.Millisecond) {
		var items []struct{ Site, Source, State string }
		out = d.must(t, "source", "list", "-o", "json")
		if err := json.Unmarshal([]byte(out), &items); err != nil {
			t.Fatal(err)
		}
		good := strings.Count(d.must(t, "source", "list"), " good ")
		if len(items) > 0 && good == len(items) {
			return
		}
	}
	t.Fatalf("the sources never are all good:\n%s\n%s", d.must(t, "source", "list"), d.log)
}

func (d *development) everySource(t *testing.T) {
	d.sourcesGood(t)
	out := d.must(t, "source", "list")
	for _, want := range []string{"sim1  netbox", "sim1  ironic", "sim1  placement", "sim1  slurm", "sim1  bmc", "sim2  ironic", "sim3  slurm", "sim4  netbox"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if n := len(d.devices(t)); n != d.fleet(t).Devices {
		t.Errorf("there are %d devices, the fleet has %d", n, d.fleet(t).Devices)
	}
}

func (d *development) manyStatuses(t *testing.T) {
	one := map[string]string{} // status → a device
	for deadline := time.Now().Add(patience); len(one) < 5 && time.Now().Before(deadline); <-time.After(200 * time.Millisecond) {
		for name, item := range d.devices(t) {
			one[item.OperationalStatus] = name
		}
	}
	if len(one) < 5 {
		t.Fatalf("the only statuses are %v", one)
	}
	for status, name := range one {
		if out := d.must(t, "explain", "device", name); !regexp.MustCompile(`(?m)^  \w+ by rung [a-z-]+ \(policies/status/operational\.cue:\d+\)`).MatchString(out) && status != "unknown" {
			t.Errorf("%s is %s, and is explained as\n%s", name, status, out)
		}
	}
}

// healthy gives a tray that is well and does not move.
func (d *development) healthy(t *testing.T) string {
	t.Helper()
	var names []string
	for deadline := time.Now().Add(patience); len(names) == 0 && time.Now().Before(deadline); <-time.After(200 * time.Millisecond) {
		for name, one := range d.devices(t) {
			if one.HealthStatus == "healthy" && one.OperationalStatus == "in_use" && strings.HasPrefix(name, "sim1-") {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		t.Fatalf("no device of a customer is healthy\n%s", d.must(t, "device", "list"))
	}
	return slices.Min(names)
}

func (d *development) seesFault(t *testing.T) {
	name := d.healthy(t)
	d.must(t, "simulator", "fault", "health", name, "--part", "gpus", "--state", "Critical")
	for deadline := time.Now().Add(patience); d.devices(t)[name].HealthStatus != "critical"; <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s never is critical\n%s", name, d.must(t, "explain", "device", name))
		}
	}
	if out := d.must(t, "simulator", "effects", "--face", "control"); !strings.Contains(out, name) {
		t.Errorf("the fault is not told:\n%s", out)
	}
}

func (d *development) bearsFault(t *testing.T) {
	before := len(d.devices(t))
	d.meets(t, "empty", "--face", "netbox", "--path", "dcim/devices")
	if after := len(d.devices(t)); after != before {
		t.Errorf("before an empty listing there were %d devices, after it %d", before, after)
	}
	d.sourcesGood(t)
}

// meets waits until a fault of a system has been met once.
func (d *development) meets(t *testing.T, fault ...string) {
	t.Helper()
	d.must(t, append([]string{"simulator", "fault", "--times", "1"}, fault...)...)
	for deadline := time.Now().Add(patience); strings.Contains(d.must(t, "simulator", "fault"), fault[0]); <-time.After(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%v is never met: %s", fault, d.must(t, "simulator", "fault"))
		}
	}
}

func (d *development) fleetKilled(t *testing.T) {
	before := d.fleet(t)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); d.fleet(t).PID == before.PID; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not started again\n%s", d.log)
		}
	}
	if after := d.fleet(t); after.URL != before.URL || after.BMCPort != before.BMCPort {
		t.Errorf("before %s and %d, after %s and %d", before.URL, before.BMCPort, after.URL, after.BMCPort)
	}
	d.meets(t, "delay", "--face", "ironic", "--site", "sim1", "--for", "1ms")
	d.sourcesGood(t)
}

func (d *development) otherSize(t *testing.T) {
	_, errs, code := d.run(t, "dev", "--racks", "2")
	if code != exitUsage || !strings.Contains(errs, "--sites 4 --racks 1") || !strings.Contains(errs, "--fresh") {
		t.Errorf("exit code %d, it says %s", code, errs)
	}
}

func (d *development) serverKilled(t *testing.T) {
	name := d.healthy(t)
	d.must(t, "simulator", "fault", "bmc-full", name)
	before, ids, effects := d.fleet(t), d.devices(t), strings.Count(d.must(t, "simulator", "effects", "--face", "control"), "\n")
	if err := d.end(t, syscall.SIGKILL); err == nil {
		t.Fatal("it ended in order")
	}
	d.start(t, "127.0.0.1:0")
	after := d.fleet(t)
	if after.PID == before.PID || after.URL != before.URL {
		t.Errorf("before %d at %s, after %d at %s", before.PID, before.URL, after.PID, after.URL)
	}
	if now := strings.Count(d.must(t, "simulator", "effects", "--face", "control"), "\n"); now != effects {
		t.Errorf("of %d effects %d are left", effects, now)
	}
	d.sourcesGood(t)
	for name, one := range d.devices(t) {
		if one.ID != ids[name].ID {
			t.Errorf("%s is device %d, it was %d", name, one.ID, ids[name].ID)
		}
	}
}

func (d *development) takenPort(t *testing.T) {
	before := d.fleet(t)
	if err := d.end(t, os.Interrupt); err != nil {
		t.Fatalf("it ended with %v", err)
	}
	taken, err := net.Listen("tcp4", strings.TrimPrefix(before.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	d.start(t, "127.0.0.1:0")
	after := d.fleet(t)
	if after.URL == before.URL {
		t.Fatalf("both are at %s", after.URL)
	}
	d.sourcesGood(t)
	if out := d.must(t, "site", "list", "-o", "json"); strings.Contains(out, before.URL+"/") || !strings.Contains(out, after.URL+"/sim1/ironic") {
		t.Errorf("the sites are at %s still:\n%s", before.URL, out)
	}
}

func (d *development) fleetEnds(t *testing.T) {
	pid := d.fleet(t).PID
	if err := d.end(t, os.Interrupt); err != nil {
		t.Errorf("it ended with %v\n%s", err, d.log)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("the fleet's process %s runs on", fmt.Sprint(pid))
	}
}
