package world

import (
	"fmt"
	"net"
	"net/url"
	"time"
)

// PowerSync is how long Ironic takes at most to notice a change of power that it
// did not make.
const PowerSync = 10 * time.Second

// The words of Ironic for power.
const (
	PowerOn  = "power on"
	PowerOff = "power off"
)

// FaultPower is the fault of a node whose BMC Ironic cannot reach.
const FaultPower = "power failure"

// powerWord is Ironic's word for a machine's power.
func powerWord(on bool) string {
	if on {
		return PowerOn
	}
	return PowerOff
}

// syncs tells whether Ironic compares the power of a node.
func (n *Node) syncs() bool {
	switch n.ProvisionState {
	case Enroll, CleanWait, DeployWait, AdoptFailed:
		return false
	}
	return n.TargetPower == "" && n.Reservation == ""
}

// syncPower has Ironic restore the power that it knows of: a change behind its
// back is undone. A BMC that is silent is a fault, which ends when it answers.
func (s *State) syncPower(n *Node) {
	m := s.MachineOf(n)
	if m == nil {
		return
	}
	if n.Maintenance {
		if n.Fault == FaultPower && s.reach(n) == "" {
			n.Maintenance, n.Reason, n.Fault, n.LastError = false, "", "", ""
			n.PowerState, n.Updated = powerWord(m.On), s.Now
		}
		return
	}
	if !n.syncs() || len(m.Moves) > 0 {
		n.SyncAt = s.Now.Add(PowerSync)
		return
	}
	if broken := s.reach(n); broken != "" {
		s.powerFault(n, broken)
		return
	}
	switch actual := powerWord(m.On); n.PowerState {
	case actual:
	case "":
		n.PowerState, n.Updated = actual, s.Now
	default:
		s.Switch(m, "reset by Ironic's power sync", n.PowerState == PowerOn)
		n.SyncAt = s.Now.Add(PowerSync)
	}
}

func (s *State) powerFault(n *Node, broken string) {
	n.LastError = fmt.Sprintf("During sync_power_state, max retries exceeded for node %s, node state None does not match expected state '%s'. "+
		"Updating DB state to 'None' Switching node to maintenance mode. Error: %s", n.UUID, n.PowerState, broken)
	n.PowerState, n.Maintenance, n.Reason, n.Fault, n.Updated = "", true, n.LastError, FaultPower, s.Now
}

// nodePowerChanged lets a node's own power change end, or has Ironic notice one
// that it did not make.
func (s *State) nodePowerChanged(m *Machine) {
	n := s.Nodes.Edit(Key(m.Site, m.Node))
	if n == nil {
		return
	}
	switch {
	case n.TargetPower == "":
		n.SyncAt = s.Now.Add(PowerSync)
	case len(m.Moves) == 0 && powerWord(m.On) == n.TargetPower:
		s.powered(n)
	}
	s.Nodes.Put(n.Key(), n)
}

// powered ends the change of a node's power.
func (s *State) powered(n *Node) {
	n.PowerState, n.TargetPower, n.Updated = n.TargetPower, "", s.Now
	if n.Work == WorkPower {
		n.Work, n.Reservation, n.Next = "", "", time.Time{}
	}
}

// BMCChanged tells a machine's node that its BMC fell silent or answers again.
func (s *State) BMCChanged(m *Machine) {
	if n := s.Nodes.Edit(Key(m.Site, m.Node)); n != nil {
		n.SyncAt = s.Now.Add(PowerSync)
		s.Nodes.Put(n.Key(), n)
	}
}

// reach gives what hinders Ironic from talking to the BMC of a node, "" nothing.
func (s *State) reach(n *Node) string {
	if n.Interfaces["power"] != "redfish" {
		return ""
	}
	address, _ := n.DriverInfo["redfish_address"].(string)
	m := s.MachineOf(n)
	switch {
	case m != nil && m.BMC.Hangs:
		return fmt.Sprintf("Redfish connection failed for node %s: Unable to connect to %s. Error: Read timed out. (read timeout=60)", n.UUID, address)
	case m == nil || m.BMC.Dead || !s.Fed(m):
		return fmt.Sprintf("Redfish connection failed for node %s: Unable to connect to %s. Error: [Errno 111] ECONNREFUSED", n.UUID, address)
	case m.BMC.NotReady.After(s.Now):
		return fmt.Sprintf("Redfish connection failed for node %s: HTTP GET %s/redfish/v1/ returned code 503.", n.UUID, address)
	}
	if password, _ := n.DriverInfo["redfish_password"].(string); m.BMC.secret() != "" && password != m.BMC.secret() {
		return fmt.Sprintf("Redfish exception occurred. Error: HTTP GET %s/redfish/v1/Systems returned code 401. Unauthorized", address)
	}
	return ""
}

// redfishHost is the host in driver_info's redfish_address.
func redfishHost(info map[string]any) string {
	address, _ := info["redfish_address"].(string)
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Hostname()
	}
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
}

// How long a fake node takes to change its power, and how long Ironic waits for
// a machine to have changed it.
const (
	fakePower    = 150 * time.Millisecond
	powerTimeout = 30 * time.Second
)

// RequestPower begins what a request to Ironic asks of a node's power: to be on
// at its end, and off before that if reboot is set. The node is to be Put
// afterwards.
func (s *State) RequestPower(n *Node, on, reboot bool) {
	n.Work, n.Reservation, n.LastError, n.TargetPower, n.Updated = WorkPower, conductor(n.Site), "", powerWord(on), s.Now
	m := s.MachineOf(n)
	if m == nil || s.reach(n) != "" || n.Fails == WorkPower || m.On == on && len(m.Moves) == 0 && !reboot {
		n.Next = s.Now.Add(fakePower)
		return
	}
	n.Next = s.Now.Add(powerTimeout)
	s.drive(n, m, "power: "+n.TargetPower, on, reboot)
}

// drive has Ironic switch the machine of a node.
func (s *State) drive(n *Node, m *Machine, op string, on, reboot bool) {
	if m.On == on && len(m.Moves) == 0 && !reboot {
		n.PowerState = powerWord(on)
		return
	}
	n.TargetPower = powerWord(on)
	switch {
	case m.BMC.Deaf || on && !s.Fed(m): // accepted, and nothing comes of it
	case on && m.On:
		s.Switch(m, "Ironic: "+op, false, true)
	default:
		s.Switch(m, "Ironic: "+op, on)
	}
}

// unpowered tells of a node whose machine did not do what Ironic had it do.
func (s *State) unpowered(n *Node) string {
	m := s.MachineOf(n)
	if m == nil || n.TargetPower == "" || powerWord(m.On) == n.TargetPower && len(m.Moves) == 0 {
		return ""
	}
	return "Failed to set node power state to " + n.TargetPower + "."
}

// endPower ends a request about power that no machine ends.
func (s *State) endPower(n *Node) {
	broken := s.reach(n)
	if n.Fails == WorkPower {
		broken, n.Fails = "The BMC did not carry it out.", ""
	}
	if broken == "" {
		broken = s.unpowered(n)
	}
	if broken == "" {
		s.powered(n)
		return
	}
	n.LastError = fmt.Sprintf("Failed to change power state to '%s': %s", n.TargetPower, broken)
	if m := s.MachineOf(n); m != nil && s.reach(n) == "" {
		n.PowerState = powerWord(m.On)
	}
	n.Work, n.Reservation, n.TargetPower, n.Updated = "", "", "", s.Now
}
