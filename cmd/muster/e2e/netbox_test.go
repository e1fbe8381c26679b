package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/sources/ironic/ironictest"
)

// fleetSize is more than may go missing at once.
const fleetSize = 12

// racks is the machines of a NetBox, two of which Ironic has.
type racks struct {
	*world
	netbox *realNetBox
	token  string // file
}

// What stands in the racks is what NetBox says; what becomes of it there shows,
// and what NetBox does not let us see changes nothing.
func TestARealNetBoxGivesBirthToDevices(t *testing.T) {
	t.Parallel()
	needPeers(t)
	n := findNetBox(t)
	n.furnish(t)
	r := &racks{netbox: n, token: filepath.Join(t.TempDir(), "token"), world: &world{ironic: startIronic(t), nodes: map[string]string{}}}
	for i, name := range []string{"t1", "t2", "t3"} {
		n.device(t, name, fmt.Sprintf("E2E%04d", i+1), i+1)
	}
	n.fill(t, 4, fleetSize)
	r.write(t, n.reader(t))
	for name, node := range map[string]ironictest.Node{
		"t1": {Name: "t1", ResourceClass: "gb200", Lessee: enrolProject, Traits: []string{customerTrait}},
		"t2": {Name: "bare-metal-77", ResourceClass: "gb200", Lessee: slurmProject, Properties: map[string]any{"serial_number": "E2E0002"}},
	} {
		id, err := r.ironic.CreateNode(t.Context(), node)
		if err != nil {
			t.Fatal(err)
		}
		r.nodes[name] = id
		if err := r.ironic.Enroll(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	r.muster = newMuster(t, build(t), r.siteFile(t))
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"devices are born and joined to Ironic's nodes, by name and by serial", r.born},
		{"one is deleted, and imported again", r.deletedAndBack},
		{"another machine takes the name of one that is gone", r.nameTaken},
		{"the role is renamed", r.roleRenamed},
		{"the user loses the permission", r.unseen},
		{"the permission shrinks to nothing", r.shrunk},
		{"the token is exchanged", r.exchanged},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

func (r *racks) write(t *testing.T, token string) {
	t.Helper()
	if err := os.WriteFile(r.token, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (r *racks) siteFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "site.cue")
	text := fmt.Sprintf(`name: "ams4"
engagement_mode:      "fully_managed"
inventory:            "netbox"
netbox: {instance: "main", sites: [%q]}
trait_based:          true
placement_enabled:    false
customer_ready_trait: %q
lessees: {enrol: %q, slurm: %q, maintenance: ""}
sources: {
	ironic: {url: %q, interval: "1s", timeout: "15s"}
	netbox: {url: %q, token: %q, page_size: 5, interval: "1s", timeout: "30s"}
}
`, r.netbox.site, customerTrait, enrolProject, slurmProject, r.ironic.url, r.netbox.url, "file:"+r.token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// source is how well NetBox is read.
type source struct {
	Stale        bool
	FailingSince *string `json:"failing_since"`
	Alert        *string
	Findings     []struct {
		Kind, Ref string
		Detail    json.RawMessage
	}
}

func (r *racks) source() (s source, err error) {
	err = r.get("/sites/ams4/sources/netbox/", &s)
	return s, err
}

// finding waits until NetBox's findings have one, or have it no more.
func (r *racks) finding(t *testing.T, kind string, wanted bool) {
	t.Helper()
	r.until(t, fmt.Sprintf("the finding %s to be there: %v", kind, wanted), func() error {
		s, err := r.source()
		if err != nil {
			return err
		}
		for _, f := range s.Findings {
			if f.Kind == kind {
				if wanted {
					return nil
				}
				return fmt.Errorf("%s of %s stands", f.Kind, f.Ref)
			}
		}
		if wanted {
			return fmt.Errorf("there are %v", s.Findings)
		}
		return nil
	})
}

// failing waits until NetBox cannot be read for a reason that holds a text.
func (r *racks) failing(t *testing.T, reason string) {
	t.Helper()
	r.until(t, "NetBox to fail: "+reason, func() error {
		s, err := r.source()
		if err != nil {
			return err
		}
		for _, f := range s.Findings {
			if f.Kind == "failure" && s.FailingSince != nil && strings.Contains(string(f.Detail), reason) {
				return nil
			}
		}
		return fmt.Errorf("since %s: %v", said(s.FailingSince), s.Findings)
	})
}

// recovered waits until NetBox is read well.
func (r *racks) recovered(t *testing.T) {
	t.Helper()
	r.until(t, "NetBox to be read again", func() error {
		s, err := r.source()
		if err == nil && (s.FailingSince != nil || s.Stale || s.Alert != nil) {
			err = fmt.Errorf("failing since %s, stale: %v, alert: %s", said(s.FailingSince), s.Stale, said(s.Alert))
		}
		return err
	})
	r.stand(t)
}

// stand shows that all is as it was.
func (r *racks) stand(t *testing.T) {
	t.Helper()
	r.expect(t, "t1", available)
	r.expect(t, "t2", validating)
	r.expect(t, "t3", gone)
	for _, name := range []string{"t1", "t2", "t3"} {
		d := r.device(t, name)
		if d.DeviceClass != "gpu_compute" || d.InventoryStatus != "active" || d.AbsentSince != nil || said(d.Rack) != "R7" {
			t.Errorf("%s is %+v", name, d)
		}
	}
}

func (r *racks) born(t *testing.T) {
	r.stand(t)
	for i, name := range []string{"t1", "t2", "t3"} {
		d := r.device(t, name)
		if said(d.Serial) != fmt.Sprintf("E2E%04d", i+1) {
			t.Errorf("the serial of %s is %s", name, said(d.Serial))
		}
		if id := r.nodes[name]; id != "" && said(d.InfrastructureRef) != id {
			t.Errorf("the node of %s is %s, want %s", name, said(d.InfrastructureRef), id)
		}
	}
}

// absent waits until a device is out of the inventory, and shows that it is kept.
func (r *racks) absent(t *testing.T, name string) {
	t.Helper()
	r.until(t, name+" to be absent", func() error {
		d, err := r.find(name)
		if err == nil && (d.AbsentSince == nil || d.InventoryStatus != "unknown" || d.CustomerReady) {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
}

func (r *racks) deletedAndBack(t *testing.T) {
	before := r.device(t, "t1")
	r.netbox.remove(t, "t1")
	r.absent(t, "t1")
	if d := r.device(t, "t1"); d.ID != before.ID || said(d.InfrastructureRef) != r.nodes["t1"] || said(d.Rack) != "R7" {
		t.Errorf("what is absent is %+v", d)
	}
	r.netbox.device(t, "t1", "E2E0001", 1)
	r.until(t, "t1 to be back", func() error {
		d, err := r.find("t1")
		if err == nil && (d.AbsentSince != nil || d.InventoryStatus != "active") {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	r.stand(t)
	if d := r.device(t, "t1"); d.ID != before.ID {
		t.Errorf("t1 was device %d and is %d", before.ID, d.ID)
	}
}

// nameTaken puts another machine where t3 stood: nobody's, until a person says
// that t3 is gone for good.
func (r *racks) nameTaken(t *testing.T) {
	before := r.device(t, "t3")
	r.netbox.remove(t, "t3")
	r.absent(t, "t3")
	r.netbox.device(t, "t3", "E2E0099", 3)
	r.finding(t, "ambiguous", true)
	if d := r.device(t, "t3"); d.ID != before.ID || said(d.Serial) != "E2E0003" || d.AbsentSince == nil {
		t.Errorf("the device that is gone is %+v", d)
	}
	r.netbox.remove(t, "t3")
	r.netbox.device(t, "t3", "E2E0003", 3)
	r.finding(t, "ambiguous", false)
	r.until(t, "t3 to be back", func() error {
		d, err := r.find("t3")
		if err == nil && (d.AbsentSince != nil || d.InventoryStatus != "active" || d.ID != before.ID) {
			err = fmt.Errorf("it is %+v", d)
		}
		return err
	})
	r.stand(t)
}

func (r *racks) roleRenamed(t *testing.T) {
	r.netbox.role(t, "machines")
	r.finding(t, "unmapped", true)
	r.stand(t)
	r.netbox.role(t, "gpu-node")
	r.finding(t, "unmapped", false)
	r.stand(t)
}

// quietly does something that must write no history.
func (r *racks) quietly(t *testing.T, do func()) {
	t.Helper()
	newest := func() (last int64) {
		for _, name := range []string{"t1", "t2", "t3"} {
			for _, e := range r.events(t, name) {
				last = max(last, e.ID)
			}
		}
		return last
	}
	before := newest()
	do()
	r.stand(t)
	if last := newest(); last != before {
		t.Errorf("history was written: event %d after %d", last, before)
	}
}

func (r *racks) unseen(t *testing.T) {
	r.quietly(t, func() {
		r.netbox.sees(t, map[string]any{"enabled": false})
		r.failing(t, "lacks the permission")
	})
	r.netbox.sees(t, map[string]any{"enabled": true})
	r.recovered(t)
}

func (r *racks) shrunk(t *testing.T) {
	r.quietly(t, func() {
		r.netbox.sees(t, map[string]any{"constraints": []any{map[string]any{"name": "nothing-has-this-name"}}})
		r.until(t, "an alert", func() error {
			s, err := r.source()
			if err == nil && s.Alert == nil {
				err = fmt.Errorf("failing since %s: %v", said(s.FailingSince), s.Findings)
			}
			return err
		})
		t.Logf("while nothing is to be seen\n%s", r.cli(t, "source", "show", "ams4", "netbox"))
	})
	r.netbox.sees(t, map[string]any{"constraints": nil})
	r.recovered(t)
}

func (r *racks) exchanged(t *testing.T) {
	r.quietly(t, func() {
		r.netbox.send(t, http.MethodDelete, r.netbox.at("token", "users/tokens/"), nil)
		r.failing(t, "check the token")
	})
	r.write(t, r.netbox.another(t))
	r.recovered(t)
}
