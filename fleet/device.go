package fleet

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
)

// Device is one machine, as the devices table holds it.
type Device struct {
	ID       int64
	SiteID   int64
	RackID   int64 // 0: none
	Position string
	Name     string
	Serial   string // "" for none or a placeholder

	BMCAddress    string
	Class         facts.DeviceClass
	ResourceClass string
	InventoryOnly bool

	Inventory     facts.InventoryStatus
	Operational   facts.OperationalStatus
	Health        facts.HealthStatus
	CustomerReady bool

	InTriage        bool
	EnteredTriageAt time.Time
	TriageTicketURL string
	ParentTicketURL string
	Annotations     map[string]json.RawMessage

	InfrastructureRef string // Ironic node UUID, "" for none
	Proof             Proof

	EnteredServiceAt time.Time
	FailureReason    string
	FailedAt         time.Time

	// Mirrors of what the sources said last.
	IronicProvisionState facts.ProvisionState
	SlurmStates          facts.SlurmStates
	ChassisHealth        facts.RedfishHealth

	Conditions Masks
	InScope    uint64 // types whose writer has the device in its scope
	Unread     uint64 // types that a good reading did not give
	Posted     uint64 // observed types whose row came over HTTP: as fresh as the row
	Decisive   uint64
	Rung       string // that gave the operational status

	ObservationVersion string
	DueAt              time.Time // the next instant at which time alone may change it
	AbsentSince        time.Time // the inventory source no longer lists it
	RetiredAt          time.Time
	CreatedAt          time.Time
	UpdatedAt          time.Time
}

// Proof says which Ironic node an enrolment has validated.
type Proof struct {
	ValidatedRef string
	Source       string // none, enrolled, legacy
	ValidatedAt  time.Time
}

// Masks are the conditions of a device packed by the bits of their types: a
// bit in neither True nor Unknown is False. Present says which have a row.
type Masks struct{ True, Unknown, Present uint64 }

// ImpairmentEvent is the annotation that an impairment event holds a device by.
const ImpairmentEvent = "impairment-event-id"

// ImpairmentHold reports whether an impairment event holds the device.
func (d *Device) ImpairmentHold() bool {
	_, held := d.Annotations[ImpairmentEvent]
	return held
}

// ProvenRef is the Ironic node of the device if an enrolment has validated that
// very node, else "": the one comparison that everything which hands a machine to
// somebody rests on.
func (d *Device) ProvenRef() string {
	if d.Proof.ValidatedRef != d.InfrastructureRef {
		return ""
	}
	return d.InfrastructureRef
}

// Facts gives the family "device" of the device's facts.
func (d *Device) Facts(rack string) facts.Device {
	return facts.Device{
		Name: d.Name, DeviceClass: d.Class, InventoryStatus: d.Inventory, OperationalStatus: d.Operational,
		HealthStatus: d.Health, InTriage: d.InTriage, InventoryOnly: d.InventoryOnly, ImpairmentHold: d.ImpairmentHold(),
		InfrastructureRef: optional(d.InfrastructureRef), ResourceClass: optional(d.ResourceClass),
		Serial: optional(d.Serial), BMCAddress: optional(d.BMCAddress), Rack: optional(rack),
	}
}

func optional(s string) facts.Text {
	if s == "" {
		return facts.Text{}
	}
	return facts.TextOf(s)
}

// NameKey normalises a name for joins: lower case, without surrounding space.
func NameKey(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

// Condition is one row of the conditions table.
type Condition struct {
	DeviceID         int64
	Type             string
	Status           Tri
	Reason           string
	Message          string
	Writer           string
	LastTransitionAt time.Time
	ObservedAt       time.Time // of posted and durable types; zero for emitted ones
}

// Tri is the status of a condition.
type Tri string

// The values of a condition.
const (
	True    Tri = "True"
	False   Tri = "False"
	Unknown Tri = "Unknown"
)

// Unread says why a good reading did not give a condition of a device.
type Unread struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// Stored is what the facts table keeps of one source for one device.
type Stored struct {
	DeviceID int64
	SiteID   int64
	Source   string
	Ref      string // "" for a device that the source never listed
	RefGone  bool   // concluded gone: the device may join another record
	Serial   string // that the record gave
	Hash     [16]byte
	Body     json.RawMessage // of the source's family, without derived facts
	SeenAt   time.Time

	// Why the newest reading gave nothing; zero when it did.
	Trouble Unread
}

// DeviceWriter says what one writer makes of one device. Inventory is a writer
// too: its unread are axes, its scope is every device.
type DeviceWriter struct {
	DeviceID int64
	Writer   string
	InScope  bool
	Unread   map[string]Unread // by type, or by axis
}

// Watermark says how far one source of one site has been read.
type Watermark struct {
	SiteID       int64
	Source       string
	At           time.Time // of the last complete sweep; zero: never
	FailingSince time.Time
	Reason       string
	Alert        string // why the watermark is withheld
}

// Kind names a status axis of which history is kept.
type Kind string

// The axes with history.
const (
	KindInventory   Kind = "inventory"
	KindOperational Kind = "operational"
	KindHealth      Kind = "health"
)

// Event is one row of the append-only history of a device.
type Event struct {
	ID            int64
	DeviceID      int64
	Kind          Kind
	Value         string
	BundleVersion string
	Rung          string
	Cause         Cause
	StatusBefore  string
	Judged        *Judged
	CreatedAt     time.Time
}

// Cause says what made a change.
type Cause struct {
	Type   string `json:"type"` // birth, move, snapshot, condition, projection, policy, site, operator, custody, impairment, job
	Writer string `json:"writer,omitempty"`
	Source string `json:"source,omitempty"`
	Actor  string `json:"actor,omitempty"`
	Job    int64  `json:"job,omitempty"`
	Note   string `json:"note,omitempty"`
}

// Judged are the masks that a derivation saw, so that it can be replayed.
type Judged struct {
	True     uint64 `json:"true,string"`
	Unknown  uint64 `json:"unknown,string"`
	Present  uint64 `json:"present,string"`
	InScope  uint64 `json:"in_scope,string"`
	Stale    uint64 `json:"stale,string"`
	PastHold uint64 `json:"past_hold,string"`
}
