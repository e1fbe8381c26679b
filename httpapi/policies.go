package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/store"
)

const policiesFolder = "policies/"

// policiesView says by what is decided.
type policiesView struct {
	BundleVersion string        `json:"bundle_version"`
	Semantics     int           `json:"semantics"`
	Families      []familyBrief `json:"families"`
}

type familyBrief struct {
	Family  string   `json:"family"`
	Files   []string `json:"files"`
	Ladders []string `json:"ladders"`
}

// familyView is one family of policies as it was reviewed.
type familyView struct {
	Family        string          `json:"family"`
	BundleVersion string          `json:"bundle_version"`
	Files         []policyFile    `json:"files"`
	Ladders       []ladderView    `json:"ladders"`
	Types         []conditionType `json:"condition_types"` // of the family conditions
	Writers       []writerView    `json:"writers"`         // of the family conditions
	Eligibility   []string        `json:"eligibility"`     // slugs, of the family eligibility
}

type policyFile struct {
	Path string `json:"path"`
	Test bool   `json:"test"`
	Text string `json:"text"`
}

type ladderView struct {
	Name      string     `json:"name"`
	Pos       string     `json:"pos"`
	Reads     []string   `json:"reads"`
	Rungs     []rungView `json:"rungs"`
	Otherwise rungView   `json:"otherwise"`
}

type rungView struct {
	Name             string            `json:"name"`
	Pos              string            `json:"pos"`
	Then             string            `json:"then"`
	Conditions       []string          `json:"conditions"` // that its pattern mentions
	UnknownTolerated map[string]string `json:"unknown_tolerated"`
}

type conditionType struct {
	Type        string   `json:"type"`
	Meaning     string   `json:"meaning"`
	Pos         string   `json:"pos"`
	Writers     []string `json:"writers"`
	ConditionOf string   `json:"condition_of"`
	Durable     bool     `json:"durable"`
	Absent      string   `json:"absent"`
	HoldLimit   *float64 `json:"hold_limit_seconds"` // null: as long as it is stale
	Observed    bool     `json:"observed"`
	Sources     []string `json:"sources"`
}

type writerView struct {
	Writer  string   `json:"writer"`
	Meaning string   `json:"meaning"`
	Pos     string   `json:"pos"`
	Sources []string `json:"sources"`
	Types   []string `json:"types"`
}

// loaded gives the bundle that is judged by, with its files.
func (s *Server) loaded(r *request) (*engine.Bundle, map[string]string, error) {
	bundle := s.Policies.Current()
	if bundle == nil {
		return nil, nil, devices.ErrPolicyNotLoaded
	}
	stored, err := store.Bundle(r.Context(), s.DB, bundle.Version())
	return bundle, stored.Files, err
}

func (s *Server) listPolicies(r *request) (*reply, error) {
	bundle, files, err := s.loaded(r)
	if err != nil {
		return nil, err
	}
	v := policiesView{BundleVersion: bundle.Version(), Semantics: engine.Semantics, Families: []familyBrief{}}
	for _, family := range families(files) {
		brief := familyBrief{Family: family, Files: []string{}, Ladders: []string{}}
		for _, path := range slices.Sorted(maps.Keys(files)) {
			if familyOf(path) == family && !isTest(path) {
				brief.Files = append(brief.Files, path)
			}
		}
		for _, l := range bundle.Ladders() {
			if familyOf(l.Pos.File) == family {
				brief.Ladders = append(brief.Ladders, l.Name)
			}
		}
		v.Families = append(v.Families, brief)
	}
	return tagged(v), nil
}

// familyOf names the family that a file belongs to; "" for none.
func familyOf(path string) string {
	rest, ok := strings.CutPrefix(path, policiesFolder)
	family, _, deeper := strings.Cut(rest, "/")
	if !ok || !deeper {
		return ""
	}
	return family
}

