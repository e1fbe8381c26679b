package capture_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/simulator/capture"
	face "github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/redfish"
)

var key = bytes.Repeat([]byte{7}, 32)

// profile is a simulated machine of each class.
var profiles = map[string]struct {
	address string
	class   facts.DeviceClass
}{
	"compute":    {"127.1.1.9", facts.DeviceClassGpuCompute},
	"nvswitch":   {"127.1.1.27", facts.DeviceClassNvswitch},
	"powershelf": {"127.1.1.1", facts.DeviceClassPowershelf},
}

// fleet serves a small world on one port of 127/8.
func fleet(t *testing.T) (w *world.World, port string) {
	t.Helper()
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: face.New(w, face.Options{})}}
	server.Start()
	t.Cleanup(server.Close)
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return w, port
}

func crawl(t *testing.T, address, port string) *capture.Outcome {
	t.Helper()
	outcome, err := capture.Crawl(t.Context(), "http://"+net.JoinHostPort(address, port), capture.Options{User: "admin", Password: "simulator-0"})
	if err != nil {
		t.Fatal(err)
	}
	if len(outcome.Missed) > 0 || !outcome.Whole {
		t.Fatalf("missed %v, whole %v", outcome.Missed, outcome.Whole)
	}
	return outcome
}

func redact(t *testing.T, tree capture.Tree) (capture.Tree, *capture.Report) {
	t.Helper()
	redacted, report, err := capture.Redact(tree, key)
	if err != nil {
		t.Fatal(err)
	}
	return redacted, report
}

