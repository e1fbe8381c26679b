package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// siteView is a site without what only administrators need: endpoints and
// where their credentials are.
type siteView struct {
	ID                  int64                 `json:"id"`
	Name                string                `json:"name"`
	Revision            int64                 `json:"revision"`
	EngagementMode      facts.EngagementMode  `json:"engagement_mode"`
	Inventory           facts.InventorySource `json:"inventory"`
	InventoryOnly       bool                  `json:"inventory_only"`
	PlacementEnabled    bool                  `json:"placement_enabled"`
	TraitBased          bool                  `json:"trait_based"`
	ForceReclaimEnabled bool                  `json:"force_reclaim_enabled"`
	Sources             []string              `json:"sources"`
	AppliedAt           time.Time             `json:"applied_at"`
	AppliedBy           string                `json:"applied_by"`
}

func (s *Server) listSites(r *request) (*reply, error) {
	sites, err := s.sites(r)
	if err != nil {
		return nil, err
	}
	var views []siteView
	for i := range sites {
		spec := &sites[i].Spec
		views = append(views, siteView{
			ID: sites[i].ID, Name: spec.Name, Revision: sites[i].Revision, EngagementMode: spec.EngagementMode, Inventory: spec.Inventory,
			InventoryOnly: spec.InventoryOnly, PlacementEnabled: spec.PlacementEnabled, TraitBased: spec.TraitBased,
			ForceReclaimEnabled: spec.ForceReclaimEnabled, Sources: listed(spec.SourceNames()), AppliedAt: sites[i].AppliedAt.UTC(), AppliedBy: sites[i].AppliedBy,
		})
	}
	page, err := paged(r, views, func(v siteView) string { return v.Name })
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// sites reads the sites that exist for the caller.
func (s *Server) sites(r *request) ([]fleet.Site, error) {
	all, err := store.Sites(r.Context(), s.DB)
	if err != nil {
		return nil, err
	}
	var seen []fleet.Site
	for _, site := range all {
		if r.principal.Sees(site.Spec.Name) {
			seen = append(seen, site)
		}
	}
	return seen, nil
}

// site reads a site, if it exists for the caller.
func (s *Server) site(r *request, name string) (fleet.Site, error) {
	if !r.principal.Sees(name) {
		return fleet.Site{}, siteNotFound()
	}
	site, err := store.SiteByName(r.Context(), s.DB, name)
	if errors.Is(err, store.ErrNotFound) {
		return site, siteNotFound()
	}
	return site, err
}

// sourceView is how well one source of a site is read.
type sourceView struct {
	Site          string         `json:"site"`
	Source        string         `json:"source"`
	State         string         `json:"state"`   // by stateOf
	ReadAt        *time.Time     `json:"read_at"` // when it was last read to its end
	Stale         bool           `json:"stale"`
	FailingSince  *time.Time     `json:"failing_since"`
	Reason        *string        `json:"reason"`
	Alert         *string        `json:"alert"` // why what it lacks is not concluded
	Interval      *float64       `json:"interval_seconds"`
	TTL           *float64       `json:"ttl_seconds"`
	Sweeping      bool           `json:"sweeping"`
	NextSweepAt   *time.Time     `json:"next_sweep_at"`
	FindingCounts map[string]int `json:"finding_counts"`
}

// sourceDetail adds what a person should know of the source.
type sourceDetail struct {
	sourceView
	Missing  *missingSet   `json:"missing"`
	Findings []findingView `json:"findings"`
	Next     *string       `json:"next"`
}

// missingSet is what the newest complete listing lacks and nobody has concluded
// gone. Its hash is what a person confirms.
type missingSet struct {
	Hash  string   `json:"hash"`
	Count int      `json:"count"`
	Refs  []string `json:"refs"` // the first 1000
}

type findingView struct {
	Kind     string         `json:"kind"`
	Ref      string         `json:"ref"`
	DeviceID *int64         `json:"device_id"`
	Detail   map[string]any `json:"detail"`
	Since    time.Time      `json:"since"`
}

func (s *Server) viewSource(site *fleet.Site, report *store.SourceReport) sourceView {
	v := sourceView{
		Site: site.Spec.Name, Source: report.Source, ReadAt: instant(report.At), FailingSince: instant(report.FailingSince),
		Reason: orNil(report.Reason), Alert: orNil(report.Alert), Sweeping: report.Sweeping, NextSweepAt: instant(report.Due), FindingCounts: report.Findings,
	}
	if bundle := s.Policies.Current(); bundle != nil {
		if pace, ok := devices.Paces(bundle, &site.Spec)[report.Source]; ok {
			interval, ttl := pace.Interval.Seconds(), pace.TTL.Seconds()
			v.Interval, v.TTL = &interval, &ttl
			v.Stale = !s.Clock().Before(report.At.Add(pace.TTL))
		}
	}
	v.State = stateOf(report, v.Stale)
	return v
}

// stateOf says in a word how a source is, by what is most pressing: a person is
// waited for, it fails, it is stale.
func stateOf(report *store.SourceReport, stale bool) string {
	switch {
	case report.Alert != "" || report.Waits:
		return stateWaiting
	case !report.FailingSince.IsZero():
		return stateFailing
	case stale:
		return stateStale
	}
	return stateGood
}

// How a source may be.
const (
	stateWaiting = "waiting"
	stateFailing = "failing"
	stateStale   = "stale"
	stateGood    = "good"
)

func (s *Server) listSources(r *request) (*reply, error) {
	site, err := s.site(r, r.vars["site"])
	if err != nil {
		return nil, err
	}
	reports, err := store.SourceReports(r.Context(), s.DB, site.ID)
	if err != nil {
		return nil, err
	}
	var views []sourceView
	for i := range reports {
		views = append(views, s.viewSource(&site, &reports[i]))
	}
	page, err := paged(r, views, func(v sourceView) string { return v.Source })
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

func (s *Server) showSource(r *request) (*reply, error) {
	site, report, err := s.source(r)
	if err != nil {
		return nil, err
	}
	v := sourceDetail{sourceView: s.viewSource(&site, &report), Findings: []findingView{}}
	refs, hash, err := store.MissingSet(r.Context(), s.DB, site.ID, report.Source)
	if err != nil {
		return nil, err
	}
	if hash != "" {
		v.Missing = &missingSet{Hash: hash, Count: len(refs), Refs: refs[:min(len(refs), maxLimit)]}
	}
	keys, err := r.after(2)
	if err != nil {
		return nil, err
	}
	if keys == nil {
		keys = []string{"", ""}
	}
	limit := r.limit()
	found, err := store.Findings(r.Context(), s.DB, site.ID, report.Source, keys[0], keys[1], limit+1)
	if err != nil {
		return nil, err
	}
	if len(found) > limit {
		found = found[:limit]
		v.Next = r.next(found[limit-1].Kind, found[limit-1].Ref)
	}
	for _, f := range found {
		one := findingView{Kind: f.Kind, Ref: f.Ref, Detail: f.Detail, Since: f.Since.UTC()}
		if f.DeviceID != 0 {
			one.DeviceID = &f.DeviceID
		}
		v.Findings = append(v.Findings, one)
	}
	return tagged(v), nil
}

// source reads what is known of the source that the path names.
func (s *Server) source(r *request) (fleet.Site, store.SourceReport, error) {
	site, err := s.site(r, r.vars["site"])
	if err != nil {
		return site, store.SourceReport{}, err
	}
	reports, err := store.SourceReports(r.Context(), s.DB, site.ID)
	if err != nil {
		return site, store.SourceReport{}, err
	}
	for _, report := range reports {
		if report.Source == r.vars["source"] {
			return site, report, nil
		}
	}
	return site, store.SourceReport{}, refuse(http.StatusNotFound, "source_not_found", "the site has no such source: list them at /api/v1/sites/%s/sources/", site.Spec.Name)
}

type confirmed struct {
	Confirmed int    `json:"confirmed"` // how many records count as gone from the next listing on that still lacks them
	Hash      string `json:"hash"`
}

func (s *Server) confirmMissing(r *request) (*reply, error) {
	var in struct {
		Hash string `json:"hash"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	site, report, err := s.source(r)
	if err != nil {
		return nil, err
	}
	var refs []string
	err = s.DB.Tx(r.Context(), func(tx pgx.Tx) (err error) {
		refs, err = store.Confirm(r.Context(), tx, store.Confirmation{
			SiteID: site.ID, Source: report.Source, Hash: in.Hash, Actor: r.principal.Name, Remote: r.remote(),
		})
		return err
	})
	if errors.Is(err, store.ErrFindingChanged) || errors.Is(err, store.ErrNotFound) {
		return nil, refuse(http.StatusConflict, "finding_changed", "what the source lacks is not what this hash names: look at it again at /api/v1/sites/%s/sources/%s/", site.Spec.Name, report.Source)
	}
	if err != nil {
		return nil, err
	}
	return ok(confirmed{Confirmed: len(refs), Hash: in.Hash}), nil
}
