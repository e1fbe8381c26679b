package redfish

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// tray is a compute tray with a baseboard, small.
const tray = `{
 "/redfish/v1": {"Id": "RootService", "Vendor": null, "Systems": {"@odata.id": "/redfish/v1/Systems"}, "Chassis": {"@odata.id": "/redfish/v1/Chassis"},
   "UpdateService": {"@odata.id": "/redfish/v1/UpdateService"}, "Links": {"Sessions": {"@odata.id": "/redfish/v1/SessionService/Sessions"}}},
 "/redfish/v1/Systems": {"Members": [{"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0"}, {"@odata.id": "/redfish/v1/Systems/System_0"}]},
 "/redfish/v1/Systems/HGX_Baseboard_0": {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0", "Id": "HGX_Baseboard_0", "PowerState": "On"},
 "/redfish/v1/Systems/HGX_Baseboard_0/Processors": {"Members": [{"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_0"}, {"@odata.id": "/redfish/v1/Systems/HGX_Baseboard_0/Processors/FPGA_0"}]},
 "/redfish/v1/Systems/HGX_Baseboard_0/Processors/GPU_0": {"ProcessorType": "GPU", "Status": {"Health": "OK"}},
 "/redfish/v1/Systems/HGX_Baseboard_0/Processors/FPGA_0": {"ProcessorType": "FPGA", "Status": {"Health": "OK"}},
 "/redfish/v1/Systems/System_0": {"@odata.id": "/redfish/v1/Systems/System_0", "Id": "System_0", "PowerState": "Off", "LastResetTime": "2026-11-30T10:00:00Z",
   "Boot": {"BootSourceOverrideTarget": "None", "BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideMode": "UEFI", "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Hdd"]},
   "ProcessorSummary": {"Status": {"Health": "OK", "HealthRollup": "Warning"}}, "MemorySummary": {"Status": {"HealthRollup": "OK"}},
   "Storage": {"@odata.id": "/redfish/v1/Systems/System_0/Storage"}, "Links": {"Chassis": [{"@odata.id": "/redfish/v1/Chassis/BMC_0"}]},
   "@Redfish.Settings": null,
   "Actions": {"#ComputerSystem.Reset": {"target": "/redfish/v1/Systems/System_0/Actions/ComputerSystem.Reset", "@Redfish.ActionInfo": "/redfish/v1/Systems/System_0/ResetActionInfo"},
     "#ComputerSystem.RemoveResourceBlock": {"target": "/redfish/v1/Systems/System_0/Actions/ComputerSystem.RemoveResourceBlock"}}},
 "/redfish/v1/Systems/System_0/ResetActionInfo": {"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]}]},
 "/redfish/v1/Systems/System_0/Storage": {"Members": [{"@odata.id": "/redfish/v1/Systems/System_0/Storage/1"}, {"@odata.id": "/redfish/v1/Systems/System_0/Storage/2"}]},
 "/redfish/v1/Systems/System_0/Storage/1": {"Status": {"Health": null, "HealthRollup": null, "State": "Enabled"}},
 "/redfish/v1/Systems/System_0/Storage/2": {"StorageControllers": [{"Status": {"Health": "OK"}}]},
 "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/BMC_0"}, {"@odata.id": "/redfish/v1/Chassis/Chassis_0"}, {"@odata.id": "/redfish/v1/Chassis/HGX_Chassis_0"}, {"@odata.id": "/redfish/v1/Chassis/IO_Board_0"}]},
 "/redfish/v1/Chassis/BMC_0": {"Status": {"Health": "OK", "HealthRollup": "OK"}},
 "/redfish/v1/Chassis/Chassis_0": {"Status": {"Health": "OK", "HealthRollup": "OK"}, "Power": {"@odata.id": "/redfish/v1/Chassis/Chassis_0/Power"}, "ThermalSubsystem": {"@odata.id": "/redfish/v1/Chassis/Chassis_0/ThermalSubsystem"}},
 "/redfish/v1/Chassis/HGX_Chassis_0": {"Status": {"Health": "OK"}},
 "/redfish/v1/Chassis/Chassis_0/Power": {"PowerSupplies": [{"Status": {"Health": "Critical"}}, {"Status": {"State": "Absent", "Health": "Critical"}}]},
 "/redfish/v1/Chassis/Chassis_0/ThermalSubsystem": {"Status": {"Health": "OK", "HealthRollup": "OK"}},
 "/redfish/v1/Chassis/IO_Board_0/NetworkAdapters": {"Members": [{"@odata.id": "/redfish/v1/Chassis/IO_Board_0/NetworkAdapters/CX7"}]},
 "/redfish/v1/Chassis/IO_Board_0/NetworkAdapters/CX7": {"Status": {"HealthRollup": "OK"}},
 "/redfish/v1/UpdateService": {"FirmwareInventory": {"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory"}, "MultipartHttpPushUri": "/redfish/v1/UpdateService/upload",
   "Actions": {"#UpdateService.SimpleUpdate": {"target": "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"}}},
 "/redfish/v1/UpdateService/FirmwareInventory": {"Members": [{"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/BMC"}, {"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/Installed-159-1.8.2__BIOS.Setup.1-1"}, {"@odata.id": "/redfish/v1/UpdateService/FirmwareInventory/Previous-159-1.8.1__BIOS.Setup.1-1"}]},
 "/redfish/v1/UpdateService/FirmwareInventory/BMC": {"Version": "7.0"},
 "/redfish/v1/UpdateService/FirmwareInventory/Installed-159-1.8.2__BIOS.Setup.1-1": {"Version": "1.8.2"}
}`