// factsOf reads a tree as the adapter reads a BMC.
func factsOf(t *testing.T, tree capture.Tree, class facts.DeviceClass) *facts.BMC {
	t.Helper()
	server := httptest.NewTLSServer(face.Replay(tree, face.ReplayOptions{User: "admin", Password: "p"}))
	defer server.Close()
	host, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	var number int
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	client, err := redfish.New(redfish.Config{
		Targets: func(context.Context) ([]redfish.Target, error) {
			return []redfish.Target{{Address: host, Name: "m", Class: class}}, nil
		},
		Secret: func(string) (string, error) { return "admin:p", nil }, Credentials: []redfish.Credential{{Match: "*", Ref: "x"}},
		Port: number, Networks: []string{"127.0.0.0/8"}, TLS: redfish.TLS{Insecure: true},
	}, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var found *facts.BMC
	if _, err := client.List(t.Context(), func(page []sources.Record) error {
		for i := range page {
			found = page[i].BMC
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if found == nil || found.Refusal != 0 {
		t.Fatalf("it gives %+v", found)
	}
	return found
}

func same(t *testing.T, tree capture.Tree, class facts.DeviceClass) *facts.BMC {
	t.Helper()
	redacted, _ := redact(t, tree)
	before, after := factsOf(t, tree, class), factsOf(t, redacted, class)
	if !reflect.DeepEqual(before, after) {
		was, _ := json.Marshal(before)
		is, _ := json.Marshal(after)
		t.Errorf("the facts were\n%s\nand are\n%s", was, is)
	}
	return before
}

// What the adapter reads of a machine is what it reads of its capture, and of
// its redacted capture.
func TestRedactionLeavesTheFacts(t *testing.T) {
	t.Parallel()
	w, port := fleet(t)
	sick := func(address string, health map[string]string) {
		if err := w.Do(world.Effect{Face: "test"}, func(s *world.State) error {
			for key, m := range s.Machines.All() {
				if m.Address == address {
					m = s.Machines.Edit(key)
					m.Health = health
					s.Machines.Put(key, m)
					break
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	sick("127.1.1.9", map[string]string{"gpus": "Warning", "memory": "Critical"})
	sick("127.1.1.1", map[string]string{"power_supplies": "Warning"})
	for name, p := range profiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := same(t, crawl(t, p.address, port).Tree, p.class)
			if found.PowerState.Value != "On" || len(found.Firmware) < 5 || len(found.Unreadable) > 0 {
				t.Errorf("the facts are %+v", found)
			}
			switch {
			case name == "compute" && (found.Gpus != facts.RedfishHealthWarning || found.Memory != facts.RedfishHealthCritical || found.Processors != facts.RedfishHealthOK):
				t.Errorf("the facts are %+v", found)
			case name == "powershelf" && found.PowerSupplies != facts.RedfishHealthWarning:
				t.Errorf("the facts are %+v", found)
			}
		})
	}
}

// The same for captures of real machines, which are not part of the repository.
func TestRedactionLeavesTheFactsOfRealMachines(t *testing.T) {
	t.Parallel()
	dir := os.Getenv("MUSTER_PEER_REDFISH_TREES")
	if dir == "" {
		t.Skip("MUSTER_PEER_REDFISH_TREES names no directory of captured trees of real machines")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s holds no captured tree", dir)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree, err := capture.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			class := facts.DeviceClassGpuCompute
			switch {
			case strings.Contains(name, "switch"):
				class = facts.DeviceClassNvswitch
			case strings.Contains(name, "dpu"):
				class = facts.DeviceClassOther
			}
			same(t, tree, class)
			redacted, _ := redact(t, tree)
			survivors(t, tree, redacted)
		})
	}
}

var (
	identities = regexp.MustCompile(`(?i)\b([0-9a-f]{2}:){5}[0-9a-f]{2}\b|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b(\d{1,3}\.){3}\d{1,3}\b`)
	serials    = regexp.MustCompile(`"(?:SerialNumber|AssetTag|ServiceTag|HostName|FQDN|UserName|Address|Gateway|NodeID|ChassisServiceTag)": "([^"]{6,})"`)
	// nobody's: broadcast and null addresses, masks, versions in four parts
	common = regexp.MustCompile(`(?i)^(00:){5}00$|^(ff:){5}ff$|^0{8}-|^[0-2]?\d?\d\.\d+\.\d+\.\d+$`)
)

// survivors fails the test for each address, UUID and serial of a tree that is
// in its redacted form too.
func survivors(t *testing.T, tree, redacted capture.Tree) {
	t.Helper()
	var before, after bytes.Buffer
	if err := errors.Join(tree.Write(&before), redacted.Write(&after)); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{}
	for _, found := range identities.FindAllString(before.String(), -1) {
		if !common.MatchString(found) {
			wanted[found] = true
		}
	}
	for _, found := range serials.FindAllStringSubmatch(before.String(), -1) {
		if secret := strings.TrimSpace(found[1]); secret != "0.0.0.0" && secret != "127.0.0.1" {
			wanted[secret] = true
		}
	}
	if len(wanted) == 0 {
		t.Error("nothing was found that could survive")
	}
	for secret := range wanted {
		if at := strings.Index(after.String(), secret); at >= 0 {
			t.Errorf("%q is still there: …%s…", secret, after.String()[max(0, at-100):at+len(secret)])
		}
	}
	t.Logf("%d identities are gone", len(wanted))
}

// A secret is gone, wherever it stood.
func TestASecretDoesNotSurvive(t *testing.T) {
	t.Parallel()
	_, port := fleet(t)
	tree := crawl(t, "127.1.1.9", port).Tree
	const canary = "CNR7K2QX9"
	root := tree["/redfish/v1/Systems/System_0"].Body.(map[string]any)
	root["SerialNumber"] = canary
	root["Description"] = "rack of " + canary
	root["Model"] = "GB200 " + canary
	root["BiosVersion"] = canary + ".1"
	root["HostName"] = "h-" + canary + ".corp.example"
	root["Oem"] = map[string]any{"Acme": map[string]any{"Note": []any{canary, "https://" + canary + ".example/x/" + canary}}}
	root["Link"] = map[string]any{"@odata.id": "/redfish/v1/Chassis/Card_" + canary + "?$filter=" + canary + "#/" + canary}
	tree["/redfish/v1/Chassis/Card_"+canary] = capture.Answer{
		Status: 201, Headers: map[string]string{"Location": "/redfish/v1/Chassis/" + canary, "ETag": `W/"` + canary + `"`, "Content-Type": "application/" + canary},
		Body: map[string]any{"Id": canary, "Name": "Card_" + canary, "MessageId": canary, "PowerState": canary, "@odata.type": "#" + canary + ".v1_0_0." + canary,
			"code": "Base.1.0." + canary, "@odata.context": "/redfish/v1/$metadata#" + canary + "." + canary, "Host": map[string]any{"@odata.id": "//" + canary}},
	}
	redacted, report := redact(t, tree)
	var file, kept bytes.Buffer
	if err := redacted.Write(&file); err != nil {
		t.Fatal(err)
	}
	if err := report.Write(&kept); err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"the file": file.String(), "the report": kept.String()} {
		if at := strings.Index(strings.ToUpper(text), canary); at >= 0 {
			t.Errorf("%s holds it: …%s…", what, text[max(0, at-120):min(len(text), at+40)])
		}
	}
	if !strings.Contains(kept.String(), `"GB200 NVL"`) {
		t.Error("the report does not tell the models that were kept")
	}
}

// Pseudonyms have the shape of what they stand for; equal values have equal
// ones, in paths too; another key gives others.
func TestPseudonyms(t *testing.T) {
	t.Parallel()
	one := func(key []byte, property, value string) string {
		tree := capture.Tree{"/redfish/v1/Systems/" + "QX71ZZ": {Status: 200, Body: map[string]any{property: value, "SerialNumber": "QX71ZZ"}}}
		redacted, _, err := capture.Redact(tree, key)
		if err != nil {
			t.Fatal(err)
		}
		for path, a := range redacted {
			body := a.Body.(map[string]any)
			if serial := body["SerialNumber"].(string); path != "/redfish/v1/Systems/"+serial || serial == "QX71ZZ" {
				t.Errorf("the path is %s, the serial %s", path, serial)
			}
			return body[property].(string)
		}
		return ""
	}
	for _, c := range []struct{ name, property, value, like string }{
		{"UUID", "UUID", "4c4c4544-0035-3410-8050-c6c04f314733", `^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`},
		{"MAC", "MACAddress", "70:B5:E8:F0:52:DC", `^([0-9A-F]{2}:){5}[0-9A-F]{2}$`},
		{"IPv4", "Address", "192.168.7.12", `^10\.\d+\.\d+\.\d+$`},
		{"IPv6", "Address", "2001:db8::1", `^fd[0-9a-f:]+$`},
		{"time", "DateTime", "2025-01-06T22:52:51+00:00", `^20[12]\d-[01]\d-[0-3]\dT\d\d:\d\d:\d\d\+00:00$`},
		{"time with fractions", "Timestamp", "2025-01-06T22:56:00.507Z", `^20[12]\d-[01]\d-[0-3]\dT\d\d:\d\d:\d\d\.507Z$`},
		{"words", "AssetTag", "Row B, Rack 12", `^[A-Z][a-z]{2} [A-Z], [A-Z][a-z]{3} \d\d$`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := one(key, c.property, c.value)
			if !regexp.MustCompile(c.like).MatchString(got) || got == c.value {
				t.Errorf("%s becomes %s", c.value, got)
			}
			if again := one(key, c.property, c.value); again != got {
				t.Errorf("the next time it is %s", again)
			}
			if other := one(bytes.Repeat([]byte{8}, 32), c.property, c.value); other == got {
				t.Errorf("another key gives %s too", other)
			}
		})
	}
}

// Both forms of a file are read, and a file that is there is not overwritten.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := capture.Tree{"/redfish/v1/Systems/1": {Status: 503, Headers: map[string]string{"Retry-After": "5"}, Body: map[string]any{"n": json.Number("1.50")}}}
	for _, name := range []string{"bmc.json", "bmc.json.gz"} {
		path := filepath.Join(dir, name)
		if err := tree.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		again, err := capture.ReadFile(path)
		if err != nil || !reflect.DeepEqual(again, tree) {
			t.Errorf("%s is read as %v, %v", name, again, err)
		}
		if err := tree.WriteFile(path); err == nil {
			t.Errorf("%s is overwritten", name)
		}
	}
	bodies, err := capture.Read(strings.NewReader(`{"/redfish/v1/":{"Id":"RootService"},"/redfish/v1/Systems":{"status":"odd","body":1}}`))
	if err != nil || bodies["/redfish/v1"].Status != 200 || bodies["/redfish/v1/Systems"].Body.(map[string]any)["status"] != "odd" {
		t.Errorf("bodies alone are read as %v, %v", bodies, err)
	}
	for name, text := range map[string]string{"no JSON": "<html>", "another file": `{"name":"x"}`, "nothing": `{}`} {
		if _, err := capture.Read(strings.NewReader(text)); err == nil {
			t.Errorf("%s is read", name)
		}
	}
}
