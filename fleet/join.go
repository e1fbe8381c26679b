package fleet

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// SerialKey normalises a real serial number for joins. Placeholders are told
// apart before, at the edge: here "" is none.
func SerialKey(serial string) string { return strings.ToUpper(strings.TrimSpace(serial)) }

// AddressKey spells the address of a BMC in the one way in which it is compared:
// without a prefix length, IPv6 as RFC 5952 says, names in lower case.
func AddressKey(address string) string {
	address, _, _ = strings.Cut(strings.TrimSpace(address), "/")
	if parsed, err := netip.ParseAddr(address); err == nil {
		return parsed.Unmap().String()
	}
	return strings.ToLower(address)
}

// Joinable is a device of a site as the end of one source's listing sees it.
type Joinable struct {
	Device  int64
	Name    string
	Serial  string // "" for none or a placeholder
	Address string // of its BMC
	Node    string // uuid of its Ironic node; "" for none
	Tenant  string // as the inventory says; "" for none
	Ref     string // that the listed source has for it; "" for none
	RefGone bool   // the ref was concluded gone
	Retired bool
}

// Listed is one record of a complete listing whose ref no device has.
type Listed struct {
	Ref     string
	Name    string
	Serial  string // "" for none or a placeholder
	Address string // for a source whose things are addresses
	Node    string // for a source whose things are Ironic's nodes: the uuid
	Tenant  string
}

// JoinInput is what the joins of one listing are computed from. The order of
// Records and Devices has no influence.
type JoinInput struct {
	Inventory bool            // the source gives birth at this site
	Names     bool            // its refs are names or addresses, which pass on from one machine to another
	Records   []Listed        // those whose ref no device has
	Devices   []Joinable      // every device of the site, retired ones too
	Listed    map[string]bool // every ref of the listing
	Gone      map[int64]bool  // devices whose ref this listing's end has concluded gone
}

// Joined is a record that belongs to a device of the site.
type Joined struct {
	Record int // index in JoinInput.Records
	Device int64
}

// Unjoined is a record that belongs to no device, or nobody can say to which.
type Unjoined struct {
	Record  int
	Why     string  // of the constants below
	Devices []int64 // that it may be, ascending
}

// Why a record was joined to nobody.
const (
	NoMatch        = "NoMatch"        // no device of the site has its name or serial
	SeveralDevices = "SeveralDevices" // its name or serial is several devices'
	SeveralRecords = "SeveralRecords" // other new records claim the same name, serial or device
	SerialsDiffer  = "SerialsDiffer"  // the device of its name has another real serial
	NameAgainst    = "NameAgainst"    // its name is one device's, its serial another's
	RefHeld        = "RefHeld"        // the device has a record of this source already
)

const noDevice = -1

// grade says by what a record claims a device: a full name, a serial, an
// address or an old ref are exact, a short name against a full one is not.
type grade uint8

const (
	gradeExact grade = iota
	gradeShort
)

// Joins is the outcome for every record: each index is in exactly one list.
type Joins struct {
	Joined    []Joined
	Births    []int
	Ambiguous []Unjoined // a match that joins nobody; no birth either
	Unmatched []Unjoined // no match, and the source gives no birth
}

// Join decides which new records of a complete listing belong to which
// devices: by a ref kept from before, else by unique name, else by serial, and
// only to a device that has no live record of the source. A device whose
// record is absent from this same listing may be taken over when both real
// serials are equal. The site's inventory source gives birth to what matches
// no device.
func Join(in JoinInput) Joins {
	j := newJoiner(in)
	claims := make([]claim, len(in.Records))
	claimed := map[int][]int{} // device index → records
	for i := range in.Records {
		claims[i] = j.claim(i)
		if d := claims[i].device; d != noDevice {
			claimed[d] = append(claimed[d], i)
		}
	}
	for _, records := range claimed {
		settleClaims(claims, records)
	}
	return j.outcome(claims)
}

// claim is what one record asks for, whether or not the device is free.
type claim struct {
	device  int // index of the one that it belongs to, or noDevice
	grade   grade
	why     string // it joins nobody
	devices []int  // that it may be
	birth   bool
}

// settleClaims lets one of several records that claim the same device have it
// only if it alone has the full name; the others may be the device as well.
func settleClaims(claims []claim, records []int) {
	if len(records) < 2 {
		return
	}
	exact := 0
	for _, r := range records {
		if claims[r].grade == gradeExact {
			exact++
		}
	}
	for _, r := range records {
		if exact == 1 && claims[r].grade == gradeExact {
			continue
		}
		claims[r] = claim{device: noDevice, why: SeveralRecords, devices: []int{claims[r].device}}
	}
}

