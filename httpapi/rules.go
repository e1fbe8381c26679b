package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// ruleView is an operation rule as it is shown.
type ruleView struct {
	ID            int64           `json:"id"`
	Name          string          `json:"name"`
	Description   *string         `json:"description"`
	OperationType string          `json:"operation_type"`
	Operation     string          `json:"operation"`
	IsDefault     bool            `json:"is_default"`
	Racks         []int64         `json:"racks"`
	Revision      int             `json:"revision"`
	Rule          json.RawMessage `json:"rule"` // version and steps
	CreatedAt     time.Time       `json:"created_at"`
	UpdatedAt     time.Time       `json:"updated_at"`
	UpdatedBy     string          `json:"updated_by"`
	Warnings      []problemView   `json:"warnings,omitempty"` // where it was just stored
}

// problemView is one thing that is wrong with a rule, or odd.
type problemView struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// viewWritten shows a rule to who wrote it: of its racks those that exist for them.
func (s *Server) viewWritten(r *request, id int64, warnings []rule.Problem) (ruleView, error) {
	rows, err := store.ListRules(r.Context(), s.DB, store.RuleFilter{IDs: []int64{id}, Limit: 1, SiteNames: r.principal.Sites})
	if err != nil {
		return ruleView{}, err
	}
	if len(rows) == 0 { // somebody deleted it meanwhile
		return ruleView{}, refuse(http.StatusNotFound, operations.CodeRuleNotFound, "there is no such rule any more")
	}
	return viewRule(&rows[0], warnings), nil
}

func (s *Server) written(r *request, id int64, warnings []rule.Problem) (*reply, error) {
	view, err := s.viewWritten(r, id, warnings)
	if err != nil {
		return nil, err
	}
	return ok(view), nil
}

func viewRule(r *store.RuleRow, warnings []rule.Problem) ruleView {
	return ruleView{
		ID: r.ID, Name: r.Name, Description: orNil(r.Description), OperationType: r.OperationType, Operation: r.Operation, IsDefault: r.IsDefault, Racks: listed(r.Racks),
		Revision: r.Revision, Rule: r.Rule, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt, UpdatedBy: r.UpdatedBy, Warnings: viewProblems(warnings),
	}
}

func viewProblems(all []rule.Problem) []problemView {
	var views []problemView
	for _, p := range all {
		views = append(views, problemView(p))
	}
	return views
}

// ruleBody is the body of what stores a rule.
type ruleBody struct {
	Rule      json.RawMessage `json:"rule"`
	IsDefault bool            `json:"is_default"`
}

// brackets are indexes of a path, as in steps[0].
var brackets = regexp.MustCompile(`\[(\d+)\]`)

// invalidRule is the problem of a rule that the schema refuses; below is where it
// stands in the body.
func invalidRule(e *rule.Invalid, below string) *problem {
	p := refuse(http.StatusUnprocessableEntity, operations.CodeRuleInvalid, "the rule is not valid: %d problems, see errors", len(e.Problems))
	if len(e.Problems) == 1 {
		p.Detail = strings.TrimPrefix(e.Problems[0].Path+": ", ": ") + e.Problems[0].Message
	}
	for _, one := range e.Problems {
		pointer := below
		if one.Path != "" {
			pointer += "/" + strings.ReplaceAll(brackets.ReplaceAllString(one.Path, ".$1"), ".", "/")
		}
		p.Errors = append(p.Errors, fault{Pointer: pointer, Code: operations.CodeRuleInvalid, Detail: one.Message})
	}
	return p
}

// refusedRule tells of a rule in the body that the schema refuses.
func refusedRule(err error, below string) error {
	var invalid *rule.Invalid
	if errors.As(err, &invalid) {
		return invalidRule(invalid, below)
	}
	return err
}

