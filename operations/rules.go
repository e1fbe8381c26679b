package operations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// Stored is a rule that was stored, and what is odd about it.
type Stored struct {
	Rule     store.RuleRow
	Warnings []rule.Problem
}

// content is what the database keeps of a rule.
func content(r *rule.Rule) json.RawMessage {
	text, err := json.Marshal(struct {
		Version string      `json:"version"`
		Steps   []rule.Step `json:"steps"`
	}{r.Version, r.Steps})
	if err != nil {
		panic("write an operation rule: " + err.Error()) // it holds nothing that JSON has not
	}
	return text
}

// loaded reads a stored rule as the schema of today takes it.
func (s *Service) loaded(r *fleet.OperationRule) (rule.Rule, error) {
	checked, err := s.rules.Steps(rule.Document{Data: r.Rule}, rule.Head{Name: r.Name, Description: r.Description, OperationType: r.OperationType, Operation: r.Operation})
	if err != nil {
		return rule.Rule{}, refuse(CodeRuleInvalid, "rule %d (%s) is not valid any more: replace it. %v", r.ID, r.Name, err)
	}
	return checked.Rules[0], nil
}

// ValidateRules checks one rule or a batch and stores nothing. An error is a
// *rule.Invalid.
func (s *Service) ValidateRules(d rule.Document) (*rule.Checked, error) {
	if rule.FormOf(d) == rule.FormBatch {
		return s.rules.Batch(d)
	}
	return s.rules.Rule(d)
}

// CreateRule stores a rule. visible are the sites that exist for who asks, nil:
// every one; here and below a rule that acts on others is not theirs to change
// (CodeSiteLimited). Errors: *rule.Invalid; CodeDefaultExists, CodeSiteLimited.
func (s *Service) CreateRule(ctx context.Context, d rule.Document, isDefault bool, by devices.Caller, visible []string) (Stored, error) {
	checked, err := s.rules.Rule(d)
	if err != nil {
		return Stored{}, err
	}
	if isDefault && visible != nil {
		return Stored{}, everywhere("a default is for the racks of every site")
	}
	r := &checked.Rules[0]
	row := fleet.OperationRule{Name: r.Name, Description: r.Description, OperationType: r.OperationType, Operation: r.Operation, IsDefault: isDefault, Rule: content(r), UpdatedBy: by.Name}
	err = s.changingRules(ctx, func(tx pgx.Tx) error {
		if err := insert(ctx, tx, &row); err != nil {
			return err
		}
		return audit(ctx, tx, by, "rule.create", row.ID, map[string]any{"name": row.Name, "operation": row.Operation, "is_default": isDefault})
	})
	return Stored{store.RuleRow{OperationRule: row}, checked.Warnings}, refusedOr(err, "create a rule")
}

func insert(ctx context.Context, tx pgx.Tx, r *fleet.OperationRule) error {
	err := store.InsertRule(ctx, tx, r)
	if !errors.Is(err, store.ErrDefaultExists) {
		return err
	}
	yes := true
	defaults, err := store.ListRules(ctx, tx, store.RuleFilter{OperationType: r.OperationType, Operation: r.Operation, IsDefault: &yes, Limit: 1})
	if err != nil || len(defaults) == 0 {
		return refuse(CodeDefaultExists, "%s has a default already", r.Operation)
	}
	return refuse(CodeDefaultExists, "rule %d (%s) is the default of %s: create this one without is_default and set it default afterwards", defaults[0].ID, defaults[0].Name, r.Operation)
}

