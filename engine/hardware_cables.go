package engine

import (
	"fmt"
	"strings"
)

// cables compares every cable that is recorded with what its interface hears.
// Where the profile asks for interfaces, as many of them must have one recorded.
func (j *judgement) cables() {
	m := j.machine
	if len(m.Cables) == 0 {
		j.differs("cabling", "the recorded cables", "none recorded", Incomplete)
		return
	}
	if m.NICs == nil {
		j.differs("cabling", "the recorded cables", notTold, Incomplete)
		return
	}
	recorded := map[int]bool{} // interfaces
	for i := range m.Cables {
		cable, ends := &m.Cables[i], false
		for k := range m.NICs {
			if cable.of(&m.NICs[k]) {
				j.cable(cable, &m.NICs[k])
				recorded[k], ends = true, true
			}
		}
		if !ends {
			j.differs("cabling", cable.String(), "no such interface told", Incomplete)
		}
	}
	for i := range j.profile.NICs {
		p, cabled := &j.profile.NICs[i], 0
		for k := range m.NICs {
			if recorded[k] && p.serves(&m.NICs[k]) == yes {
				cabled++
			}
		}
		if cabled < p.Count {
			j.differs("cabling", fmt.Sprintf("a recorded cable of each of nics.%d: %s", i, p), fmt.Sprintf("%d recorded", cabled), Incomplete)
		}
	}
}

// of reports whether a cable is one of the interface.
func (c *Cable) of(nic *NIC) bool {
	if c.MAC != "" {
		return strings.EqualFold(c.MAC, nic.MAC)
	}
	return c.Interface != "" && strings.EqualFold(c.Interface, nic.Name)
}

func (c *Cable) String() string {
	from := c.Interface
	if from == "" {
		from = c.MAC
	}
	return from + " to " + end(c.Switch, c.Port)
}

func (j *judgement) cable(c *Cable, nic *NIC) {
	switched, ported := sameSwitch(c.Switch, nic.Switch), same(c.Port, nic.Port)
	if switched == no || ported == no {
		j.differs("cabling", c.String(), end(nic.Switch, nic.Port), Wrong)
	} else if switched == untold || ported == untold {
		j.differs("cabling", c.String(), end(nic.Switch, nic.Port), Incomplete)
	}
}

func end(name, port string) string {
	if name == "" && port == "" {
		return "an end that is " + notTold
	}
	parts := []string{name, port}
	for i := range parts {
		if parts[i] == "" {
			parts[i] = "(" + notTold + ")"
		}
	}
	return strings.Join(parts, " ")
}

func same(a, b string) answer {
	if a == "" || b == "" {
		return untold
	}
	return answered(strings.EqualFold(a, b))
}

// sameSwitch compares the names of two switches, of which one may be without its
// domain.
func sameSwitch(a, b string) answer {
	hostA, domainA, _ := strings.Cut(a, ".")
	hostB, domainB, _ := strings.Cut(b, ".")
	if domainA == "" || domainB == "" {
		return same(hostA, hostB)
	}
	return same(a, b)
}