func (s *Server) listRules(r *request) (*reply, error) {
	page, err := s.rulePage(r)
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// listRackRules lists the rules that a rack is bound to.
func (s *Server) listRackRules(r *request) (*reply, error) {
	rack := r.number("rack")
	racks, err := store.FindRacks(r.Context(), s.DB, []int64{rack}, nil, r.principal.Sites, "")
	if err != nil {
		return nil, err
	}
	if len(racks) == 0 {
		return nil, refuse(http.StatusNotFound, operations.CodeRackNotFound, "there is no rack %d: list them at /api/v1/racks/", rack)
	}
	page, err := s.rulesOf(r, store.RuleFilter{Rack: rack})
	if err != nil {
		return nil, err
	}
	return ok(page), nil
}

// rulePage reads the page of rules that a request asks for.
func (s *Server) rulePage(r *request) (*list[ruleView], error) {
	return s.rulesOf(r, store.RuleFilter{OperationType: r.query.Get("operation_type"), Operation: r.query.Get("operation"), IsDefault: flag(r.query, "is_default")})
}

// rulesOf reads one page of the rules that f chooses, with those of their racks
// that exist for the caller.
func (s *Server) rulesOf(r *request, f store.RuleFilter) (*list[ruleView], error) {
	after, err := r.afterID()
	if err != nil {
		return nil, err
	}
	limit := r.limit()
	f.After, f.Limit, f.SiteNames = after, limit+1, r.principal.Sites
	rows, err := store.ListRules(r.Context(), s.DB, f)
	if err != nil {
		return nil, err
	}
	page := &list[ruleView]{Items: []ruleView{}}
	if len(rows) > limit {
		rows = rows[:limit]
		page.Next = r.next(key(rows[limit-1].ID))
	}
	for i := range rows {
		page.Items = append(page.Items, viewRule(&rows[i], nil))
	}
	return page, nil
}

// number reads an id that the path names; 0, which nothing has, for what is none.
func (r *request) number(name string) int64 {
	id, err := strconv.ParseInt(r.vars[name], 10, 64)
	if err != nil {
		return 0
	}
	return id
}

func (s *Server) showRule(r *request) (*reply, error) {
	rows, err := store.ListRules(r.Context(), s.DB, store.RuleFilter{IDs: []int64{r.number("rule")}, Limit: 1, SiteNames: r.principal.Sites})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, ruleNotFound()
	}
	return tagged(viewRule(&rows[0], nil)), nil
}

func (s *Server) createRule(r *request) (*reply, error) {
	var in ruleBody
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	stored, err := s.Operations.CreateRule(r.Context(), rule.Document{Data: in.Rule}, in.IsDefault, r.caller(), r.principal.Sites)
	if err != nil {
		return nil, refusedRule(err, "/rule")
	}
	return &reply{status: http.StatusCreated, body: viewRule(&stored.Rule, stored.Warnings), location: fmt.Sprintf("%s/operation-rules/%d/", apiRoot, stored.Rule.ID)}, nil
}

func (s *Server) replaceRule(r *request) (*reply, error) {
	var in ruleBody
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	stored, err := s.Operations.ReplaceRule(r.Context(), r.number("rule"), rule.Document{Data: in.Rule}, r.caller(), r.principal.Sites)
	if err != nil {
		return nil, refusedRule(err, "/rule")
	}
	return s.written(r, stored.Rule.ID, stored.Warnings)
}

func (s *Server) deleteRule(r *request) (*reply, error) {
	if err := s.Operations.DeleteRule(r.Context(), r.number("rule"), r.caller(), r.principal.Sites); err != nil {
		return nil, err
	}
	return nothing(), nil
}

func (s *Server) setDefaultRule(r *request) (*reply, error) {
	row, err := s.Operations.SetDefaultRule(r.Context(), r.number("rule"), r.caller(), r.principal.Sites)
	if err != nil {
		return nil, err
	}
	return s.written(r, row.ID, nil)
}

// importedView is one rule of a batch and what became of it.
type importedView struct {
	Outcome string   `json:"outcome"`
	Rule    ruleView `json:"rule"`
}

type importView struct {
	Rules    []importedView `json:"rules"`
	Warnings []problemView  `json:"warnings"`
}

