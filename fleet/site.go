package fleet

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/facts"
)

// Site is one row of the sites table.
type Site struct {
	ID        int64
	Revision  int64
	Spec      SiteSpec
	AppliedAt time.Time
	AppliedBy string
}

// SiteSpec is a site as schema/site.cue checks it (#Site).
type SiteSpec struct {
	Name                  string                `json:"name"`
	EngagementMode        facts.EngagementMode  `json:"engagement_mode"`
	Inventory             facts.InventorySource `json:"inventory"`
	InventoryOnly         bool                  `json:"inventory_only"`
	PlacementEnabled      bool                  `json:"placement_enabled"`
	TraitBased            bool                  `json:"trait_based"`
	ForceReclaimEnabled   bool                  `json:"force_reclaim_enabled"`
	BackendVRFFlipAllowed bool                  `json:"backend_vrf_flip_allowed"`
	CustomerReadyTrait    string                `json:"customer_ready_trait"`
	Lessees               Lessees               `json:"lessees"`
	NetBox                *NetBoxSites          `json:"netbox,omitempty"`
	Sources               Sources               `json:"sources"`
	Enrolment             Enrolment             `json:"enrolment"`
	Imaging               *Imaging              `json:"imaging,omitempty"` // nil: no image of ours is put on nodes
}

// Lessees are the Ironic projects of the site's own leases; "" for none.
type Lessees struct {
	Enrol       string `json:"enrol"`
	Slurm       string `json:"slurm"`
	Maintenance string `json:"maintenance"`
}

// NetBoxSites says which sites of which NetBox are this one.
type NetBoxSites struct {
	Instance string   `json:"instance"`
	Sites    []string `json:"sites"`
}

// Sources are the endpoints of a site; nil where it has none.
type Sources struct {
	Ironic    *IronicSource     `json:"ironic,omitempty"`
	Placement *OpenStackSource  `json:"placement,omitempty"`
	Nova      *OpenStackSource  `json:"nova,omitempty"` // read on its own by workflows, never listed
	Slurm     *SlurmSource      `json:"slurm,omitempty"`
	NetBox    *NetBoxSource     `json:"netbox,omitempty"`
	BMC       *BMCSource        `json:"bmc,omitempty"`
	Recorded  map[string]string `json:"recorded,omitempty"` // source → file of recorded facts

	// Services of contracts of our own (docs/contracts.md), asked by workflows.
	DHCP        *Service `json:"dhcp,omitempty"`
	Credentials *Service `json:"credentials,omitempty"`
	Topology    *Service `json:"topology,omitempty"`
}

// Service is where a service of a contract of our own is.
type Service struct {
	Endpoint
	Token string `json:"token,omitempty"` // file:PATH or env:NAME; "": none
}

// Enrolment says which stages enrolment has at a site, and what nodes are made
// from.
type Enrolment struct {
	DHCP   bool          `json:"dhcp"`
	BMC    bool          `json:"bmc"`
	Ironic bool          `json:"ironic"`
	Node   *NodeTemplate `json:"node,omitempty"`
}

// NodeTemplate is what a new node of Ironic is made from.
type NodeTemplate struct {
	Driver         string            `json:"driver"`
	Interfaces     map[string]string `json:"interfaces,omitempty"`  // deploy_interface → redfish …
	DriverInfo     map[string]any    `json:"driver_info,omitempty"` // texts may quote {bmc.address} {bmc.user} {bmc.password} {device.name} {device.serial}
	Properties     map[string]any    `json:"properties,omitempty"`
	ConductorGroup string            `json:"conductor_group,omitempty"`
	Ports          string            `json:"ports"` // pattern with * and ? over the names of the interfaces in NetBox that become ports
}

// Imaging is how an image of ours is put on a node.
type Imaging struct {
	Nova   *NovaImaging   `json:"nova,omitempty"`   // at sites with Nova
	Direct *DirectImaging `json:"direct,omitempty"` // by Ironic alone
}

// NovaImaging is a server that Nova makes, in the project of SLURM.
type NovaImaging struct {
	Image    string `json:"image"` // UUIDs
	Flavor   string `json:"flavor"`
	Network  string `json:"network"`
	Key      string `json:"key,omitempty"` // name of a keypair
	Username string `json:"username"`      // of SLURM's project
	Password string `json:"password"`      // file:PATH or env:NAME
	Project  string `json:"project"`       // its name
}

// DirectImaging is what Ironic puts on a node by itself.
type DirectImaging struct {
	Image    string   `json:"image"` // image_source: a URL or what Ironic takes besides
	Checksum string   `json:"checksum,omitempty"`
	RootGB   int      `json:"root_gb,omitempty"`
	SSHKeys  []string `json:"ssh_keys,omitempty"`
}

// Endpoint is what every source over HTTP has.
type Endpoint struct {
	URL      string   `json:"url"`
	Interval Duration `json:"interval,omitzero"` // 0: the policy's
	Timeout  Duration `json:"timeout,omitzero"`
	CA       string   `json:"ca,omitempty"`
	Insecure bool     `json:"insecure"`
}

// OpenStackSource is where one service of an OpenStack is and how it knows us.
type OpenStackSource struct {
	Endpoint           // url "": from Keystone's catalog
	Auth     string    `json:"auth"` // none, http_basic, keystone
	Username string    `json:"username,omitempty"`
	Password string    `json:"password,omitempty"` // file:PATH or env:NAME
	Keystone *Keystone `json:"keystone,omitempty"`
}

