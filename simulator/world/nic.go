package world

import "fmt"

// NIC is a network interface of a machine, as it stands there and as NetBox
// knows it.
type NIC struct {
	Name       string
	MAC        string // "" one without
	Type       string // as NetBox calls it
	Mbps       int
	Management bool   // of the BMC
	Switch     string // the machine that it is cabled to, "" none
	Port       string // of Switch
}

// NICs gives a machine's interfaces, its BMC's first. Of a compute tray the
// first port is cabled to the rack's switch, the others to a fabric that NetBox
// does not have.
func (m *Machine) NICs() []NIC {
	var list []NIC
	port := fmt.Sprintf("swp%d", m.Position)
	if m.Address != "" {
		list = append(list, NIC{Name: "BMC", MAC: m.MAC, Type: "1000base-t", Mbps: 1000, Management: true, Switch: m.Rack + "-s02", Port: port})
	}
	if m.Class == ClassCompute {
		list = append(list, NIC{Name: "eth0", MAC: hostMAC(m), Type: "200gbase-x-qsfp56", Mbps: 200_000, Switch: m.Rack + "-s01", Port: port})
		for i := range 4 {
			list = append(list, NIC{Name: fmt.Sprintf("rail%d", i), MAC: fmt.Sprintf("a%d%s", i+1, m.MAC[2:]), Type: "400gbase-x-osfp", Mbps: 400_000})
		}
	}
	return list
}
