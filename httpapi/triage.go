package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/store"
)

// triage is the body that puts devices in triage or takes them out.
type triage struct {
	DeviceIDs []int64 `json:"device_ids"`
	InTriage  bool    `json:"in_triage"`
	TicketURL *string `json:"triage_ticket_url"`
	ParentURL *string `json:"parent_ticket_url"`
}

// triageDevices writes the triage of devices that exist for the caller, and
// shows them as they are then.
func (s *Server) triageDevices(r *request) (*reply, error) {
	var in triage
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	visible, err := store.VisibleDevices(r.Context(), s.DB, in.DeviceIDs, r.principal.Sites)
	if err != nil {
		return nil, err
	}
	var missing []fault
	for i, id := range in.DeviceIDs {
		if !visible[id] {
			missing = append(missing, fault{Pointer: fmt.Sprintf("/device_ids/%d", i), Code: string(devices.CodeDeviceNotFound), Detail: "there is no such device"})
		}
	}
	if len(missing) > 0 {
		return nil, refuse(http.StatusNotFound, string(devices.CodeDeviceNotFound), "nothing was changed: some of the devices do not exist, see errors").with(missing...)
	}
	err = s.Devices.Triage(r.Context(), devices.TriagePost{
		Devices: in.DeviceIDs, InTriage: in.InTriage, TicketURL: in.TicketURL, ParentURL: in.ParentURL, By: r.caller(),
	})
	if err != nil {
		return nil, err
	}
	rows, err := store.ListDevices(r.Context(), s.DB, store.DeviceFilter{SiteNames: r.principal.Sites, IDs: in.DeviceIDs, Limit: len(in.DeviceIDs)})
	if err != nil {
		return nil, err
	}
	page, err := s.viewDevices(r, rows)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}
