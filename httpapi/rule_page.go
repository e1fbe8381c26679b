package httpapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// rulesShown is a page of stored rules, and the built-in ones.
type rulesShown struct {
	Items    []ruleRow
	Next     *string
	BuiltIn  []builtInRow
	Asked    string // the operation whose rules are shown; "": of every one
	Operates []string
}

type ruleRow struct {
	ruleView
	RackNames []ruleName // of those that exist for the reader
	More      int        // racks that are not named
}

type builtInRow struct {
	Operation, Title, Type string
	Default                *ruleName // that takes its place
}

const racksNamed = 20 // beside one rule

func (s *Server) rulesPage(r *request) (string, any, error) {
	page, err := s.rulePage(r)
	if err != nil {
		return "", nil, err
	}
	shown := rulesShown{Next: page.Next, Asked: r.query.Get("operation")}
	for i := range page.Items {
		row, err := s.ruleRow(r, page.Items[i])
		if err != nil {
			return "", nil, err
		}
		shown.Items = append(shown.Items, row)
	}
	bundle := s.Policies.Current()
	if bundle == nil {
		return "rules.html", shown, nil
	}
	yes := true
	defaults, err := store.ListRules(r.Context(), s.DB, store.RuleFilter{IsDefault: &yes, Limit: maxLimit})
	if err != nil {
		return "", nil, err
	}
	for i := range bundle.Operations() {
		o := &bundle.Operations()[i]
		row := builtInRow{Operation: o.Code, Title: o.Title, Type: o.Type}
		for j := range defaults {
			if defaults[j].Operation == o.Code && defaults[j].OperationType == o.Type {
				row.Default = &ruleName{defaults[j].ID, defaults[j].Name}
			}
		}
		shown.BuiltIn, shown.Operates = append(shown.BuiltIn, row), append(shown.Operates, o.Code)
	}
	return "rules.html", shown, nil
}

// ruleRow names the racks of a rule.
func (s *Server) ruleRow(r *request, view ruleView) (ruleRow, error) {
	row := ruleRow{ruleView: view}
	ids := view.Racks
	if len(ids) > racksNamed {
		ids, row.More = ids[:racksNamed], len(ids)-racksNamed
	}
	if len(ids) == 0 {
		return row, nil
	}
	racks, err := store.FindRacks(r.Context(), s.DB, ids, nil, r.principal.Sites, "")
	for _, k := range racks {
		row.RackNames = append(row.RackNames, ruleName{k.ID, k.Name})
	}
	return row, err
}

// ruleShown is one rule, drawn.
type ruleShown struct {
	Title     string
	Name      string
	About     string // its description
	Type      string
	Operation string
	Stored    *ruleRow // nil: it is built in
	Counts    []typeCount
	Drawing   ruleDrawing
	Warnings  []rule.Problem
	Missing   []rule.Need
	Invalid   string // why it is refused
	Pos       string // of a built-in one
}

// planCounts is the rack that a rule is drawn for, unless another one is asked
// for.
func planCounts(r *request) (rule.Counts, []typeCount) {
	counts := rule.Counts{"compute": 18, "nvswitch": 9, "powershelf": 8}
	var all []typeCount
	for _, kind := range []string{"compute", "nvswitch", "powershelf"} {
		if n, err := strconv.Atoi(r.query.Get(kind)); err == nil { // else it is the usual rack
			counts[kind] = n
		}
		all = append(all, typeCount{kind, counts[kind]})
	}
	return counts, all
}

func (s *Server) rulePageOf(r *request) (string, any, error) {
	rows, err := store.ListRules(r.Context(), s.DB, store.RuleFilter{IDs: []int64{r.number("rule")}, Limit: 1, SiteNames: r.principal.Sites})
	if err != nil {
		return "", nil, err
	}
	if len(rows) == 0 {
		return "", nil, ruleNotFound()
	}
	row, err := s.ruleRow(r, viewRule(&rows[0], nil))
	if err != nil {
		return "", nil, err
	}
	shown := ruleShown{Name: row.Name, Type: row.OperationType, Operation: row.Operation, Stored: &row}
	by, err := s.Operations.Rule(&rows[0].OperationRule)
	return s.drawnRule(r, &shown, &by, err)
}

func (s *Server) builtInRulePage(r *request) (string, any, error) {
	bundle := s.Policies.Current()
	by, err := s.Operations.BuiltIn(r.vars["operation"])
	var coded *jobs.Error
	if bundle == nil || errors.As(err, &coded) && coded.Code == operations.CodeRuleNotFound {
		return "", nil, ruleNotFound()
	}
	o, _ := bundle.Operation(r.vars["operation"])
	shown := ruleShown{Name: o.Title, Type: o.Type, Operation: o.Code, Pos: o.Pos.Short()}
	return s.drawnRule(r, &shown, &by, err)
}

// drawnRule draws a rule that was read; one that is refused it shows with the
// reason.
func (s *Server) drawnRule(r *request, shown *ruleShown, by *rule.Rule, err error) (string, any, error) {
	shown.Title = "Rule " + shown.Name
	var counts rule.Counts
	counts, shown.Counts = planCounts(r)
	if err != nil {
		p := problemOf(err)
		if p.Status >= http.StatusInternalServerError {
			return "", nil, err
		}
		shown.Invalid = p.Detail
		return "rule.html", shown, nil
	}
	plan := by.Plan(counts)
	shown.About, shown.Drawing = by.Description, drawRule(by, &plan)
	shown.Warnings = append(by.Warnings(), by.WarningsFor(counts)...)
	shown.Missing = rule.Missing(by.Needs(counts), rule.Managers())
	return "rule.html", shown, nil
}

func ruleNotFound() *problem {
	return refuse(http.StatusNotFound, operations.CodeRuleNotFound, "there is no such rule: list them at /api/v1/operation-rules/")
}