// ReplaceRule replaces what a rule says. Its id, its operation, whether it is the
// default and which racks are bound to it stay; so do tasks that were submitted.
// Errors: *rule.Invalid; CodeRuleNotFound, CodeRuleMismatch, CodeSiteLimited.
func (s *Service) ReplaceRule(ctx context.Context, id int64, d rule.Document, by devices.Caller, visible []string) (Stored, error) {
	checked, err := s.rules.Rule(d)
	if err != nil {
		return Stored{}, err
	}
	var row store.RuleRow
	err = s.changingRules(ctx, func(tx pgx.Tx) error {
		old, err := ruleByID(ctx, tx, id)
		if err != nil {
			return err
		}
		r := &checked.Rules[0]
		if r.OperationType != old.OperationType || r.Operation != old.Operation {
			return refuse(CodeRuleMismatch, "rule %d is for %s and not for %s: create another rule", id, old.Operation, r.Operation)
		}
		if err := within(ctx, tx, &old, visible); err != nil {
			return err
		}
		row = old
		return replace(ctx, tx, &row.OperationRule, r, by)
	})
	return Stored{row, checked.Warnings}, refusedOr(err, fmt.Sprintf("replace rule %d", id))
}

func replace(ctx context.Context, tx pgx.Tx, row *fleet.OperationRule, r *rule.Rule, by devices.Caller) error {
	row.Name, row.Description, row.Rule, row.UpdatedBy = r.Name, r.Description, content(r), by.Name
	if err := store.PutRule(ctx, tx, row); err != nil {
		return err
	}
	return audit(ctx, tx, by, "rule.replace", row.ID, map[string]any{"name": row.Name, "operation": row.Operation, "revision": row.Revision})
}

// DeleteRule deletes a rule that nothing stands on. Errors: CodeRuleNotFound,
// CodeRuleInUse, CodeSiteLimited.
func (s *Service) DeleteRule(ctx context.Context, id int64, by devices.Caller, visible []string) error {
	err := s.changingRules(ctx, func(tx pgx.Tx) error {
		r, err := ruleByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if err := within(ctx, tx, &r, visible); err != nil {
			return err
		}
		switch {
		case r.IsDefault:
			return refuse(CodeRuleInUse, "rule %d is the default of %s: set another one default first", id, r.Operation)
		case len(r.Racks) > 0:
			return refuse(CodeRuleInUse, "racks operate by rule %d, %d of them, rack %d for one: disassociate them first", id, len(r.Racks), r.Racks[0])
		}
		if err := store.DeleteRule(ctx, tx, id); err != nil {
			if errors.Is(err, store.ErrRuleInUse) {
				return refuse(CodeRuleInUse, "a rack was bound to rule %d at this instant", id)
			}
			return err
		}
		return audit(ctx, tx, by, "rule.delete", id, map[string]any{"name": r.Name, "operation": r.Operation})
	})
	return refusedOr(err, fmt.Sprintf("delete rule %d", id))
}

// SetDefaultRule makes a rule the default of its operation in the place of
// another. Errors: CodeRuleNotFound, CodeRuleInvalid, CodeSiteLimited.
func (s *Service) SetDefaultRule(ctx context.Context, id int64, by devices.Caller, visible []string) (store.RuleRow, error) {
	if visible != nil {
		return store.RuleRow{}, everywhere("a default is for the racks of every site")
	}
	var row store.RuleRow
	err := s.changingRules(ctx, func(tx pgx.Tx) error {
		r, err := ruleByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := s.loaded(&r.OperationRule); err != nil {
			return err
		}
		row = r
		if row.OperationRule, err = store.SetDefaultRule(ctx, tx, id, by.Name); err != nil || r.IsDefault {
			return err
		}
		return audit(ctx, tx, by, "rule.set-default", id, map[string]any{"operation": r.Operation})
	})
	return row, refusedOr(err, fmt.Sprintf("set rule %d default", id))
}

// Associate lets a rack operate by a rule, in the place of another one. operation
// is the rule's; "": whatever it is. visible are the sites that exist for who
// asks, nil: every one. Errors: CodeRackNotFound, CodeRuleNotFound,
// CodeRuleMismatch, CodeRuleInvalid.
func (s *Service) Associate(ctx context.Context, rack int64, operation string, id int64, by devices.Caller, visible []string) (store.RuleRow, error) {
	var row store.RuleRow
	err := s.changingRules(ctx, func(tx pgx.Tx) error {
		if _, err := rackByID(ctx, tx, rack, visible); err != nil {
			return err
		}
		r, err := ruleByID(ctx, tx, id)
		if err != nil {
			return err
		}
		if operation != "" && operation != r.Operation {
			return refuse(CodeRuleMismatch, "rule %d is for %s and not for %s", id, r.Operation, operation)
		}
		if _, err := s.loaded(&r.OperationRule); err != nil {
			return err
		}
		if err := store.PutRackRule(ctx, tx, rack, &r.OperationRule, by.Name); err != nil {
			return err
		}
		if row, err = ruleByID(ctx, tx, id); err != nil {
			return err
		}
		return audit(ctx, tx, by, "rule.associate", id, map[string]any{"rack": rack, "operation": r.Operation})
	})
	return row, refusedOr(err, fmt.Sprintf("associate rack %d with rule %d", rack, id))
}