func poll(t testing.TB, c *Client) sources.Record {
	t.Helper()
	records, _ := round1(t, c)
	if len(records) != 1 {
		t.Fatalf("%d records: %+v", len(records), records)
	}
	return records[0]
}

func answeredFacts(t testing.TB, c *Client) *facts.BMC {
	t.Helper()
	record := poll(t, c)
	if record.BMC == nil || record.BMC.Failures != facts.BMCFailures0 || record.Unanswered != "" || record.Undecodable != "" || record.Ref == "" || record.At.IsZero() {
		t.Fatalf("%+v", record)
	}
	return record.BMC
}

func TestATrayIsRead(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"plain", "expand", "announces expand and cannot", "announces expand and hangs up"} {
		m := newMachine(t, object(t, tray))
		if mode != "plain" {
			m.set("/redfish/v1", "ProtocolFeaturesSupported", map[string]any{"ExpandQuery": map[string]any{"NoLinks": true, "ExpandAll": true}})
		}
		m.noExpand = mode == "announces expand and cannot"
		if mode == "announces expand and hangs up" {
			m.rule(answerRule{path: "expand", drop: "before"})
		}
		c, _ := m.client(t, facts.DeviceClassGpuCompute)
		got := answeredFacts(t, c)
		want := &facts.BMC{
			Failures: facts.BMCFailures0, PowerState: facts.TextOf("Off"), ChassisHealth: facts.RedfishHealthOK, Processors: facts.RedfishHealthWarning,
			Memory: facts.RedfishHealthOK, Storage: facts.RedfishHealthOK, NetworkAdapters: facts.RedfishHealthOK, PowerSupplies: facts.RedfishHealthCritical,
			Thermal: facts.RedfishHealthOK, Gpus: facts.RedfishHealthOK, Fpgas: facts.RedfishHealthOK,
			Firmware: map[string]string{"BMC": "7.0", "BIOS.Setup.1-1": "1.8.2"},
		}
		same(t, mode, got, want)
		if lines := m.requests("POST|PATCH|PUT|DELETE"); len(lines) > 0 {
			t.Errorf("%s: reading does %v", mode, lines)
		}
	}
}

func same(t testing.TB, name string, got, want any) {
	t.Helper()
	g, _ := json.Marshal(got)
	w, _ := json.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("%s:\n got %s\nwant %s", name, g, w)
	}
}

