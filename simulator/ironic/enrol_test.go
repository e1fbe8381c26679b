package ironic

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// A machine that Ironic does not know yet is enrolled, inspected, cleaned and
// deployed by its BMC's address; with a wrong address it stays in enroll.
func TestANewMachineIsEnrolled(t *testing.T) {
	t.Parallel()
	p, w := newPlayer(t, "sim1")
	var m *world.Machine
	w.Read(func(s *world.State) {
		for _, one := range s.Machines.Of("sim1") {
			if one.Class == world.ClassCompute && one.Node == "" {
				m = one
			}
		}
	})
	if m == nil {
		t.Fatal("the seed has no new machine")
	}
	create := func(name, address string) string {
		body := fmt.Sprintf(`{"name":%q,"driver":"redfish","resource_class":"gb200","driver_info":{"redfish_address":%q,"redfish_password":"x"}}`, name, address)
		answer, got := p.send(http.MethodPost, "/v1/nodes", "1.82", body)
		var n struct{ UUID string }
		if answer.StatusCode != http.StatusCreated || json.Unmarshal(got, &n) != nil {
			t.Fatalf("%d %s", answer.StatusCode, got)
		}
		return n.UUID
	}
	order := func(uuid, target string) (n *world.Node) {
		t.Helper()
		if answer, got := p.send(http.MethodPut, "/v1/nodes/"+uuid+"/states/provision", "1.82", `{"target":"`+target+`"}`); answer.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %d %s", target, answer.StatusCode, got)
		}
		p.clock.at = p.clock.at.Add(time.Minute)
		w.Read(func(s *world.State) { n = s.Nodes.Get(world.Key("sim1", uuid)) })
		return n
	}
	lost := create("nobody", "https://127.99.99.99")
	if n := order(lost, "manage"); n.ProvisionState != world.Enroll || n.LastError == "" {
		t.Errorf("without a machine: %+v", n)
	}
	uuid := create(m.Name, "https://"+m.Address+":8443")
	if n := order(uuid, "manage"); n.ProvisionState != world.Manageable || n.Machine != m.Name || n.PowerState != world.PowerOn {
		t.Errorf("managed: %+v", n)
	}
	if n := order(uuid, "inspect"); n.ProvisionState != world.Manageable || n.Properties["cpus"] == nil || n.InspectFinished.IsZero() {
		t.Errorf("inspected: %+v", n)
	}
	if n := order(uuid, "provide"); n.ProvisionState != world.Available {
		t.Errorf("provided: %+v", n)
	}
	w.Read(func(s *world.State) {
		ports := 0
		for _, port := range s.Ports.Of("sim1") {
			if port.Node == uuid {
				ports++
			}
		}
		published := s.Providers.Get(world.Key("sim1", uuid))
		if ports != 1 || published == nil || published.Inventory["CUSTOM_GB200"].Total != 1 || s.Machines.Get(m.Key()).Node != uuid {
			t.Errorf("%d ports, the provider is %+v", ports, published)
		}
	})
	if answer, got := p.send(http.MethodPut, "/v1/nodes/"+uuid+"/states/provision", "1.82", `{"target":"active"}`); answer.StatusCode != http.StatusBadRequest {
		t.Errorf("a deployment without an image: %d %s", answer.StatusCode, got)
	}
	patch := `[{"op":"add","path":"/instance_info","value":{"image_source":"http://images.example/os.raw"}},{"op":"add","path":"/instance_uuid","value":"11111111-2222-4333-8444-555555555555"}]`
	if answer, got := p.send(http.MethodPatch, "/v1/nodes/"+uuid, "1.82", patch); answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", answer.StatusCode, got)
	}
	if n := order(uuid, "active"); n.ProvisionState != world.Active || n.PowerState != world.PowerOn {
		t.Errorf("deployed: %+v", n)
	}
	w.Read(func(s *world.State) {
		if m := s.Machines.Get(m.Key()); !m.On || !m.Deployed {
			t.Errorf("the machine is %+v", m)
		}
	})
	if n := order(uuid, "deleted"); n.ProvisionState != world.Available || n.InstanceUUID != "" {
		t.Errorf("deleted: %+v", n)
	}
	if answer, got := p.send(http.MethodDelete, "/v1/nodes/"+uuid, "1.82", ""); answer.StatusCode != http.StatusNoContent {
		t.Errorf("%d %s", answer.StatusCode, got)
	}
	w.Read(func(s *world.State) {
		if m := s.Machines.Get(m.Key()); m.Node != "" {
			t.Errorf("the machine still belongs to %s", m.Node)
		}
	})
}

// A config drive goes with a deployment only, and as an object from 1.56 on.
func TestConfigDrivesAreRefusedWhereTheyHaveNoPlace(t *testing.T) {
	t.Parallel()
	p, w := newPlayer(t, "sim1")
	var uuid string
	w.Read(func(s *world.State) {
		for _, n := range s.Nodes.Of("sim1") {
			uuid = n.UUID
		}
	})
	for name, test := range map[string]struct{ version, target, drive, says string }{
		"with another verb": {"1.82", "manage", `{"meta_data": {}}`, "only supported when setting"},
		"an odd key":        {"1.82", "active", `{"keys": []}`, "Invalid configdrive format"},
		"a number":          {"1.82", "active", `7`, "Invalid configdrive format"},
		"before its time":   {"1.55", "active", `{"meta_data": {}}`, "starting with API version 1.56"},
	} {
		answer, got := p.send(http.MethodPut, "/v1/nodes/"+uuid+"/states/provision", test.version, `{"target": "`+test.target+`", "configdrive": `+test.drive+`}`)
		if answer.StatusCode != http.StatusBadRequest || !strings.Contains(string(got), test.says) {
			t.Errorf("%s: %d %s", name, answer.StatusCode, got)
		}
	}
}