// IronicSource is where and how Ironic is read.
type IronicSource struct {
	OpenStackSource
	PageSize int `json:"page_size"`
}

// NetBoxSource is where and how NetBox is read.
type NetBoxSource struct {
	Endpoint
	Token    string `json:"token"` // file:PATH or env:NAME
	PageSize int    `json:"page_size"`
}

// Keystone is where a token for an OpenStack service comes from.
type Keystone struct {
	URL           string `json:"url"`
	Project       string `json:"project"`
	UserDomain    string `json:"user_domain"`
	ProjectDomain string `json:"project_domain"`
	Region        string `json:"region"`
}

// SlurmSource is where and how slurmrestd is read.
type SlurmSource struct {
	Endpoint
	User     string   `json:"user"`
	Token    string   `json:"token,omitempty"` // file:PATH or env:NAME
	Versions []string `json:"versions,omitempty"`
}

// BMCSource says how the site's BMCs are polled.
type BMCSource struct {
	Port           int             `json:"port"`
	Networks       []string        `json:"networks"`
	Interval       Duration        `json:"interval,omitzero"`
	Timeout        Duration        `json:"timeout,omitzero"`         // of one BMC in a round
	ConnectTimeout Duration        `json:"connect_timeout,omitzero"` // to one BMC
	InFlight       int             `json:"in_flight,omitempty"`      // BMCs asked at a time
	TLS            BMCTLS          `json:"tls"`
	Credentials    []BMCCredential `json:"credentials"`
}

// BMCTLS says what certificate of a BMC is accepted.
type BMCTLS struct {
	CA           string   `json:"ca,omitempty"`
	Fingerprints []string `json:"fingerprints,omitempty"`
	Insecure     bool     `json:"insecure"`
}

// BMCCredential names the secret for the BMCs that it matches.
type BMCCredential struct {
	Match string `json:"match"`
	Ref   string `json:"ref"`
}

// Has reports whether the site reads the source, live or recorded.
func (s *SiteSpec) Has(source string) bool {
	if _, recorded := s.Sources.Recorded[source]; recorded {
		return true
	}
	switch source {
	case "ironic":
		return s.Sources.Ironic != nil
	case "slurm":
		return s.Sources.Slurm != nil
	case "netbox":
		return s.Sources.NetBox != nil
	case "bmc":
		return s.Sources.BMC != nil
	case "placement":
		return s.PlacementEnabled && s.Has("ironic")
	}
	return false
}

// SourceNames lists the sources that the site reads.
func (s *SiteSpec) SourceNames() []string {
	var names []string
	for _, source := range []string{"ironic", "placement", "slurm", "netbox", "bmc", "file"} {
		if s.Has(source) {
			names = append(names, source)
		}
	}
	return names
}

// Serves reports whether workflows find a client of that name at the site: of a
// source, of nova and imaging, or of a service.
func (s *SiteSpec) Serves(name string) bool {
	switch name {
	case "nova":
		return s.PlacementEnabled && (s.Sources.Nova != nil || s.Sources.Ironic != nil)
	case "imaging":
		return s.Serves("nova") && s.Imaging != nil && s.Imaging.Nova != nil
	case "dhcp":
		return s.Sources.DHCP != nil
	case "credentials":
		return s.Sources.Credentials != nil
	case "topology":
		return s.Sources.Topology != nil
	}
	return s.Has(name)
}

// images reports whether the site says what its machines are deployed with: by
// Nova where it has one, else by Ironic alone.
func (s *SiteSpec) images() bool {
	if s.Serves("nova") {
		return s.Serves("imaging")
	}
	return s.Imaging != nil && s.Imaging.Direct != nil
}

// InventorySource names the source that gives birth to the site's devices.
func (s *SiteSpec) InventorySource() string { return s.Inventory.String() }

// Facts gives the family "site" of a device's facts.
func (s *SiteSpec) Facts() facts.Site {
	return facts.Site{
		Name: s.Name, EngagementMode: s.EngagementMode, PlacementEnabled: s.PlacementEnabled, TraitBased: s.TraitBased,
		ForceReclaimEnabled: s.ForceReclaimEnabled, BackendVRFFlipAllowed: s.BackendVRFFlipAllowed,
		HasIronic: s.Has("ironic"), HasSlurm: s.Has("slurm"), HasBMC: s.Has("bmc"), HasImaging: s.images(), EnrolsNodes: s.Enrolment.Ironic,
		InventorySource: s.Inventory,
	}
}

// Context gives what the derived facts of a device with that proof are
// computed against.
func (s *SiteSpec) Context(proof Proof, now time.Time, overdueAfter map[facts.ProvisionState]time.Duration) facts.Context {
	return facts.Context{
		EnrolLessee: s.Lessees.Enrol, SlurmLessee: s.Lessees.Slurm, MaintenanceLessee: s.Lessees.Maintenance,
		CustomerTrait: s.customerTrait(), ValidatedRef: proof.ValidatedRef, Now: now, OverdueAfter: overdueAfter,
	}
}

func (s *SiteSpec) customerTrait() string {
	if !s.TraitBased {
		return ""
	}
	return s.CustomerReadyTrait
}

// Duration is a time.Duration written as Go spells it: "30s".
type Duration time.Duration

// MarshalText writes the duration as Go spells it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration as Go spells it.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("read a duration: %w", err)
	}
	*d = Duration(parsed)
	return nil
}