// Disassociate takes the rule of an operation from a rack. Errors:
// CodeRackNotFound, CodeRuleNotBound.
func (s *Service) Disassociate(ctx context.Context, rack int64, operation string, by devices.Caller, visible []string) error {
	err := s.changingRules(ctx, func(tx pgx.Tx) error {
		if _, err := rackByID(ctx, tx, rack, visible); err != nil {
			return err
		}
		id, err := store.DeleteRackRule(ctx, tx, rack, operation)
		if errors.Is(err, store.ErrNotFound) {
			return refuse(CodeRuleNotBound, "rack %d has no rule of its own for %q", rack, operation)
		}
		if err != nil {
			return err
		}
		return audit(ctx, tx, by, "rule.disassociate", id, map[string]any{"rack": rack, "operation": operation})
	})
	return refusedOr(err, fmt.Sprintf("disassociate rack %d", rack))
}

// within refuses a rule that acts beyond the sites that exist for who asks.
func within(ctx context.Context, tx pgx.Tx, r *store.RuleRow, visible []string) error {
	if visible == nil {
		return nil
	}
	if r.IsDefault {
		return everywhere(fmt.Sprintf("rule %d is the default of %s at every site", r.ID, r.Operation))
	}
	seen, err := store.ListRules(ctx, tx, store.RuleFilter{IDs: []int64{r.ID}, Limit: 1, SiteNames: visible})
	if err == nil && (len(seen) == 0 || len(seen[0].Racks) != len(r.Racks)) {
		err = everywhere(fmt.Sprintf("racks of other sites operate by rule %d", r.ID))
	}
	return err
}

func everywhere(why string) error {
	return refuse(CodeSiteLimited, "%s, and this token is limited to sites: create a rule of your own and associate your racks with it, or ask with a token for every site", why)
}

// changingRules runs f while nobody else changes rules.
func (s *Service) changingRules(ctx context.Context, f func(tx pgx.Tx) error) error {
	return s.db.Tx(ctx, func(tx pgx.Tx) error {
		if err := store.LockRules(ctx, tx); err != nil {
			return err
		}
		return f(tx)
	})
}

func ruleByID(ctx context.Context, q store.Querier, id int64) (store.RuleRow, error) {
	rows, err := store.ListRules(ctx, q, store.RuleFilter{IDs: []int64{id}, Limit: 1})
	if err != nil {
		return store.RuleRow{}, err
	}
	if len(rows) == 0 {
		return store.RuleRow{}, refuse(CodeRuleNotFound, "there is no rule %d: list them at /api/v1/operation-rules/", id)
	}
	return rows[0], nil
}

func rackByID(ctx context.Context, q store.Querier, id int64, visible []string) (store.Rack, error) {
	racks, err := store.FindRacks(ctx, q, []int64{id}, nil, visible, "")
	if err != nil {
		return store.Rack{}, err
	}
	if len(racks) == 0 {
		return store.Rack{}, refuse(CodeRackNotFound, "there is no rack %d: list them at /api/v1/racks/", id)
	}
	return racks[0], nil
}

func audit(ctx context.Context, tx pgx.Tx, by devices.Caller, action string, id int64, detail map[string]any) error {
	return store.Audit(ctx, tx, store.AuditEntry{Principal: by.Name, Remote: by.Remote, Action: action, Target: fmt.Sprintf("rule/%d", id), Detail: detail})
}

var _ jobs.Tasks = (*Service)(nil)
