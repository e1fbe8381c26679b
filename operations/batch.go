package operations

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// What became of a rule of a batch.
const (
	BatchCreated  = "created"
	BatchReplaced = "replaced"
	BatchSkipped  = "skipped" // its operation has a rule already
)

// Imported is one rule of a batch: the stored one and what became of it. Of a rule
// that was skipped it is the one that is there.
type Imported struct {
	Rule    store.RuleRow
	Outcome string
}

// ImportRules stores a batch, all of it or nothing. Operations that have a rule
// already are skipped; with overwrite what that rule says is replaced, its id, its
// being the default and its racks stay. Errors: *rule.Invalid;
// CodeOverwriteAmbiguous where an operation has several rules and no default;
// CodeSiteLimited where one that would be replaced acts beyond visible.
func (s *Service) ImportRules(ctx context.Context, d rule.Document, overwrite bool, by devices.Caller, visible []string) ([]Imported, []rule.Problem, error) {
	checked, err := s.rules.Batch(d)
	if err != nil {
		return nil, nil, err
	}
	var all []Imported
	err = s.changingRules(ctx, func(tx pgx.Tx) error {
		all = nil
		var ambiguous []string
		for i := range checked.Rules {
			r := &checked.Rules[i]
			there, err := store.ListRules(ctx, tx, store.RuleFilter{OperationType: r.OperationType, Operation: r.Operation, Limit: 1000})
			if err != nil {
				return err
			}
			one, several, err := s.importRule(ctx, tx, r, there, overwrite, by, visible)
			if err != nil {
				return err
			}
			if several != "" {
				ambiguous = append(ambiguous, several)
			}
			all = append(all, one)
		}
		if len(ambiguous) > 0 {
			return refuse(CodeOverwriteAmbiguous, "%s: set the one that is meant default, or delete the others", strings.Join(ambiguous, "; "))
		}
		return nil
	})
	return all, checked.Warnings, refusedOr(err, "import operation rules")
}

// importRule stores one rule of a batch beside those that its operation has.
func (s *Service) importRule(ctx context.Context, tx pgx.Tx, r *rule.Rule, there []store.RuleRow, overwrite bool, by devices.Caller, visible []string) (one Imported, several string, err error) {
	if len(there) == 0 {
		row := fleet.OperationRule{Name: r.Name, Description: r.Description, OperationType: r.OperationType, Operation: r.Operation, Rule: content(r), UpdatedBy: by.Name}
		if err := insert(ctx, tx, &row); err != nil {
			return one, "", err
		}
		one = Imported{store.RuleRow{OperationRule: row}, BatchCreated}
		return one, "", audit(ctx, tx, by, "rule.create", row.ID, map[string]any{"name": row.Name, "operation": row.Operation, "batch": true})
	}
	meant := there[0]
	for _, row := range there {
		if row.IsDefault {
			meant = row
		}
	}
	if !overwrite {
		return Imported{meant, BatchSkipped}, "", nil
	}
	if len(there) > 1 && !meant.IsDefault {
		var names []string
		for _, row := range there {
			names = append(names, fmt.Sprintf("%d (%s)", row.ID, row.Name))
		}
		return one, fmt.Sprintf("%s has the rules %s and no default", r.Operation, strings.Join(names, ", ")), nil
	}
	if err := within(ctx, tx, &meant, visible); err != nil {
		return one, "", err
	}
	if err := replace(ctx, tx, &meant.OperationRule, r, by); err != nil {
		return one, "", err
	}
	return Imported{meant, BatchReplaced}, "", nil
}
