package ironic

import (
	"encoding/hex"
	"encoding/json"
	"net"

	"github.com/musterhq/muster/sources"
)

// parsedNeighbour reads what Ironic's hook parse-lldp made of a port's LLDP.
func parsedNeighbour(raw json.RawMessage) *Neighbour {
	var parsed struct {
		System  json.RawMessage `json:"switch_system_name"`
		Chassis json.RawMessage `json:"switch_chassis_id"`
		Port    json.RawMessage `json:"switch_port_id"`
	}
	if absent(raw) || json.Unmarshal(raw, &parsed) != nil {
		return nil
	}
	return neighbour(plain(parsed.System), plain(parsed.Chassis), plain(parsed.Port))
}

func neighbour(system, chassis, port string) *Neighbour {
	if system == "" {
		system = chassis
	}
	if system == "" || port == "" {
		return nil
	}
	return &Neighbour{Switch: system, Port: port}
}

// The parts of an LLDP frame (IEEE 802.1AB) that name its sender.
const (
	tlvChassis = 1
	tlvPort    = 2
	tlvSystem  = 5
)

// rawNeighbour reads LLDP as the ramdisk heard it: pairs of a type and the
// value in hexadecimal digits.
func rawNeighbour(raw json.RawMessage) *Neighbour {
	var pairs [][]json.RawMessage
	if absent(raw) || json.Unmarshal(raw, &pairs) != nil {
		return nil
	}
	var system, chassis, port string
	for _, pair := range pairs {
		if len(pair) != 2 {
			continue
		}
		var digits string
		value, err := []byte(nil), json.Unmarshal(pair[1], &digits)
		if err == nil && len(digits) <= longText {
			value, err = hex.DecodeString(digits)
		}
		if err != nil {
			continue
		}
		switch number(pair[0]) {
		case tlvChassis:
			chassis = identity(value, 4)
		case tlvPort:
			port = identity(value, 3)
		case tlvSystem:
			system = sources.CleanText(string(value), shortText)
		}
	}
	return neighbour(system, chassis, port)
}

// identity reads the identity of a chassis or a port: one byte says its form,
// of which mac is a MAC address and 5 a network address, which names nothing.
func identity(value []byte, mac byte) string {
	switch {
	case len(value) < 2:
		return ""
	case value[0] == mac && len(value) == 7:
		return net.HardwareAddr(value[1:]).String()
	case value[0] == 5 && mac == 4:
		return ""
	}
	return sources.CleanText(string(value[1:]), shortText)
}
