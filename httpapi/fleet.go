package httpapi

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// recentChanges is how many changes the summary tells.
const recentChanges = 20

// fleetView counts the fleet.
type fleetView struct {
	At            time.Time   `json:"at"`
	BundleVersion string      `json:"bundle_version"`
	Total         countsView  `json:"total"`
	Sites         []siteCount `json:"sites"`
	Sources       []sourceRow `json:"sources"` // those that a person should look at
	Recent        []changeRow `json:"recent_changes"`
}

// sourceRow is a source that fails, waits for a person or has findings.
type sourceRow struct {
	Site          string         `json:"site"`
	Source        string         `json:"source"`
	State         string         `json:"state"`
	FailingSince  *time.Time     `json:"failing_since"`
	Alert         *string        `json:"alert"`
	FindingCounts map[string]int `json:"finding_counts"`
}

// countsView counts devices. Retired ones are in none of it, inventory-only
// ones in their own number alone.
type countsView struct {
	Devices       int64            `json:"devices"`
	Operational   map[string]int64 `json:"operational_status"`
	Health        map[string]int64 `json:"health_status"`
	Inventory     map[string]int64 `json:"inventory_status"`
	CustomerReady int64            `json:"customer_ready"`
	InTriage      int64            `json:"in_triage"`
	Stale         int64            `json:"stale"` // some type that may decide the status is not fresh
	InventoryOnly int64            `json:"inventory_only"`
}

type siteCount struct {
	Site string `json:"site"`
	countsView
	StaleSources []string `json:"stale_sources"`
}

type changeRow struct {
	deviceName
	Kind  fleet.Kind  `json:"kind"`
	Value string      `json:"value"`
	From  *string     `json:"from"`
	Rung  *string     `json:"rung"`
	At    time.Time   `json:"at"`
	Cause fleet.Cause `json:"cause"`
}

func (s *Server) showFleet(r *request) (*reply, error) {
	v, err := s.summary(r)
	if err != nil {
		return nil, err
	}
	return ok(v), nil
}

// summary counts what exists for the caller.
func (s *Server) summary(r *request) (*fleetView, error) {
	bundle := s.Policies.Current()
	if bundle == nil {
		return nil, devices.ErrPolicyNotLoaded
	}
	sites, err := s.sites(r)
	if err != nil {
		return nil, err
	}
	marks, err := store.AllWatermarks(r.Context(), s.DB)
	if err != nil {
		return nil, err
	}
	now := s.Clock()
	stale, masks := map[int64][]string{}, map[int64]uint64{}
	for i := range sites {
		stale[sites[i].ID], masks[sites[i].ID] = staleSources(bundle, &sites[i], marks[sites[i].ID], now)
	}
	counted, err := store.CountFleet(r.Context(), s.DB, masks, operationalTypes(bundle))
	if err != nil {
		return nil, err
	}
	recent, err := store.RecentEvents(r.Context(), s.DB, r.principal.Sites, recentChanges)
	if err != nil {
		return nil, err
	}
	reports, err := store.AllSourceReports(r.Context(), s.DB)
	if err != nil {
		return nil, err
	}
	v := &fleetView{At: now.UTC(), BundleVersion: bundle.Version(), Total: emptyCounts(), Sites: []siteCount{}, Sources: troubled(sites, reports, stale), Recent: []changeRow{}}
	for i := range sites {
		one := siteCount{Site: sites[i].Spec.Name, countsView: emptyCounts(), StaleSources: listed(stale[sites[i].ID])}
		if at := slices.IndexFunc(counted, func(c store.SiteCount) bool { return c.SiteID == sites[i].ID }); at >= 0 {
			one.countsView.add(&counted[at])
			v.Total.add(&counted[at])
		}
		v.Sites = append(v.Sites, one)
	}
	for _, e := range recent {
		v.Recent = append(v.Recent, changeRow{
			deviceName: deviceName{e.DeviceID, e.Device, e.Site}, Kind: e.Kind, Value: e.Value, From: orNil(e.StatusBefore),
			Rung: orNil(e.Rung), At: e.CreatedAt, Cause: e.Cause,
		})
	}
	return v, nil
}

