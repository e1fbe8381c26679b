package reconciler

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/store"
)

const (
	foreseeLimit = 2 * time.Minute // of one source
	examples     = 5               // names of each kind
)

// Foreseen is what the next listing of one source would come to, by joins alone.
type Foreseen struct {
	Source    string   `json:"source"`
	Records   int      `json:"records"`
	Known     int      `json:"known"`     // a device has them
	Joined    int      `json:"joined"`    // they would join one
	Moved     int      `json:"moved"`     // they would bring one from another site
	Born      int      `json:"born"`      // they would give birth to one
	Ambiguous int      `json:"ambiguous"` // nobody can say whose they are
	Unmatched int      `json:"unmatched"` // no device would have them
	Missing   int      `json:"missing"`   // devices that the source had and does not list
	Examples  []string `json:"examples"`  // names of some that are ambiguous or unmatched
	Error     string   `json:"error,omitempty"`
}

// Foresee reads the sources of a site as it would be, whether it is stored or
// not (ID 0), and says what would join whom. Nothing is written. BMCs are not
// asked, and Placement says nothing that Ironic does not.
func Foresee(ctx context.Context, db *store.DB, clients Clients, site *fleet.Site) []Foreseen {
	f := foresight{db: db, clients: clients, site: site}
	var all []Foreseen
	inventory := site.Spec.InventorySource()
	for _, source := range append([]string{inventory}, site.Spec.SourceNames()...) {
		if source == "bmc" || source == "placement" || source == inventory && len(all) > 0 || !site.Spec.Has(source) {
			continue
		}
		seen, err := f.source(ctx, source)
		if err != nil {
			seen.Error = sources.CleanText(err.Error(), 1024)
		}
		all = append(all, seen)
	}
	return all
}

// foresight is one look ahead.
type foresight struct {
	db      *store.DB
	clients Clients
	site    *fleet.Site
	unborn  []fleet.Joinable // devices that the inventory would give birth to, with ids below zero
}

func (f *foresight) source(ctx context.Context, source string) (Foreseen, error) {
	seen := Foreseen{Source: source, Examples: []string{}}
	ctx, cancel := context.WithTimeout(ctx, foreseeLimit)
	defer cancel()
	b, err := f.borders(ctx, source)
	if err != nil {
		return seen, err
	}
	records, err := f.list(ctx, source, b)
	if err != nil {
		return seen, err
	}
	seen.Records = len(records)
	devices, err := f.devices(ctx, source)
	if err != nil {
		return seen, err
	}
	in := fleet.JoinInput{
		Inventory: source == f.site.Spec.InventorySource(), Names: store.RefsAreNames(source), Devices: devices, Listed: map[string]bool{},
	}
	live := map[string]bool{}
	for i := range devices {
		if d := &devices[i]; d.Ref != "" && !d.RefGone {
			live[d.Ref] = true
		}
	}
	elsewhere, err := f.elsewhere(ctx, source, b, records)
	if err != nil {
		return seen, err
	}
	for i := range records {
		rd := reading(&records[i])
		in.Listed[rd.Ref] = true
		_, moves := elsewhere[rd.Ref]
		switch {
		case live[rd.Ref]:
			seen.Known++
		case moves:
			seen.Moved++
			f.unborn = append(f.unborn, f.device(&rd))
		default:
			in.Records = append(in.Records, fleet.Listed{Ref: rd.Ref, Name: rd.Name, Serial: rd.Serial, Tenant: rd.Facts.Netbox.Tenant.Value})
		}
	}
	for ref := range live {
		if !in.Listed[ref] {
			seen.Missing++
		}
	}
	f.tell(&seen, &in)
	return seen, nil
}

// tell counts what the joins come to.
func (f *foresight) tell(seen *Foreseen, in *fleet.JoinInput) {
	joins := fleet.Join(*in)
	seen.Joined, seen.Born, seen.Ambiguous, seen.Unmatched = len(joins.Joined), len(joins.Births), len(joins.Ambiguous), len(joins.Unmatched)
	for _, i := range joins.Births {
		r := &in.Records[i]
		f.unborn = append(f.unborn, f.device(&fleet.Reading{Ref: r.Ref, Name: r.Name, Serial: r.Serial}))
	}
	for kind, list := range [][]fleet.Unjoined{joins.Ambiguous, joins.Unmatched} {
		for n, u := range list {
			if n == examples {
				break
			}
			r := &in.Records[u.Record]
			name := r.Name
			if name == "" {
				name = r.Ref
			}
			if kind == 0 {
				name = fmt.Sprintf("%s (%s)", name, u.Why)
			}
			seen.Examples = append(seen.Examples, sources.CleanText(name, 256))
		}
	}
}

// device is one that would be here.
func (f *foresight) device(rd *fleet.Reading) fleet.Joinable {
	return fleet.Joinable{Device: -1 - int64(len(f.unborn)), Name: nameOf(rd), Serial: rd.Serial}
}

func nameOf(rd *fleet.Reading) string {
	if rd.Name == "" {
		return rd.Ref
	}
	return rd.Name
}

// borders tells who else has devices of the source.
func (f *foresight) borders(ctx context.Context, source string) (*borders, error) {
	s := &sweep{Reconciler: &Reconciler{Options: Options{DB: f.db}}, lease: store.SweepLease{Source: source}, site: *f.site}
	return s.bordersOf(ctx)
}

func (f *foresight) elsewhere(ctx context.Context, source string, b *borders, records []sources.Record) (map[string]store.Elsewhere, error) {
	if b == nil {
		return nil, nil
	}
	refs := make([]string, len(records))
	for i := range records {
		refs[i] = records[i].Ref
	}
	var sites []int64
	for _, site := range b.others {
		sites = append(sites, site.ID)
	}
	return store.RefsAt(ctx, f.db, sites, source, refs)
}

// list reads the source once.
func (f *foresight) list(ctx context.Context, source string, b *borders) (records []sources.Record, err error) {
	client, release, err := f.clients.Use(f.site, source)
	if err != nil {
		return nil, err
	}
	defer release()
	given := map[string]bool{}
	end, err := client.List(ctx, func(page []sources.Record) error {
		for i := range page {
			if r := &page[i]; r.Ref != "" && !given[r.Ref] && !b.beyond(r) {
				given[r.Ref] = true
				records = append(records, *r)
			}
		}
		return nil
	})
	if err == nil && !end.Complete {
		err = fmt.Errorf("the listing stopped before its end")
	}
	return records, err
}

// devices are those of the site, and those that the inventory would bring.
func (f *foresight) devices(ctx context.Context, source string) ([]fleet.Joinable, error) {
	tenants := source == f.site.Spec.InventorySource() && source != "ironic"
	stored, err := store.Joinables(ctx, f.db, f.site.ID, source, tenants)
	if err != nil {
		return nil, err
	}
	return append(stored, f.unborn...), nil
}