func TestPowerStatesAreTakenAsTheyAreOrNotAtAll(t *testing.T) {
	t.Parallel()
	const system = "/redfish/v1/Systems/System_0"
	for name, c := range map[string]struct {
		value  any
		power  string
		unread bool
	}{
		"on":            {"On", "On", false},
		"another case":  {"on", "On", false},
		"shouted":       {"OFF", "Off", false},
		"powering on":   {"PoweringOn", "PoweringOn", false},
		"powering off":  {"PoweringOff", "PoweringOff", false},
		"paused":        {"Paused", "Paused", false},
		"null":          {json.RawMessage("null"), "", false},
		"absent":        {nil, "", false},
		"empty":         {"", "", false},
		"reset":         {"Reset", "", true},
		"starting":      {"Starting", "", true},
		"power cycle":   {"PowerCycle", "", true},
		"unknown":       {"Unknown", "", true},
		"a boolean":     {true, "", true},
		"a number":      {1, "", true},
		"an object":     {map[string]any{"x": 1}, "", true},
		"with NUL":      {"On\x00", "On", false},
		"white space":   {" Off ", "Off", false},
		"another odd":   {[]any{"On"}, "", true},
		"very long odd": {strings.Repeat("x", 5000), "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.set(system, "PowerState", c.value)
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			got := answeredFacts(t, client)
			if got.PowerState.String() != c.power || got.PowerState.Known != (c.power != "") || (got.Unreadable["power_state"] != "") != c.unread {
				t.Errorf("%+v", got)
			}
			if got.ChassisHealth != facts.RedfishHealthOK || got.Memory != facts.RedfishHealthOK {
				t.Errorf("an odd power state costs other facts: %+v", got)
			}
			if p, err := client.Power(t.Context(), target); err != nil || p.State != c.power || p.At.IsZero() || p.Marker != "reset at 2026-11-30T10:00:00Z" {
				t.Errorf("%+v %v", p, err)
			}
		})
	}
}

func TestHealthsAreTakenAsTheyAreOrNotAtAll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status string
		want   facts.RedfishHealth
		unread bool
	}{
		"ok":               {`{"Health": "OK"}`, facts.RedfishHealthOK, false},
		"another case":     {`{"Health": "ok"}`, facts.RedfishHealthOK, false},
		"the worse counts": {`{"Health": "Critical", "HealthRollup": "OK"}`, facts.RedfishHealthCritical, false},
		"rolled up":        {`{"Health": "OK", "HealthRollup": "Warning"}`, facts.RedfishHealthWarning, false},
		"null":             {`{"Health": null, "State": "Enabled"}`, 0, false},
		"null status":      {`null`, 0, false},
		"absent part":      {`{"Health": "Critical", "State": "Absent"}`, 0, false},
		"unknown value":    {`{"Health": "Degraded"}`, 0, true},
		"a text":           {`"OK"`, 0, true},
		"a number":         {`{"Health": 1}`, 0, true},
		"a list":           {`[]`, 0, true},
		"odd and bad":      {`{"Health": "Odd", "HealthRollup": "Critical"}`, facts.RedfishHealthCritical, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.set("/redfish/v1/Chassis/IO_Board_0/NetworkAdapters/CX7", "Status", json.RawMessage(c.status))
			client, _ := m.client(t, facts.DeviceClassGpuCompute)
			got := answeredFacts(t, client)
			if got.NetworkAdapters != c.want || (got.Unreadable["network_adapters"] != "") != c.unread {
				t.Errorf("%v %v", got.NetworkAdapters, got.Unreadable)
			}
		})
	}
}

func TestTheMachineIsPickedByItsIdAndNeverByItsPlace(t *testing.T) {
	t.Parallel()
	compute, other := facts.DeviceClassGpuCompute, facts.DeviceClassOther
	for name, c := range map[string]struct {
		ids   []string
		class facts.DeviceClass
		want  string // "" for none
	}{
		"a baseboard first":        {[]string{"HGX_Baseboard_0", "System_0"}, compute, "System_0"},
		"one of any name":          {[]string{"5ed00000-0000-4000-8000-000000000001"}, compute, "5ed00000-0000-4000-8000-000000000001"},
		"beside a DPU":             {[]string{"Bluefield", "HGX_Baseboard_0", "1"}, compute, "1"},
		"a known name among other": {[]string{"a", "System.Embedded.1", "b"}, compute, "System.Embedded.1"},
		"two of unknown names":     {[]string{"a", "b"}, compute, ""},
		"a baseboard alone":        {[]string{"HGX_Baseboard_0"}, compute, ""},
		"a DPU is no host":         {[]string{"Bluefield"}, compute, ""},
		"a DPU of its own":         {[]string{"Bluefield"}, other, "Bluefield"},
		"none":                     {nil, compute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bmc{target: Target{Class: c.class}}
			for range 100 {
				var uris []string
				for _, i := range rand.Perm(len(c.ids)) {
					uris = append(uris, "/redfish/v1/Systems/"+c.ids[i])
				}
				got, err := b.host(uris)
				if c.want == "" && err == nil || c.want != "" && (err != nil || id(got) != c.want) {
					t.Fatalf("of %v: %q %v", uris, got, err)
				}
			}
		})
	}
	m := newMachine(t, object(t, strings.ReplaceAll(tray, "HGX_Baseboard_0", "Another")))
	m.set("/redfish/v1/Systems", "Members", []any{map[string]any{"@odata.id": "/redfish/v1/Systems/A"}, map[string]any{"@odata.id": "/redfish/v1/Systems/B"}})
	client, target := m.client(t, compute)
	if got := answeredFacts(t, client); got.PowerState.Known || got.Unreadable["power_state"] == "" || got.ChassisHealth != facts.RedfishHealthOK {
		t.Errorf("%+v", got)
	}
	if _, err := client.Reset(t.Context(), target, Reset{Types: []string{"On"}, Want: PowerOn}); sources.KindOf(err) != sources.KindRefused || len(m.requests("^POST")) > 0 {
		t.Errorf("%v", err)
	}
}

