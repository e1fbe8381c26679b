package world

// Reservation is what a site's DHCP service gives a device's interface.
type Reservation struct {
	Site     string `json:"site"`
	Device   string `json:"device"`
	MAC      string `json:"mac"`
	Address  string `json:"address"`
	Hostname string `json:"hostname,omitempty"`
}

// Key is the reservation's key in Reservations.
func (r *Reservation) Key() string { return Key(r.Site, r.Device) }

// BMCAccount is what a site's credentials service keeps of a device.
type BMCAccount struct {
	Site     string `json:"site"`
	Device   string `json:"device"`
	User     string `json:"user,omitempty"`     // "" the fleet's
	Password string `json:"password,omitempty"` // "" the fleet's
}

// Key is the account's key in Accounts.
func (a *BMCAccount) Key() string { return Key(a.Site, a.Device) }

// Intent is what was declared to a site's topology service.
type Intent struct {
	Site   string `json:"site"` // whose service it is
	Name   string `json:"name"`
	Device string `json:"device"`
	Of     string `json:"of"` // the site that the declaration names
	Action string `json:"action"`
	Times  int    `json:"times"` // that it was declared
}

// Key is the intent's key in Intents.
func (i *Intent) Key() string { return Key(i.Site, i.Name) }

// FactoryPassword is what a BMC comes with, and has again after it was reset to
// its defaults, at a site that keeps each device's credential in a store.
// Elsewhere the fleet's own password is set where BMCs are made.
const FactoryPassword = "factory-0000"

// factoryPassword is what a BMC of the site comes with; "" the fleet's.
func (s *Site) factoryPassword() string {
	if s.CredentialStore {
		return FactoryPassword
	}
	return ""
}

// seedAccount gives a machine's BMC its password: at a site with a store the
// store knows that of every machine which somebody has set up.
func (s *State) seedAccount(site *Site, m *Machine, use Use) {
	switch {
	case !site.CredentialStore || m.Address == "":
	case use == UseNew:
		m.BMC.Own = site.factoryPassword()
	default:
		a := &BMCAccount{Site: m.Site, Device: m.Name}
		s.Accounts.Put(a.Key(), a)
	}
}

// ResetBMC sets a machine's BMC to what it came with.
func (s *State) ResetBMC(m *Machine) {
	s.EditBMC(m, func(b *BMC) { b.Own, b.Password = s.Sites.Get(m.Site).factoryPassword(), "" })
	s.EditMachine(m, func(m *Machine) { m.Boot, m.BootStays, m.LED = "", false, "" })
}
