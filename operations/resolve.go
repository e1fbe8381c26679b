package operations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// Where a rule comes from.
const (
	SourceExplicit    = "explicit"
	SourceAssociation = "association"
	SourceDefault     = "default"
	SourceBuiltIn     = "builtin"
)

// Resolved is the rule by which a rack does an operation.
type Resolved struct {
	Rule     rule.Rule
	Source   string
	ID       int64 // 0: built in
	Revision int
	Empty    bool // the stored rule has no steps: they are the built-in one's
}

// resolve finds the rule: the one that is asked for, else the rack's, else the
// default, else the built-in one. What is found but not valid any more is an
// error: nothing else takes its place. A rule without steps leaves them to the
// built-in one.
func (s *Service) resolve(ctx context.Context, tx pgx.Tx, bundle *engine.Bundle, rack int64, operationType, operation string, id int64) (Resolved, error) {
	row, source, err := ruleFor(ctx, tx, rack, operationType, operation, id)
	if err != nil {
		return Resolved{}, err
	}
	var r Resolved
	if row != nil {
		r = Resolved{Source: source, ID: row.ID, Revision: row.Revision}
		if r.Rule, err = s.loaded(row); err != nil {
			return Resolved{}, err
		}
		if len(r.Rule.Steps) > 0 {
			return r, nil
		}
	}
	o, ok := bundle.Operation(operation)
	if !ok || o.Type != operationType {
		if row != nil {
			return Resolved{}, refuse(CodeRuleEmpty, "rule %d has no steps, and the policies have no rule for %s that would stand in", row.ID, operation)
		}
		return Resolved{}, refuse(CodeRuleNotFound, "nobody has said how %s is done: create a rule and set it default", operation)
	}
	shipped, err := s.builtIn(o)
	if err != nil {
		return Resolved{}, err
	}
	if row == nil {
		return Resolved{Rule: shipped, Source: SourceBuiltIn}, nil
	}
	r.Rule.Steps, r.Empty = shipped.Steps, true
	return r, nil
}

// builtIn reads the rule that the policies have for an operation.
func (s *Service) builtIn(o *engine.Operation) (rule.Rule, error) {
	checked, err := s.rules.Rule(rule.Document{Name: o.Pos.File, Data: o.Rule})
	if err != nil {
		return rule.Rule{}, refuse(CodeRuleInvalid, "the built-in rule of %s is not valid: %v", o.Code, err)
	}
	return checked.Rules[0], nil
}

// ruleFor reads the stored rule that applies; nil where none does.
func ruleFor(ctx context.Context, tx pgx.Tx, rack int64, operationType, operation string, id int64) (*fleet.OperationRule, string, error) {
	if id == 0 {
		row, bound, err := store.RuleOf(ctx, tx, rack, operationType, operation)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, "", nil
		case err != nil:
			return nil, "", err
		case bound:
			return &row, SourceAssociation, nil
		}
		return &row, SourceDefault, nil
	}
	rows, err := store.ListRules(ctx, tx, store.RuleFilter{IDs: []int64{id}, Limit: 1, ForShare: true})
	if err != nil {
		return nil, "", err
	}
	if len(rows) == 0 {
		return nil, "", refuse(CodeRuleNotFound, "there is no rule %d: list them at /api/v1/operation-rules/", id)
	}
	row := &rows[0].OperationRule
	if row.OperationType != operationType || row.Operation != operation {
		return nil, "", refuse(CodeRuleMismatch, "rule %d is for %s and not for %s", id, row.Operation, operation)
	}
	return row, SourceExplicit, nil
}

// RackPlan is what an operation would do on a rack.
type RackPlan struct {
	Resolved
	Counts   rule.Counts
	Plan     rule.Plan
	Missing  []rule.Need
	Warnings []rule.Problem
}

// PlanRack tells what an operation would do on a rack, by the rule that is given
// or else the one that applies to it. Nothing is locked or run, and nothing is
// asked of who may.
func (s *Service) PlanRack(ctx context.Context, rack int64, operation string, given *rule.Rule, visible []string) (RackPlan, error) {
	var p RackPlan
	found, err := rackByID(ctx, s.db, rack, visible)
	if err != nil {
		return p, err
	}
	err = s.devices.Admitting(ctx, found.SiteID, admitting(func(tx pgx.Tx, bundle *engine.Bundle) error {
		p = RackPlan{}
		if given != nil {
			p.Resolved = Resolved{Rule: *given}
			if o, ok := bundle.Operation(given.Operation); ok && len(given.Steps) == 0 { // they are the built-in rule's
				shipped, err := s.builtIn(o)
				if err != nil {
					return err
				}
				p.Rule.Steps, p.Empty = shipped.Steps, true
			}
		} else {
			o, ok := bundle.Operation(operation)
			if !ok {
				return refuse(CodeRuleMismatch, "%q is no operation", operation)
			}
			if p.Resolved, err = s.resolve(ctx, tx, bundle, rack, o.Type, operation, 0); err != nil {
				return err
			}
		}
		all, err := store.DevicesOfRacks(ctx, tx, []int64{rack})
		if err != nil {
			return err
		}
		p.Counts = rule.Counts{}
		for i := range all {
			if kind := bundle.ComponentType(all[i].Class); kind != "" && !all[i].InventoryOnly {
				p.Counts[kind]++
			}
		}
		return nil
	}))
	if err != nil {
		return p, refusedOr(err, fmt.Sprintf("plan %s of rack %d", operation, rack))
	}
	p.Plan, p.Missing, p.Warnings = p.Rule.Plan(p.Counts), rule.Missing(p.Rule.Needs(p.Counts), s.options.Managers), p.Rule.WarningsFor(p.Counts)
	return p, nil
}