func TestABaseboardThatIsNotReadyCostsItsOwnFacts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		power  string
		known  facts.RedfishHealth
		status int
		want   facts.RedfishHealth // of the chassis, null for unread
	}{
		"its host is off":                    {"Off", 0, 503, facts.RedfishHealthOK},
		"its host is off, and all was well":  {"Off", facts.RedfishHealthOK, 503, facts.RedfishHealthOK},
		"its host is off, and it was broken": {"Off", facts.RedfishHealthCritical, 503, 0},
		"its host is off, and it has failed": {"Off", 0, 500, 0},
		"its host is on":                     {"On", 0, 503, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.set("/redfish/v1/Systems/System_0", "PowerState", c.power)
			body := ""
			if c.status == 503 {
				body = `{"error": {"code": "Ami.1.0.HMCCommuicationFailed"}}`
			}
			m.rule(answerRule{path: "/HGX_", status: c.status, body: body})
			client, target := m.client(t, facts.DeviceClassGpuCompute, func(config *Config) {
				targets, _ := config.Targets(t.Context())
				targets[0].Health = c.known
				config.Targets = fixed(targets...)
			})
			got := answeredFacts(t, client)
			if got.PowerState.String() != c.power || got.Memory != facts.RedfishHealthOK || got.Refusal != 0 || got.Gpus != 0 || got.Fpgas != 0 {
				t.Errorf("%+v", got)
			}
			if got.Unreadable["gpus"] == "" || got.Unreadable["fpgas"] == "" || got.ChassisHealth != c.want || (got.Unreadable["chassis_health"] != "") != (c.want == 0) {
				t.Errorf("%+v", got)
			}
			if r, err := client.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn})); err != nil || !r.Verified || r.After.State != PowerOn {
				t.Errorf("%+v %v", r, err)
			}
			// What is bad already stays so, whatever else cannot be read.
			m.set("/redfish/v1/Chassis/Chassis_0", "Status", map[string]any{"HealthRollup": "Critical"})
			if got := answeredFacts(t, client); got.ChassisHealth != facts.RedfishHealthCritical {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestPartsThatFailCostTheirOwnFacts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule   answerRule
		unread []string
		null   []string
	}{
		"a failing part":        {answerRule{path: "Storage/2$", status: 500}, []string{"storage"}, nil},
		"a missing part":        {answerRule{path: "NetworkAdapters$", status: 404}, nil, []string{"network_adapters"}},
		"a page":                {answerRule{path: "Chassis_0/Power$", status: 200, body: "<html>log in</html>"}, []string{"power_supplies"}, nil},
		"an error with 200":     {answerRule{path: "Chassis_0/Power$", status: 200, body: `{"error": {"code": "x"}}`}, []string{"power_supplies"}, nil},
		"cut short":             {answerRule{path: "Storage$", status: 200, body: `{"Members": [`}, []string{"storage"}, nil},
		"hangs up":              {answerRule{path: "ThermalSubsystem$", drop: "before"}, []string{"thermal"}, nil},
		"stalls":                {answerRule{path: "ThermalSubsystem$", delay: 3 * time.Second}, []string{"thermal"}, nil},
		"forbidden by itself":   {answerRule{path: "Storage$", status: 403}, []string{"storage"}, nil},
		"chassis unlisted":      {answerRule{path: "/Chassis$", status: 500}, []string{"chassis_health", "thermal", "power_supplies", "network_adapters"}, nil},
		"no chassis listed":     {answerRule{path: "/Chassis$", status: 200, body: `{"Members": []}`}, []string{"chassis_health", "thermal", "power_supplies", "network_adapters"}, nil},
		"the whole's chassis":   {answerRule{path: "/Chassis/Chassis_0$", status: 500}, []string{"chassis_health", "thermal", "power_supplies", "network_adapters"}, nil},
		"a baseboard's chassis": {answerRule{path: "/Chassis/HGX_Chassis_0$", status: 500}, []string{"chassis_health"}, nil},
		"no inventory":          {answerRule{path: "FirmwareInventory$", status: 404}, nil, nil},
		"404 until asked again": {answerRule{path: "Storage$", status: 404, times: 1}, nil, nil},
		"cut once":              {answerRule{path: "Storage$", drop: "before", times: 1}, nil, nil},
		"beyond all bounds":     {answerRule{path: "Storage$", status: 200, body: `{"Members": "` + strings.Repeat("x", 100<<10) + `"}`}, []string{"storage"}, nil},
		"redirected away":       {answerRule{path: "Storage$", status: 307, header: map[string]string{"Location": "https://127.0.0.9/x"}}, []string{"storage"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.rule(c.rule)
			client, _ := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) { c.RequestTimeout, c.BodyLimit = time.Second, 64<<10 })
			got := answeredFacts(t, client)
			if got.PowerState.String() != "Off" || got.Memory != facts.RedfishHealthOK || got.Refusal != 0 {
				t.Errorf("%+v", got)
			}
			unread := slices.Sorted(maps.Keys(got.Unreadable))
			slices.Sort(c.unread)
			if !slices.Equal(unread, c.unread) {
				t.Errorf("unread %v (%v), want %v", unread, got.Unreadable, c.unread)
			}
			for _, fact := range c.null {
				if fact == "network_adapters" && got.NetworkAdapters != 0 {
					t.Errorf("%+v", got)
				}
			}
		})
	}
}

