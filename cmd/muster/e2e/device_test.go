package e2e

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// device is what GET /devices/{id}/ is asked for here.
type device struct {
	ID                int64
	Name              string
	OperationalStatus string  `json:"operational_status"`
	Rung              *string `json:"rung"`
	StatusFresh       bool    `json:"status_fresh"`
	InfrastructureRef *string `json:"infrastructure_ref"`
	ValidatedRef      *string `json:"enrollment_validated_ref"`
	HealthStatus      string  `json:"health_status"`
	BMCAddress        *string `json:"bmc_address"`
	Serial            *string `json:"serial"`
	Rack              *string `json:"rack"`
	DeviceClass       string  `json:"device_class"`
	InventoryStatus   string  `json:"inventory_status"`
	AbsentSince       *string `json:"absent_since"`
	CustomerReady     bool    `json:"customer_ready"`
	Decisive          []struct {
		Type   string
		Status string
	} `json:"operational_status_conditions"`
	Stale []struct {
		Type   string
		Reason string
	} `json:"stale_conditions"`
}

type event struct {
	ID            int64
	Kind          string
	Value         string
	Rung          *string
	BundleVersion *string `json:"bundle_version"`
}

// find reads a device by its name.
func (w *world) find(name string) (device, error) {
	var found struct{ Items []device }
	if err := w.get("/devices/?name="+url.QueryEscape(name), &found); err != nil {
		return device{}, err
	}
	if len(found.Items) != 1 {
		return device{}, fmt.Errorf("%d devices have the name %s", len(found.Items), name)
	}
	var d device
	err := w.get(fmt.Sprintf("/devices/%d/", found.Items[0].ID), &d)
	return d, err
}

func (w *world) device(t *testing.T, name string) device {
	t.Helper()
	d, err := w.find(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (w *world) hasStatus(name, status string) error {
	d, err := w.find(name)
	if err == nil && d.OperationalStatus != status {
		err = fmt.Errorf("it is %s", d.OperationalStatus)
	}
	return err
}

// expect waits until a device has the status, the rung and the decisive
// conditions.
func (w *world) expect(t *testing.T, name string, want want) {
	t.Helper()
	w.until(t, name+" to be "+want.status+" by "+want.rung, func() error {
		d, err := w.find(name)
		if err != nil {
			return err
		}
		var decisive []string
		for _, c := range d.Decisive {
			decisive = append(decisive, c.Type)
		}
		slices.Sort(decisive)
		rung := ""
		if d.Rung != nil {
			rung = *d.Rung
		}
		if d.OperationalStatus != want.status || rung != want.rung || !slices.Equal(decisive, want.decisive) {
			return fmt.Errorf("it is %s by %s, decided by %v", d.OperationalStatus, rung, decisive)
		}
		return nil
	})
}

func (w *world) events(t *testing.T, name string) []event {
	t.Helper()
	var found struct{ Items []event }
	if err := w.get(fmt.Sprintf("/devices/%d/lifecycle-events/?limit=1000", w.device(t, name).ID), &found); err != nil {
		t.Fatal(err)
	}
	return found.Items
}

// expectHistory looks for the newest row of the operational status.
func (w *world) expectHistory(t *testing.T, name string, want want) {
	t.Helper()
	for _, e := range w.events(t, name) { // the newest first
		if e.Kind != "operational" {
			continue
		}
		if e.Value != want.status || e.Rung == nil || e.BundleVersion == nil || !strings.HasPrefix(*e.BundleVersion, "sha256:") {
			t.Errorf("the newest row is %+v, want %s with rung and bundle version", e, want.status)
		}
		return
	}
	t.Errorf("%s has no operational history", name)
}

// lastEvent is the newest row of history of the devices that an outage leaves alone.
func (w *world) lastEvent(t *testing.T) (last int64) {
	t.Helper()
	for _, name := range []string{"n0002", "n0003", "n0005"} {
		for _, e := range w.events(t, name) {
			last = max(last, e.ID)
		}
	}
	return last
}