func (s *Server) importRules(r *request) (*reply, error) {
	var in struct {
		Batch     json.RawMessage `json:"batch"`
		Overwrite bool            `json:"overwrite"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	all, warnings, err := s.Operations.ImportRules(r.Context(), rule.Document{Data: in.Batch}, in.Overwrite, r.caller(), r.principal.Sites)
	if err != nil {
		return nil, refusedRule(err, "/batch")
	}
	view := importView{Rules: []importedView{}, Warnings: listed(viewProblems(warnings))}
	for i := range all {
		one, err := s.viewWritten(r, all[i].Rule.ID, nil)
		if err != nil {
			return nil, err
		}
		view.Rules = append(view.Rules, importedView{all[i].Outcome, one})
	}
	return ok(view), nil
}

// validationView says what is wrong with a document of rules.
type validationView struct {
	Valid    bool          `json:"valid"`
	Problems []problemView `json:"problems"`
	Warnings []problemView `json:"warnings"`
	Rules    []rule.Rule   `json:"rules"` // in their normal form
}

func (s *Server) validateRules(r *request) (*reply, error) {
	checked, err := s.Operations.ValidateRules(rule.Document{Data: r.body})
	var invalid *rule.Invalid
	switch {
	case errors.As(err, &invalid):
		return ok(validationView{Problems: viewProblems(invalid.Problems), Warnings: []problemView{}, Rules: []rule.Rule{}}), nil
	case err != nil:
		return nil, err
	}
	return ok(validationView{Valid: true, Problems: []problemView{}, Warnings: listed(viewProblems(checked.Warnings)), Rules: checked.Rules}), nil
}

// planView is what an operation would do on a rack.
type planView struct {
	Operation  string        `json:"operation"`
	Name       string        `json:"name"`
	Source     *string       `json:"source"` // null: the rule was given
	RuleID     *int64        `json:"rule_id"`
	Components rule.Counts   `json:"components"`
	Plan       rule.Plan     `json:"plan"`
	Missing    []rule.Need   `json:"missing"`
	Warnings   []problemView `json:"warnings"`
}

// planRule says what a rule would do on a rack. Nothing is run.
func (s *Server) planRule(r *request) (*reply, error) {
	var in struct {
		RackID    int64           `json:"rack_id"`
		Operation string          `json:"operation"`
		Rule      json.RawMessage `json:"rule"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	var given *rule.Rule
	if in.Rule != nil {
		checked, err := s.Operations.ValidateRules(rule.Document{Data: in.Rule})
		if err != nil {
			return nil, refusedRule(err, "/rule")
		}
		if len(checked.Rules) != 1 {
			return nil, refuse(http.StatusUnprocessableEntity, operations.CodeRuleInvalid, "a plan is of one rule, and this is a batch of %d", len(checked.Rules))
		}
		given = &checked.Rules[0]
	}
	p, err := s.Operations.PlanRack(r.Context(), in.RackID, in.Operation, given, r.principal.Sites)
	if err != nil {
		return nil, err
	}
	view := planView{
		Operation: p.Rule.Operation, Name: p.Rule.Name, Source: orNil(p.Source), Components: p.Counts, Plan: p.Plan, Missing: listed(p.Missing), Warnings: listed(viewProblems(p.Warnings)),
	}
	if p.ID != 0 {
		view.RuleID = &p.ID
	}
	return ok(view), nil
}

func (s *Server) associateRule(r *request) (*reply, error) {
	var in struct {
		RuleID int64 `json:"rule_id"`
	}
	if err := json.Unmarshal(r.body, &in); err != nil {
		return nil, undecodable(err)
	}
	row, err := s.Operations.Associate(r.Context(), r.number("rack"), r.vars["operation"], in.RuleID, r.caller(), r.principal.Sites)
	if err != nil {
		return nil, err
	}
	return s.written(r, row.ID, nil)
}

func (s *Server) disassociateRule(r *request) (*reply, error) {
	if err := s.Operations.Disassociate(r.Context(), r.number("rack"), r.vars["operation"], r.caller(), r.principal.Sites); err != nil {
		return nil, err
	}
	return nothing(), nil
}