func TestAShelfIsOnWhenAllIsAndUnknownWhenMixed(t *testing.T) {
	t.Parallel()
	const shelf = `{"/redfish/v1": {}, "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/powershelf"}]}, "/redfish/v1/Chassis/powershelf": %s,
		"/redfish/v1/Chassis/powershelf/PowerSubsystem/PowerSupplies": {"Members": [%s]},
		"/redfish/v1/Chassis/powershelf/Outlets": {"Members": [{"@odata.id": "/o/1", "PowerState": "On", "Id": "1"}, {"@odata.id": "/o/2", "PowerState": "On", "Id": "2"}]}}`
	vendor := func(states ...string) string {
		parts := make([]string, len(states))
		for i, s := range states {
			parts[i] = `{"PowerState": ` + s + `}`
		}
		return `{"Id": "powershelf", "Manufacturer": "Lite-On", "Status": {"Health": "OK"}, "Oem": {"liteon": {"PowerSupplies": [` + strings.Join(parts, ",") + `]}}}`
	}
	linked := `{"Id": "powershelf", "Status": {"Health": "OK"}, "PowerSubsystem": {"@odata.id": "/redfish/v1/Chassis/powershelf/PowerSubsystem"}}`
	psu := func(n int, fields string) string {
		return fmt.Sprintf(`{"@odata.id": "/p/%d", "Id": "%d", "Status": {"Health": "OK"} %s}`, n, n, fields)
	}
	for name, c := range map[string]struct {
		chassis, members string
		power            string
		supplies         facts.RedfishHealth
	}{
		"all on":              {vendor("true", "true"), "", "On", 0},
		"all off":             {vendor("false", "false"), "", "Off", 0},
		"mixed":               {vendor("true", "true", "false"), "", "", 0},
		"one says nothing":    {vendor("true", "null"), "", "", 0},
		"none says anything":  {vendor("null"), "", "", 0},
		"no supplies":         {vendor(), "", "", 0},
		"supplies by link":    {linked, psu(1, `, "PowerState": "On"`) + "," + psu(2, `, "Oem": {"x": {"PowerState": true}}`), "On", facts.RedfishHealthOK},
		"outlets":             {strings.Replace(linked, `"Id"`, `"Outlets": {"@odata.id": "/redfish/v1/Chassis/powershelf/Outlets"}, "Id"`, 1), psu(1, ""), "On", facts.RedfishHealthOK},
		"the chassis' own":    {strings.Replace(linked, `"Id"`, `"PowerState": "Off", "Id"`, 1), psu(1, ""), "Off", facts.RedfishHealthOK},
		"states as booleans":  {linked, psu(1, `, "PowerState": false`) + "," + psu(2, `, "PowerState": false`), "Off", facts.RedfishHealthOK},
		"states as odd texts": {linked, psu(1, `, "PowerState": "Maybe"`) + "," + psu(2, `, "PowerState": "On"`), "", facts.RedfishHealthOK},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, fmt.Sprintf(shelf, c.chassis, c.members)))
			client, target := m.client(t, facts.DeviceClassPowershelf)
			got := answeredFacts(t, client)
			if got.PowerState.String() != c.power || got.PowerSupplies != c.supplies || got.ChassisHealth != facts.RedfishHealthOK || got.Refusal != 0 {
				t.Errorf("%+v", got)
			}
			if p, err := client.Power(t.Context(), target); err != nil || p.State != c.power {
				t.Errorf("%+v %v", p, err)
			}
			if len(m.requests("/Systems")) > 0 {
				t.Error("a shelf's Systems are asked for")
			}
		})
	}
}