// troubled lists the sources of sites that a person should look at, those that
// wait for one first. Those that are only stale are told with their site.
func troubled(sites []fleet.Site, reports []store.SourceReport, stale map[int64][]string) []sourceRow {
	rows := []sourceRow{}
	for i := range reports {
		report := &reports[i]
		at := slices.IndexFunc(sites, func(s fleet.Site) bool { return s.ID == report.SiteID })
		if at < 0 || report.Alert == "" && report.FailingSince.IsZero() && len(report.Findings) == 0 {
			continue
		}
		rows = append(rows, sourceRow{
			Site: sites[at].Spec.Name, Source: report.Source, State: stateOf(report, slices.Contains(stale[report.SiteID], report.Source)), FailingSince: instant(report.FailingSince), Alert: orNil(report.Alert), FindingCounts: report.Findings,
		})
	}
	urgency := func(r sourceRow) int {
		switch r.State {
		case stateWaiting:
			return 0
		case stateFailing:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rows, func(a, b sourceRow) int { return cmp.Or(urgency(a)-urgency(b), cmp.Compare(a.Site, b.Site)) })
	return rows
}

func emptyCounts() countsView {
	return countsView{Operational: map[string]int64{}, Health: map[string]int64{}, Inventory: map[string]int64{}}
}

func (v *countsView) add(c *store.SiteCount) {
	v.Devices += c.Devices
	v.CustomerReady += c.CustomerReady
	v.InTriage += c.InTriage
	v.Stale += c.Stale
	v.InventoryOnly += c.InventoryOnly
	for into, from := range map[*map[string]int64]map[string]int64{&v.Operational: c.Operational, &v.Health: c.Health, &v.Inventory: c.Inventory} {
		for value, n := range from {
			(*into)[value] += n
		}
	}
}

// staleSources lists the sources of a site whose last complete reading is too
// old, with the types that rest on them.
func staleSources(b *engine.Bundle, site *fleet.Site, marks map[string]fleet.Watermark, now time.Time) (names []string, types uint64) {
	paces := devices.Paces(b, &site.Spec)
	for _, source := range site.Spec.SourceNames() {
		if pace, ok := paces[source]; ok && !now.Before(marks[source].At.Add(pace.TTL)) {
			names = append(names, source)
		}
	}
	catalogue := b.Catalogue()
	for i := range catalogue {
		t := &catalogue[i]
		if !t.Durable && slices.ContainsFunc(t.Sources, func(source string) bool { return slices.Contains(names, source) }) {
			types |= 1 << t.Bit
		}
	}
	return names, types
}

// operationalTypes masks the types that may decide the operational status.
func operationalTypes(b *engine.Bundle) (mask uint64) {
	catalogue := b.Catalogue()
	for i := range catalogue {
		if catalogue[i].Feeds == "operational" {
			mask |= 1 << catalogue[i].Bit
		}
	}
	return mask
}

// rackView is a rack with how its devices stand.
type rackView struct {
	ID            int64            `json:"id"`
	Site          string           `json:"site"`
	Ref           string           `json:"ref"`
	Name          string           `json:"name"`
	Devices       int64            `json:"devices"`
	Operational   map[string]int64 `json:"operational_status"`
	CustomerReady int64            `json:"customer_ready"`
}

func (s *Server) listRacks(r *request) (*reply, error) {
	page, err := s.rackPage(r)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// rackPage reads the page of racks that a request asks for.
func (s *Server) rackPage(r *request) (*list[rackView], error) {
	after, err := r.afterID()
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	rows, err := store.ListRacks(r.Context(), s.DB, r.principal.Sites, r.query["site"], after, limit+1)
	if err != nil {
		return nil, err
	}
	page := &list[rackView]{Items: []rackView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].ID))
	}
	for _, k := range rows {
		v := rackView{ID: k.ID, Site: k.Site, Ref: k.Ref, Name: k.Name, Operational: k.Devices, CustomerReady: k.Ready}
		for _, n := range k.Devices {
			v.Devices += n
		}
		page.Items = append(page.Items, v)
	}
	return page, nil
}
