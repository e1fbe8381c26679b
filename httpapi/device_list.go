package httpapi

import (
	"encoding/json"
	"math/bits"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// deviceView is a device as lists show it.
type deviceView struct {
	ID                     int64                      `json:"id"`
	Name                   string                     `json:"name"`
	Site                   string                     `json:"site"`
	Rack                   *string                    `json:"rack"`
	RackID                 *int64                     `json:"rack_id"`
	Position               *string                    `json:"position"`
	Serial                 *string                    `json:"serial"`
	BMCAddress             *string                    `json:"bmc_address"`
	DeviceClass            facts.DeviceClass          `json:"device_class"`
	ResourceClass          *string                    `json:"resource_class"`
	InventoryOnly          bool                       `json:"inventory_only"`
	InventoryStatus        facts.InventoryStatus      `json:"inventory_status"`
	OperationalStatus      facts.OperationalStatus    `json:"operational_status"`
	HealthStatus           facts.HealthStatus         `json:"health_status"`
	CustomerReady          bool                       `json:"customer_ready"`
	StatusFresh            bool                       `json:"status_fresh"`
	Held                   bool                       `json:"held"`
	Frozen                 bool                       `json:"frozen"`
	Stale                  []string                   `json:"stale"`
	Rung                   *string                    `json:"rung"`
	InTriage               bool                       `json:"in_triage"`
	EnteredTriageAt        *time.Time                 `json:"entered_triage_at"`
	TriageTicketURL        *string                    `json:"triage_ticket_url"`
	ParentTicketURL        *string                    `json:"parent_ticket_url"`
	IronicProvisionState   facts.ProvisionState       `json:"ironic_provision_state"`
	SlurmStates            facts.SlurmStates          `json:"slurm_states"`
	SlurmStateUpdatedAt    *time.Time                 `json:"slurm_state_updated_at"`
	ChassisHealth          facts.RedfishHealth        `json:"chassis_health"`
	InfrastructureRef      *string                    `json:"infrastructure_ref"`
	EnrollmentValidatedRef *string                    `json:"enrollment_validated_ref"`
	EnrollmentProofSource  string                     `json:"enrollment_proof_source"`
	EnrollmentValidatedAt  *time.Time                 `json:"enrollment_validated_at"`
	EnteredServiceAt       *time.Time                 `json:"entered_service_at"`
	FailureReason          *string                    `json:"failure_reason"`
	FailedAt               *time.Time                 `json:"failed_at"`
	Annotations            map[string]json.RawMessage `json:"annotations"`
	AbsentSince            *time.Time                 `json:"absent_since"`
	RetiredAt              *time.Time                 `json:"retired_at"`
	CreatedAt              time.Time                  `json:"created_at"`
	UpdatedAt              time.Time                  `json:"updated_at"`
}

func viewDevice(d *store.DeviceRow, st *devices.Standing, b *engine.Bundle) deviceView {
	v := deviceView{
		ID: d.ID, Name: d.Name, Site: d.Site, Rack: orNil(d.Rack), Position: orNil(d.Position), Serial: orNil(d.Serial),
		BMCAddress: orNil(d.BMCAddress), DeviceClass: d.Class, ResourceClass: orNil(d.ResourceClass), InventoryOnly: d.InventoryOnly,
		InventoryStatus: d.Inventory, OperationalStatus: d.Operational, HealthStatus: d.Health, CustomerReady: d.CustomerReady,
		StatusFresh: st.StatusFresh, Held: st.Held, Frozen: st.Frozen, Stale: typeNames(b, st.Stale), Rung: orNil(d.Rung),
		InTriage: d.InTriage, EnteredTriageAt: instant(d.EnteredTriageAt), TriageTicketURL: orNil(d.TriageTicketURL), ParentTicketURL: orNil(d.ParentTicketURL),
		IronicProvisionState: d.IronicProvisionState, SlurmStates: d.SlurmStates, ChassisHealth: d.ChassisHealth,
		InfrastructureRef: orNil(d.InfrastructureRef), EnrollmentValidatedRef: orNil(d.Proof.ValidatedRef),
		EnrollmentProofSource: d.Proof.Source, EnrollmentValidatedAt: instant(d.Proof.ValidatedAt),
		EnteredServiceAt: instant(d.EnteredServiceAt), FailureReason: orNil(d.FailureReason), FailedAt: instant(d.FailedAt),
		Annotations: d.Annotations, AbsentSince: instant(d.AbsentSince), RetiredAt: instant(d.RetiredAt),
		CreatedAt: d.CreatedAt.UTC(), UpdatedAt: d.UpdatedAt.UTC(),
	}
	if d.RackID != 0 {
		v.RackID = &d.RackID
	}
	if d.SlurmStates != 0 {
		v.SlurmStateUpdatedAt = instant(d.SlurmSeen)
	}
	if v.Annotations == nil {
		v.Annotations = map[string]json.RawMessage{}
	}
	return v
}

// typeNames spells a mask, in the order of bits. A type of another bundle has
// no name here and is left out.
func typeNames(b *engine.Bundle, mask uint64) []string {
	names := []string{}
	for ; mask != 0; mask &= mask - 1 {
		if t := b.TypeOf(uint8(bits.TrailingZeros64(mask))); t != nil {
			names = append(names, t.Name)
		}
	}
	return names
}

func (s *Server) listDevices(r *request) (*reply, error) {
	page, err := s.devicePage(r)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// devicePage reads the page of devices that a request asks for.
func (s *Server) devicePage(r *request) (*list[deviceView], error) {
	filter, err := r.deviceFilter()
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	filter.Limit = limit + 1
	rows, err := store.ListDevices(r.Context(), s.DB, filter)
	if err != nil {
		return nil, err
	}
	var next *string
	if len(rows) > limit {
		rows = rows[:limit]
		next = r.next(key(rows[limit-1].ID))
	}
	page, err := s.viewDevices(r, rows)
	if err != nil {
		return nil, err
	}
	page.Next = next
	return page, nil
}

// viewDevices shows devices as they are to be taken now.
func (s *Server) viewDevices(r *request, rows []store.DeviceRow) (*list[deviceView], error) {
	bundle, standings, err := s.standings(r, rows)
	if err != nil {
		return nil, err
	}
	page := &list[deviceView]{Items: make([]deviceView, len(rows))}
	for i := range rows {
		st := standings[rows[i].ID]
		page.Items[i] = viewDevice(&rows[i], &st, bundle)
	}
	return page, nil
}

// standings judges the age of what devices are known by.
func (s *Server) standings(r *request, rows []store.DeviceRow) (*engine.Bundle, map[int64]devices.Standing, error) {
	bundle := s.Policies.Current()
	if bundle == nil {
		return nil, nil, devices.ErrPolicyNotLoaded
	}
	of := make([]fleet.Device, len(rows))
	for i := range rows {
		of[i] = rows[i].Device
	}
	standings, err := s.Devices.Standings(r.Context(), of)
	return bundle, standings, err
}

// deviceFilter reads the filters of a list of devices.
func (r *request) deviceFilter() (store.DeviceFilter, error) {
	q := r.query
	f := store.DeviceFilter{
		SiteNames: r.principal.Sites, Names: mapped(q["name"], fleet.NameKey), Serials: mapped(q["serial"], fleet.SerialKey),
		Sites: q["site"], Racks: q["rack"], Classes: q["device_class"], Inventory: q["inventory_status"],
		Operational: q["operational_status"], Health: q["health_status"], SlurmStates: q["slurm_states"],
		CustomerReady: flag(q, "customer_ready"), InTriage: flag(q, "in_triage"), InventoryOnly: flag(q, "inventory_only"),
	}
	switch q.Get("retired") {
	case "true":
		f.Retired = new(bool)
		*f.Retired = true
	case "any":
	default:
		f.Retired = new(bool)
	}
	f.RackIDs, f.IDs = ids(q["rack_id"]), ids(q["id"])
	var err error
	f.After, err = r.afterID()
	return f, err
}

func mapped(texts []string, f func(string) string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = f(text)
	}
	return out
}

// flag reads a filter that is true, false or not given.
func flag(q url.Values, name string) *bool {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	value := strings.EqualFold(text, "true")
	return &value
}

// ids reads numbers that the document has checked; one that is no id of ours
// chooses nothing.
func ids(texts []string) []int64 {
	var numbers []int64
	for _, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			n = -1
		}
		numbers = append(numbers, n)
	}
	return numbers
}