func TestFirmwareIsReadOnceInAWhile(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	c, _ := m.client(t, facts.DeviceClassGpuCompute)
	c.clock = func() time.Time { return now }
	for range 3 {
		if got := answeredFacts(t, c); got.Firmware["BMC"] != "7.0" {
			t.Fatalf("%+v", got.Firmware)
		}
	}
	if n := len(m.requests("FirmwareInventory$")); n != 1 {
		t.Errorf("asked %d times in three rounds", n)
	}
	m.set("/redfish/v1/UpdateService/FirmwareInventory/BMC", "Version", "8.0")
	now = now.Add(2 * time.Hour)
	if got := answeredFacts(t, c); got.Firmware["BMC"] != "8.0" {
		t.Errorf("%+v", got.Firmware)
	}
	m.rule(answerRule{path: "FirmwareInventory", status: http.StatusInternalServerError})
	now = now.Add(2 * time.Hour)
	if got := answeredFacts(t, c); got.Firmware["BMC"] != "8.0" || got.Unreadable["firmware"] == "" {
		t.Errorf("%+v", got)
	}
}

// What one chassis of a shelf says is not the shelf's power while another one
// cannot be read: an Off would be taken for done.
func TestAShelfThatIsHalfReadHasNoPower(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, `{"/redfish/v1": {}, "/redfish/v1/Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/powershelf_1"}, {"@odata.id": "/redfish/v1/Chassis/powershelf_2"}]},
		"/redfish/v1/Chassis/powershelf_1": {"Id": "powershelf_1", "PowerState": "Off"}, "/redfish/v1/Chassis/powershelf_2": {"Id": "powershelf_2", "PowerState": "On"}}`))
	client, target := m.client(t, facts.DeviceClassPowershelf)
	m.rule(answerRule{method: "GET", path: "/Chassis/powershelf_2$", status: 503, times: 1})
	if now, err := client.Power(t.Context(), target); err == nil && now.State != "" {
		t.Errorf("half read, its power is %q", now.State)
	}
	if now, err := client.Power(t.Context(), target); err != nil || now.State != "" {
		t.Errorf("half on, its power is %q, %v", now.State, err)
	}
}

// One refusal of a login that was good is no lost credential: a BMC that starts
// gives such.
func TestOneRefusalIsNotALostCredential(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	client, target := m.client(t, facts.DeviceClassGpuCompute)
	if _, err := client.Power(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	m.rule(answerRule{method: "GET", path: "Systems$", status: 401, times: 1})
	if _, err := client.Power(t.Context(), target); err == nil || errors.Is(err, ErrBlocked) {
		t.Errorf("refused once: %v", err)
	}
	if _, err := client.Power(t.Context(), target); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