type joiner struct {
	in        JoinInput
	names     map[string][]int // unretired devices by normalised name
	shorts    map[string][]int // by first label, of full names alone
	serials   map[string][]int
	retired   map[string][]int // retired devices by serial
	addresses map[string][]int
	nodes     map[string][]int
	goneRefs  map[string][]int
	newNames  map[string]int // how many new records have the name and tenant
	newSerial map[string]int
}

func newJoiner(in JoinInput) *joiner {
	j := &joiner{
		in: in, names: map[string][]int{}, shorts: map[string][]int{}, serials: map[string][]int{}, retired: map[string][]int{},
		addresses: map[string][]int{}, nodes: map[string][]int{}, goneRefs: map[string][]int{}, newNames: map[string]int{}, newSerial: map[string]int{},
	}
	for i := range in.Devices {
		j.index(i)
	}
	for i := range in.Records {
		r := &in.Records[i]
		if name := NameKey(r.Name); name != "" {
			j.newNames[j.nameAndTenant(r)]++
		}
		if serial := SerialKey(r.Serial); serial != "" {
			j.newSerial[serial]++
		}
	}
	return j
}

func (j *joiner) index(i int) {
	d := &j.in.Devices[i]
	if d.Ref != "" && d.RefGone && (!d.Retired || j.in.Inventory) {
		j.goneRefs[d.Ref] = append(j.goneRefs[d.Ref], i)
	}
	serial := SerialKey(d.Serial)
	if d.Retired {
		if serial != "" {
			j.retired[serial] = append(j.retired[serial], i)
		}
		return
	}
	name := NameKey(d.Name)
	if name != "" {
		j.names[name] = append(j.names[name], i)
	}
	if short := shortName(name); short != name {
		j.shorts[short] = append(j.shorts[short], i)
	}
	if serial != "" {
		j.serials[serial] = append(j.serials[serial], i)
	}
	if d.Address != "" {
		j.addresses[AddressKey(d.Address)] = append(j.addresses[AddressKey(d.Address)], i)
	}
	if d.Node != "" {
		j.nodes[d.Node] = append(j.nodes[d.Node], i)
	}
}

