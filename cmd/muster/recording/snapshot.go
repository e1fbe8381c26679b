package recording

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/recorded"
	"github.com/musterhq/muster/store"
)

const chunk = 1000 // devices read at a time

// Written counts what a snapshot holds of one source of one site.
type Written struct {
	Site    string    `json:"site"`
	Source  string    `json:"source"`
	Records int       `json:"records"`
	At      time.Time `json:"at"` // the last complete listing; zero: there was none
}

// Snapshot writes the facts that a database holds of a site: what each source
// said last of the devices that it still lists.
func Snapshot(ctx context.Context, db *store.DB, dir string, site *fleet.Site) ([]Written, error) {
	marks, err := store.Watermarks(ctx, db, site.ID)
	if err != nil {
		return nil, err
	}
	records := map[string][]sources.Record{}
	for after := int64(0); ; {
		rows, err := store.ListDevices(ctx, db, store.DeviceFilter{Sites: []string{site.Spec.Name}, Retired: new(bool), After: after, Limit: chunk})
		if err != nil {
			return nil, err
		}
		if len(rows) == 0 {
			break
		}
		after = rows[len(rows)-1].ID
		if err := collect(ctx, db, rows, records); err != nil {
			return nil, err
		}
	}
	names := site.Spec.SourceNames()
	var written []Written
	for _, source := range names {
		if err := recorded.Write(dir, site.Spec.Name, source, marks[source].At, records[source]); err != nil {
			return nil, err
		}
		written = append(written, Written{site.Spec.Name, source, len(records[source]), marks[source].At.UTC()})
	}
	return written, writeSite(dir, site.Spec, names)
}

// collect adds what every source said of the devices.
func collect(ctx context.Context, db *store.DB, rows []store.DeviceRow, records map[string][]sources.Record) error {
	ids, names := make([]int64, len(rows)), map[int64]string{}
	for i := range rows {
		ids[i], names[rows[i].ID] = rows[i].ID, rows[i].Name
	}
	stored, err := store.FactsOf(ctx, db, ids)
	if err != nil {
		return err
	}
	for i := range stored {
		s := &stored[i]
		if s.RefGone || s.Ref == "" {
			continue
		}
		record, err := recordOf(s)
		if err != nil {
			return fmt.Errorf("read what %s said of %s: %w", s.Source, names[s.DeviceID], err)
		}
		if s.Source != "bmc" { // its things are addresses
			record.Name = names[s.DeviceID]
		}
		records[s.Source] = append(records[s.Source], record)
	}
	return nil
}

func recordOf(s *fleet.Stored) (sources.Record, error) {
	r := sources.Record{Ref: s.Ref, Serial: s.Serial, At: s.SeenAt}
	var into any
	switch s.Source {
	case "ironic":
		r.Ironic = &facts.Ironic{}
		into = r.Ironic
	case "placement":
		r.Placement = &facts.Placement{}
		into = r.Placement
	case "slurm":
		r.Slurm = &facts.Slurm{}
		into = r.Slurm
	case "bmc":
		r.BMC = &facts.BMC{}
		into = r.BMC
	default:
		r.Netbox = &facts.Netbox{}
		into = r.Netbox
	}
	return r, json.Unmarshal(s.Body, into)
}
