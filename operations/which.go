package operations

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// RackRule says by which rule a rack does one operation, and among which it was
// found.
type RackRule struct {
	Operation *engine.Operation

	// The rules that are looked for in this order, after one that a request names;
	// nil: there is none. The built-in one comes last.
	Own, Default *fleet.OperationRule

	Resolved
	Plan    rule.Plan   // with the rack's components
	Missing []rule.Need // what no component manager has
	Refused error       // why the operation is refused by its rule; nil: it is not
}

// RackRules is what a rack consists of, and by which rule it does each operation.
type RackRules struct {
	Rack   store.Rack
	Counts rule.Counts
	Rules  []RackRule // in the order of the policies' operations
}

// RackRules tells of every operation which rule applies to a rack. Nothing is run,
// and nothing is asked of who may. Error: CodeRackNotFound.
func (s *Service) RackRules(ctx context.Context, rack int64, visible []string) (RackRules, error) {
	var all RackRules
	found, err := rackByID(ctx, s.db, rack, visible)
	if err != nil {
		return all, err
	}
	err = s.devices.Admitting(ctx, found.SiteID, admitting(func(tx pgx.Tx, bundle *engine.Bundle) error {
		all = RackRules{Rack: found, Counts: rule.Counts{}}
		of, err := store.DevicesOfRacks(ctx, tx, []int64{rack})
		if err != nil {
			return err
		}
		for i := range of {
			if kind := bundle.ComponentType(of[i].Class); kind != "" && !of[i].InventoryOnly {
				all.Counts[kind]++
			}
		}
		shipped := bundle.Operations()
		all.Rules = make([]RackRule, len(shipped))
		for i := range shipped {
			if all.Rules[i], err = s.rackRule(ctx, tx, bundle, rack, &shipped[i], all.Counts); err != nil {
				return err
			}
		}
		yes := true
		return all.among(ctx, tx, store.RuleFilter{Rack: rack, Limit: len(shipped)}, store.RuleFilter{IsDefault: &yes, Limit: len(shipped)})
	}))
	return all, refusedOr(err, fmt.Sprintf("look for the rules of rack %d", rack))
}

func (s *Service) rackRule(ctx context.Context, tx pgx.Tx, bundle *engine.Bundle, rack int64, o *engine.Operation, counts rule.Counts) (RackRule, error) {
	one := RackRule{Operation: o}
	var err error
	if one.Resolved, err = s.resolve(ctx, tx, bundle, rack, o.Type, o.Code, 0); err != nil {
		if !refused(err) {
			return one, err
		}
		one.Refused = err
		return one, nil
	}
	one.Plan, one.Missing = one.Rule.Plan(counts), rule.Missing(one.Rule.Needs(counts), s.options.Managers)
	return one, nil
}

// among notes beside each operation the rule that the rack is bound to, and the
// default.
func (a *RackRules) among(ctx context.Context, q store.Querier, bound, defaults store.RuleFilter) error {
	for _, filter := range []store.RuleFilter{bound, defaults} {
		rows, err := store.ListRules(ctx, q, filter)
		if err != nil {
			return err
		}
		for i := range rows {
			for j := range a.Rules {
				one := &a.Rules[j]
				if one.Operation.Code != rows[i].Operation || one.Operation.Type != rows[i].OperationType {
					continue
				}
				if filter.Rack != 0 {
					one.Own = &rows[i].OperationRule
				} else {
					one.Default = &rows[i].OperationRule
				}
			}
		}
	}
	return nil
}

// Rule reads a stored rule in its normal form. Error: CodeRuleInvalid, where the
// schema does not take it any more.
func (s *Service) Rule(row *fleet.OperationRule) (rule.Rule, error) { return s.loaded(row) }

// BuiltIn reads the rule that the active policies have for an operation. Errors:
// CodeRuleNotFound, CodeRuleInvalid.
func (s *Service) BuiltIn(operation string) (rule.Rule, error) {
	bundle := s.current()
	if bundle != nil {
		if o, ok := bundle.Operation(operation); ok {
			return s.builtIn(o)
		}
	}
	return rule.Rule{}, refuse(CodeRuleNotFound, "the policies have no operation %q", operation)
}
