package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// supposition is the body of a what-if: nothing of it is stored.
type supposition struct {
	Site       string                     `json:"site"`
	Facts      map[string]json.RawMessage `json:"facts"`
	Conditions map[string]fleet.Tri       `json:"conditions"`
	InScope    []string                   `json:"in_scope"`
	Stale      []string                   `json:"stale"`
	PastHold   []string                   `json:"past_hold"`
	Status     string                     `json:"operational_status"`
}

// supposed is what the loaded policy makes of it.
type supposed struct {
	BundleVersion string         `json:"bundle_version"`
	Observed      []observedView `json:"observed"`
	Writers       []writerTrace  `json:"writers"`
	Operational   *statusView    `json:"operational"`
	Freeze        traceView      `json:"freeze"`
	Health        traceView      `json:"health"`
	CustomerReady traceView      `json:"customer_ready"`
	Class         *traceView     `json:"device_class"`
	Inventory     *traceView     `json:"inventory_status"`
	Facts         facts.Facts    `json:"facts"` // completed
}

type observedView struct {
	Type    string    `json:"type"`
	Status  string    `json:"status"`  // True, False, Unknown, NotRead
	Counted fleet.Tri `json:"counted"` // what the operational ladder took
	Trace   traceView `json:"trace"`
}

// whatIf is one evaluation. It takes microseconds: the body bounds it, and no
// policy is compiled for it.
type whatIf struct {
	bundle *engine.Bundle
	in     supposition
	facts  facts.Facts
	masks  engine.Masks
	faults []fault
}

func (s *Server) evaluate(r *request) (*reply, error) {
	w := whatIf{bundle: s.Policies.Current()}
	if w.bundle == nil {
		return nil, devices.ErrPolicyNotLoaded
	}
	if err := json.Unmarshal(r.body, &w.in); err != nil {
		return nil, undecodable(err)
	}
	w.decodeFacts()
	given := w.conditions()
	inScope, stale, pastHold := w.types("in_scope", w.in.InScope), w.types("stale", w.in.Stale), w.types("past_hold", w.in.PastHold)
	if len(w.faults) > 0 {
		return nil, refuse(http.StatusBadRequest, "request_invalid", "what is supposed does not fit the facts and conditions of the policy: see errors").with(w.faults...)
	}
	if w.in.Site != "" {
		site, err := s.site(r, w.in.Site)
		if err != nil {
			return nil, err
		}
		w.facts.Site = site.Spec.Facts()
		c := site.Spec.Context(fleet.Proof{ValidatedRef: w.facts.Device.InfrastructureRef.Value}, s.Clock(), w.bundle.Limits().OverdueAfter)
		facts.Complete(&w.facts, &c)
	}
	v := supposed{BundleVersion: w.bundle.Version(), Observed: w.observe(given), Facts: w.facts}
	var scope uint64
	v.Writers, scope = w.scopes()
	switch {
	case w.in.InScope != nil:
	case len(w.in.Facts) > 0:
		inScope = scope
	default:
		inScope = w.masks.Present
	}
	standing := engine.Standing{Masks: w.masks, InScope: inScope, Stale: stale & inScope, PastHold: pastHold & inScope, Status: facts.OperationalStatusUnknown}
	if status, ok := facts.ParseOperationalStatus(w.in.Status); ok {
		standing.Status = status
	}
	trace := w.bundle.ExplainStatus(&standing)
	freeze, health, ready := w.bundle.ExplainFreeze(&w.facts), w.bundle.ExplainHealth(&w.facts), w.bundle.ExplainCustomerReady(&w.facts)
	v.Operational, v.Freeze, v.Health, v.CustomerReady = viewStatus(&trace), viewTrace(&freeze), viewTrace(&health), viewTrace(&ready)
	if class, status, ok := w.bundle.ExplainInventory(w.facts.Site.InventorySource.String(), &w.facts); ok {
		v.Class, v.Inventory = viewTraceOf(&class), viewTraceOf(&status)
	}
	return ok(v), nil
}

// decodeFacts reads the families, each strictly: a fact that is misspelt must
// not look as if it had been judged.
func (w *whatIf) decodeFacts() {
	for _, family := range slices.Sorted(maps.Keys(w.in.Facts)) {
		one, _ := json.Marshal(map[string]json.RawMessage{family: w.in.Facts[family]})
		decoder := json.NewDecoder(bytes.NewReader(one))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&w.facts); err != nil {
			w.faults = append(w.faults, fault{Pointer: "/facts/" + family, Detail: err.Error()})
		}
	}
}

// conditions packs the given conditions and returns the mask of their types.
func (w *whatIf) conditions() (given uint64) {
	for _, name := range slices.Sorted(maps.Keys(w.in.Conditions)) {
		t, ok := w.bundle.Type(name)
		if !ok {
			w.faults = append(w.faults, fault{Pointer: "/conditions/" + name, Detail: "the active policy has no such condition type"})
			continue
		}
		given |= 1 << t.Bit
		w.put(t, w.in.Conditions[name])
	}
	return given
}

func (w *whatIf) put(t *engine.ConditionType, status fleet.Tri) {
	bit := uint64(1) << t.Bit
	w.masks.Present |= bit
	switch status {
	case fleet.True:
		w.masks.True |= bit
	case fleet.Unknown:
		w.masks.Unknown |= bit
	}
}

func (w *whatIf) types(field string, names []string) (mask uint64) {
	for i, name := range names {
		t, ok := w.bundle.Type(name)
		if !ok {
			w.faults = append(w.faults, fault{Pointer: fmt.Sprintf("/%s/%d", field, i), Detail: "the active policy has no such condition type"})
			continue
		}
		mask |= 1 << t.Bit
	}
	return mask
}

// observe lets the emissions judge the facts. A condition that is given stands;
// of the others, one that the facts give counts.
func (w *whatIf) observe(given uint64) []observedView {
	views := []observedView{}
	catalogue := w.bundle.Catalogue()
	for i := range catalogue {
		t := &catalogue[i]
		trace, emitted := w.bundle.ExplainCondition(t.Name, &w.facts)
		if !emitted {
			continue
		}
		if given>>t.Bit&1 == 0 && trace.Outcome != string(devices.NotRead) {
			w.put(t, fleet.Tri(trace.Outcome))
		}
		views = append(views, observedView{Type: t.Name, Status: trace.Outcome, Counted: w.counted(t), Trace: viewTrace(&trace)})
	}
	return views
}

func (w *whatIf) counted(t *engine.ConditionType) fleet.Tri {
	bit := uint64(1) << t.Bit
	switch {
	case w.masks.Present&bit == 0 && t.AbsentUnknown, w.masks.Unknown&bit != 0:
		return fleet.Unknown
	case w.masks.True&bit != 0:
		return fleet.True
	}
	return fleet.False
}

// scopes asks each writer whether it would speak of the device.
func (w *whatIf) scopes() (views []writerTrace, scope uint64) {
	views = []writerTrace{}
	var codes facts.Codes
	w.facts.Intern(&codes)
	for i, writer := range w.bundle.Writers() {
		v := writerTrace{Writer: writer.Name, Unread: map[string]unread{}}
		if trace, ok := w.bundle.ExplainScope(i, &w.facts, w.masks); ok {
			v.InScope, v.Scope = w.bundle.InScope(i, &w.facts, &codes, w.masks), viewTraceOf(&trace)
		}
		if v.InScope {
			scope |= writer.Emits
		}
		views = append(views, v)
	}
	return views, scope
}