func families(files map[string]string) []string {
	names := map[string]bool{}
	for path := range files {
		if family := familyOf(path); family != "" {
			names[family] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func isTest(path string) bool { return strings.HasSuffix(path, "_tests.cue") }

func (s *Server) showFamily(r *request) (*reply, error) {
	v, err := s.family(r, r.vars["family"])
	if err != nil {
		return nil, err
	}
	return tagged(v), nil
}

func (s *Server) family(r *request, family string) (*familyView, error) {
	bundle, files, err := s.loaded(r)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(families(files), family) {
		return nil, refuse(http.StatusNotFound, "family_not_found", "the active policy has no family %q: list them at /api/v1/policies/", family)
	}
	v := &familyView{
		Family: family, BundleVersion: bundle.Version(), Files: []policyFile{}, Ladders: []ladderView{},
		Types: []conditionType{}, Writers: []writerView{}, Eligibility: []string{},
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if familyOf(path) == family {
			v.Files = append(v.Files, policyFile{path, isTest(path), files[path]})
		}
	}
	for _, l := range bundle.Ladders() {
		if familyOf(l.Pos.File) == family {
			v.Ladders = append(v.Ladders, viewLadder(bundle, l))
		}
	}
	switch family {
	case "conditions":
		v.catalogue(bundle)
	case "eligibility":
		v.Eligibility = listed(bundle.Policies())
	}
	return v, nil
}

func viewLadder(b *engine.Bundle, l *engine.Ladder) ladderView {
	v := ladderView{Name: l.Name, Pos: l.Pos.Short(), Reads: listed(l.Reads), Rungs: []rungView{}}
	for i := range l.Rungs {
		rung := &l.Rungs[i]
		one := rungView{Name: rung.Name, Pos: rung.Pos.Short(), Then: l.Gives[i], Conditions: typeNames(b, rung.Tests), UnknownTolerated: map[string]string{}}
		maps.Copy(one.UnknownTolerated, rung.Why)
		v.Rungs = append(v.Rungs, one)
	}
	last := len(l.Rungs)
	v.Otherwise = rungView{Name: l.RungName(last), Pos: l.RungPos(last).Short(), Then: l.Gives[last], Conditions: []string{}, UnknownTolerated: map[string]string{}}
	return v
}

func (v *familyView) catalogue(b *engine.Bundle) {
	catalogue := b.Catalogue()
	for i := range catalogue {
		t := &catalogue[i]
		one := conditionType{
			Type: t.Name, Meaning: t.Meaning, Pos: t.Pos.Short(), Writers: listed(t.Writers), ConditionOf: t.Feeds,
			Durable: t.Durable, Absent: "False", Observed: t.Observed, Sources: listed(t.Sources),
		}
		if t.AbsentUnknown {
			one.Absent = "Unknown"
		}
		if t.HoldLimit > 0 {
			limit := t.HoldLimit.Seconds()
			one.HoldLimit = &limit
		}
		v.Types = append(v.Types, one)
	}
	for _, w := range b.Writers() {
		v.Writers = append(v.Writers, writerView{w.Name, w.Meaning, w.Pos.Short(), listed(w.Sources), typeNames(b, w.Types)})
	}
}

// policyStatusView says what is active, what this replica judges by, and why
// the newest candidate does not load. The family named status has the address
// of this view: it stands in it.
type policyStatusView struct {
	Active      *string      `json:"active"`
	ActivatedAt *time.Time   `json:"activated_at"`
	ActivatedBy *string      `json:"activated_by"`
	Loaded      *string      `json:"loaded"`
	LoadedAt    *time.Time   `json:"loaded_at"`
	Current     bool         `json:"current"` // what is loaded is what is active
	Error       *string      `json:"error"`
	ErrorAt     *time.Time   `json:"error_at"`
	Findings    []vetFinding `json:"findings"`
	Family      *familyView  `json:"family"`
}

type vetFinding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Col      int    `json:"col"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
}

func (s *Server) showPolicyStatus(r *request) (*reply, error) {
	status := s.Policies.Status()
	v := policyStatusView{
		Active: orNil(status.Active), ActivatedAt: instant(status.ActivatedAt), ActivatedBy: orNil(status.ActivatedBy),
		Loaded: orNil(status.Loaded), LoadedAt: instant(status.LoadedAt), Current: status.Active != "" && status.Active == status.Loaded,
		Error: orNil(status.Error), ErrorAt: instant(status.ErrorAt), Findings: []vetFinding{},
	}
	for _, f := range status.Findings {
		v.Findings = append(v.Findings, vetFinding{f.File, f.Line, f.Col, f.Severity.String(), f.Message})
	}
	if s.Policies.Current() != nil {
		family, err := s.family(r, "status")
		if err != nil {
			return nil, err
		}
		v.Family = family
	}
	return ok(v), nil
}