// shortName gives the first label of a full host name, and any other name as
// it is: addresses have none.
func shortName(name string) string {
	short, _, full := strings.Cut(name, ".")
	if !full || short == "" {
		return name
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	return short
}

func (j *joiner) nameAndTenant(r *Listed) string {
	if !j.in.Inventory {
		return NameKey(r.Name)
	}
	return NameKey(r.Name) + "\x00" + r.Tenant
}

// claim finds the device of one record by what they have in common.
func (j *joiner) claim(i int) claim {
	r := &j.in.Records[i]
	switch {
	case r.Address != "": // the inventory says whose it is, and nothing else does
		return only(j.addresses[AddressKey(r.Address)])
	case r.Node != "": // Ironic says whose it is
		return only(j.nodes[r.Node])
	}
	if old := j.goneRefs[r.Ref]; len(old) == 1 && !j.passedOn(r, old[0]) {
		return claim{device: old[0], grade: gradeExact}
	}
	byName, byNameGrade := j.byName(r)
	serial := SerialKey(r.Serial)
	bySerial := j.serials[serial]
	switch {
	case serial != "" && j.newSerial[serial] > 1:
		return claim{device: noDevice, why: SeveralRecords, devices: union(byName, bySerial)}
	case len(byName) == 1 && j.newNames[j.nameAndTenant(r)] == 1:
		return j.named(r, byName[0], byNameGrade, bySerial)
	case len(byName) > 0: // the name is not unique: the serial decides among its devices
		if len(bySerial) == 1 && slices.Contains(byName, bySerial[0]) {
			return claim{device: bySerial[0], grade: gradeExact}
		}
		return claim{device: noDevice, why: j.whyNotUnique(r, byName), devices: union(byName, bySerial)}
	case len(bySerial) > 0:
		return unique(bySerial)
	case j.in.Inventory && serial != "" && len(j.retired[serial]) == 1:
		return claim{device: j.retired[serial][0], grade: gradeExact}
	case j.in.Inventory && NameKey(r.Name) != "" && j.newNames[j.nameAndTenant(r)] > 1:
		return claim{device: noDevice, why: SeveralRecords}
	case j.in.Inventory:
		return claim{device: noDevice, birth: true}
	}
	return claim{device: noDevice, why: NoMatch}
}

// passedOn reports whether a ref that is a name, and that the device lost, is
// by now the name of others.
func (j *joiner) passedOn(r *Listed, device int) bool {
	named := j.names[NameKey(r.Name)]
	return j.in.Names && len(named) > 0 && !slices.Contains(named, device)
}

// only gives the one device that has what alone joins a record.
func only(devices []int) claim {
	if len(devices) == 0 {
		return claim{device: noDevice, why: NoMatch}
	}
	return unique(devices)
}

func unique(devices []int) claim {
	if len(devices) == 1 {
		return claim{device: devices[0], grade: gradeExact}
	}
	return claim{device: noDevice, why: SeveralDevices, devices: devices}
}

func (j *joiner) whyNotUnique(r *Listed, byName []int) string {
	if len(byName) > 1 {
		return SeveralDevices
	}
	return SeveralRecords
}

// named judges the one device of a record's name by their serials.
func (j *joiner) named(r *Listed, device int, g grade, bySerial []int) claim {
	mine, its := SerialKey(r.Serial), SerialKey(j.in.Devices[device].Serial)
	switch {
	case mine != "" && its != "" && mine != its:
		return claim{device: noDevice, why: SerialsDiffer, devices: union([]int{device}, bySerial)}
	case len(bySerial) > 1 || len(bySerial) == 1 && bySerial[0] != device:
		return claim{device: noDevice, why: NameAgainst, devices: union([]int{device}, bySerial)}
	}
	return claim{device: device, grade: g}
}

// byName gives the devices that have the record's name; else those of which
// one side gives the short form of the other's full name. Two full names of
// different domains are two names.
func (j *joiner) byName(r *Listed) ([]int, grade) {
	name := NameKey(r.Name)
	if name == "" {
		return nil, gradeExact
	}
	if exact := j.sameTenant(r, j.names[name]); len(exact) > 0 {
		return exact, gradeExact
	}
	if short := shortName(name); short != name {
		return j.sameTenant(r, j.names[short]), gradeShort
	}
	return j.sameTenant(r, j.shorts[name]), gradeShort
}

// sameTenant keeps, for the inventory, the devices of the record's tenant, and
// those of which it has said nothing yet: names are unique within site and
// tenant only.
func (j *joiner) sameTenant(r *Listed, devices []int) []int {
	if !j.in.Inventory {
		return devices
	}
	var kept []int
	for _, d := range devices {
		if device := &j.in.Devices[d]; device.Ref == "" || device.Tenant == r.Tenant {
			kept = append(kept, d)
		}
	}
	return kept
}

func union(a, b []int) []int {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// outcome lets each record have what it claims if the device is free.
func (j *joiner) outcome(claims []claim) Joins {
	var out Joins
	for i, c := range claims {
		if c.device != noDevice && !j.free(i, c.device) {
			c = claim{device: noDevice, why: RefHeld, devices: []int{c.device}}
		}
		switch {
		case c.device != noDevice:
			out.Joined = append(out.Joined, Joined{Record: i, Device: j.in.Devices[c.device].Device})
		case c.birth:
			out.Births = append(out.Births, i)
		case c.why == NoMatch:
			out.Unmatched = append(out.Unmatched, Unjoined{Record: i, Why: NoMatch})
		default:
			out.Ambiguous = append(out.Ambiguous, Unjoined{Record: i, Why: c.why, Devices: j.ids(c.devices)})
		}
	}
	return out
}

// free reports whether a record may have the device: it has no live record of
// the source or that of another node, or its record is absent from this listing and the serials say that
// both are the same machine.
func (j *joiner) free(record, device int) bool {
	d, r := &j.in.Devices[device], &j.in.Records[record]
	if d.Ref == "" || d.RefGone || j.in.Gone[d.Device] || r.Node != "" && r.Node == d.Node {
		return true
	}
	serial := SerialKey(r.Serial)
	return !j.in.Listed[d.Ref] && serial != "" && serial == SerialKey(d.Serial)
}

func (j *joiner) ids(devices []int) []int64 {
	ids := make([]int64, 0, len(devices))
	for _, d := range devices {
		ids = append(ids, j.in.Devices[d].Device)
	}
	slices.SortFunc(ids, cmp.Compare)
	return ids
}
