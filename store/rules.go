package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/musterhq/muster/fleet"
)

// ErrRuleInUse says that a rule is the default of its operation or bound to a
// rack.
var ErrRuleInUse = errors.New("the rule is in use")

// ErrDefaultExists says that an operation has a default already.
var ErrDefaultExists = errors.New("the operation has a default already")

const ruleColumns = `r.id, r.name, r.description, r.operation_type, r.operation, r.is_default, r.rule, r.revision, r.created_at, r.updated_at, r.updated_by`

func scanRule(row pgx.Row, more ...any) (fleet.OperationRule, error) {
	var r fleet.OperationRule
	err := row.Scan(append([]any{&r.ID, &r.Name, &r.Description, &r.OperationType, &r.Operation, &r.IsDefault, &r.Rule, &r.Revision, &r.CreatedAt, &r.UpdatedAt, &r.UpdatedBy}, more...)...)
	r.CreatedAt, r.UpdatedAt = r.CreatedAt.UTC(), r.UpdatedAt.UTC()
	return r, err
}

// LockRules makes those who change rules wait for each other until the end of tx.
func LockRules(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "lock table operation_rules in share row exclusive mode"); err != nil {
		return fmt.Errorf("wait for others who change operation rules: %w", err)
	}
	return nil
}

// InsertRule stores a new rule and gives it its id; ErrDefaultExists where it was
// to be the default and there is one.
func InsertRule(ctx context.Context, tx pgx.Tx, r *fleet.OperationRule) error {
	err := tx.QueryRow(ctx, `insert into operation_rules (name, description, operation_type, operation, is_default, rule, updated_by)
		values ($1, $2, $3, $4, $5, $6, $7) returning id, revision, created_at, updated_at`,
		text(r.Name), text(r.Description), r.OperationType, r.Operation, r.IsDefault, r.Rule, text(r.UpdatedBy)).Scan(&r.ID, &r.Revision, &r.CreatedAt, &r.UpdatedAt)
	return ruleSays(err, "store rule "+r.Name)
}

// PutRule replaces the content of a rule: id, default and bindings stay.
// ErrNotFound if it is gone.
func PutRule(ctx context.Context, tx pgx.Tx, r *fleet.OperationRule) error {
	err := tx.QueryRow(ctx, `update operation_rules set name = $2, description = $3, rule = $4, updated_by = $5, updated_at = clock_timestamp(), revision = revision + 1
		where id = $1 returning revision, created_at, updated_at, is_default`, r.ID, text(r.Name), text(r.Description), r.Rule, text(r.UpdatedBy)).
		Scan(&r.Revision, &r.CreatedAt, &r.UpdatedAt, &r.IsDefault)
	return ruleSays(err, fmt.Sprintf("replace rule %d", r.ID))
}

// SetDefaultRule makes a rule the default of its operation in the place of
// another; ErrNotFound if there is no such rule.
func SetDefaultRule(ctx context.Context, tx pgx.Tx, id int64, by string) (fleet.OperationRule, error) {
	_, err := tx.Exec(ctx, `update operation_rules o set is_default = false, updated_at = clock_timestamp(), updated_by = $2
		from operation_rules r where r.id = $1 and o.operation_type = r.operation_type and o.operation = r.operation and o.is_default and o.id <> r.id`, id, text(by))
	if err != nil {
		return fleet.OperationRule{}, fmt.Errorf("set rule %d default: %w", id, err)
	}
	r, err := scanRule(tx.QueryRow(ctx, `update operation_rules r set is_default = true,
			updated_at = case when is_default then updated_at else clock_timestamp() end, updated_by = case when is_default then updated_by else $2 end
		where r.id = $1 returning `+ruleColumns, id, text(by)))
	return r, ruleSays(err, fmt.Sprintf("set rule %d default", id))
}

// DeleteRule deletes a rule; ErrRuleInUse while a rack is bound to it.
func DeleteRule(ctx context.Context, tx pgx.Tx, id int64) error {
	tag, err := tx.Exec(ctx, "delete from operation_rules where id = $1", id)
	if err == nil && tag.RowsAffected() == 0 {
		err = pgx.ErrNoRows
	}
	return ruleSays(err, fmt.Sprintf("delete rule %d", id))
}

func ruleSays(err error, doing string) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch {
		case pg.Code == "23503" || pg.Code == "23001": // a rack is bound to it
			return fmt.Errorf("%s: %w", doing, ErrRuleInUse)
		case pg.ConstraintName == "operation_rules_default":
			return fmt.Errorf("%s: %w", doing, ErrDefaultExists)
		}
	}
	return found(err, doing)
}

// RuleRow is a rule with the racks that are bound to it.
type RuleRow struct {
	fleet.OperationRule
	Racks []int64 // ids
}

// RuleFilter chooses rules. Zero fields choose nothing away.
type RuleFilter struct {
	IDs           []int64
	OperationType string
	Operation     string
	IsDefault     *bool
	Rack          int64 // that is bound to them
	After         int64 // ids above it
	Limit         int
	SiteNames     []string // whose racks the reader may see; nil: every one's
	ForShare      bool     // the rules stay as they are until the end of the transaction
}

// ListRules reads one page of rules by id.
func ListRules(ctx context.Context, q Querier, f RuleFilter) ([]RuleRow, error) {
	w := &where{}
	w.add("r.id > ?", f.After)
	anyOf(w, "r.id", f.IDs)
	if f.OperationType != "" {
		w.add("r.operation_type = ?", f.OperationType)
	}
	if f.Operation != "" {
		w.add("r.operation = ?", f.Operation)
	}
	equal(w, "r.is_default", f.IsDefault)
	if f.Rack != 0 {
		w.add("r.id in (select rule_id from rack_rules where rack_id = ?)", f.Rack)
	}
	w.args = append(w.args, f.Limit, f.SiteNames)
	hold := ""
	if f.ForShare {
		hold = " for share of r"
	}
	rows, err := q.Query(ctx, fmt.Sprintf(`select %[1]s, coalesce((select array_agg(a.rack_id order by a.rack_id) from rack_rules a join racks k on k.id = a.rack_id join sites s on s.id = k.site_id
			where a.rule_id = r.id and ($%[4]d::text[] is null or s.name = any($%[4]d))), '{}')
		from operation_rules r where %[2]s order by r.id limit $%[3]d%[5]s`, ruleColumns, w.text(), len(w.args)-1, len(w.args), hold), w.args...)
	if err != nil {
		return nil, fmt.Errorf("list operation rules: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (RuleRow, error) {
		var r RuleRow
		var err error
		r.OperationRule, err = scanRule(row, &r.Racks)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list operation rules: %w", err)
	}
	return all, nil
}

// RuleOf reads the rule that a rack is bound to for an operation, else the
// operation's default, and holds it until the end of tx. ErrNotFound where there
// is neither.
func RuleOf(ctx context.Context, tx pgx.Tx, rack int64, operationType, operation string) (r fleet.OperationRule, bound bool, err error) {
	// A default that another one takes the place of while this waits for its row drops
	// out, and the new one is in no snapshot before: it is looked for once more.
	for range 2 {
		if r, bound, err = ruleOf(ctx, tx, rack, operationType, operation); !errors.Is(err, ErrNotFound) {
			break
		}
	}
	return r, bound, err
}

func ruleOf(ctx context.Context, tx pgx.Tx, rack int64, operationType, operation string) (r fleet.OperationRule, bound bool, err error) {
	r, err = scanRule(tx.QueryRow(ctx, "select "+ruleColumns+`, a.rule_id is not null from operation_rules r
			left join rack_rules a on a.rule_id = r.id and a.rack_id = $1 and a.operation_type = $2 and a.operation = $3
		where r.operation_type = $2 and r.operation = $3 and (a.rule_id is not null or r.is_default)
		order by a.rule_id is null limit 1 for share of r`, rack, operationType, operation), &bound)
	return r, bound, found(err, "read the rule of "+operation)
}

// PutRackRule binds a rack to a rule for the rule's operation, in the place of
// another one.
func PutRackRule(ctx context.Context, tx pgx.Tx, rack int64, r *fleet.OperationRule, by string) error {
	_, err := tx.Exec(ctx, `insert into rack_rules (rack_id, operation_type, operation, rule_id, updated_by) values ($1, $2, $3, $4, $5)
		on conflict (rack_id, operation_type, operation) do update set rule_id = excluded.rule_id, updated_by = excluded.updated_by, updated_at = clock_timestamp()
			where rack_rules.rule_id <> excluded.rule_id`, rack, r.OperationType, r.Operation, r.ID, text(by))
	if err != nil {
		return fmt.Errorf("bind rack %d to rule %d: %w", rack, r.ID, err)
	}
	return nil
}

// DeleteRackRule takes a binding away; ErrNotFound where there is none.
func DeleteRackRule(ctx context.Context, tx pgx.Tx, rack int64, operation string) (ruleID int64, err error) {
	err = tx.QueryRow(ctx, "delete from rack_rules where rack_id = $1 and operation = $2 returning rule_id", rack, operation).Scan(&ruleID)
	return ruleID, found(err, fmt.Sprintf("take the rule for %s from rack %d", operation, rack))
}

// Rack is a rack as others name it.
type Rack struct {
	ID     int64
	SiteID int64
	Site   string
	Name   string
}

// FindRacks finds racks by id or by name without regard to case, in the sites that
// may be seen (nil: every one), and in the one site where it is given.
func FindRacks(ctx context.Context, q Querier, ids []int64, names, visible []string, site string) ([]Rack, error) {
	rows, err := q.Query(ctx, `select r.id, r.site_id, s.name, r.name from racks r join sites s on s.id = r.site_id
		where (r.id = any($1) or lower(r.name) = any(select lower(n) from unnest($2::text[]) n)) and ($3::text[] is null or s.name = any($3)) and ($4 = '' or s.name = $4)
		order by r.id`, ids, names, visible, site)
	if err != nil {
		return nil, fmt.Errorf("look for racks: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Rack])
	if err != nil {
		return nil, fmt.Errorf("look for racks: %w", err)
	}
	return all, nil
}

// LockRacks holds racks until the end of tx, in the order of ids. Who admits work
// on whole racks takes them before their devices.
func LockRacks(ctx context.Context, tx pgx.Tx, ids []int64) error {
	_, err := tx.Exec(ctx, "select from racks where id = any($1) order by id for no key update", ids)
	if err != nil {
		return fmt.Errorf("lock racks: %w", err)
	}
	return nil
}

// DevicesOfRacks reads the unretired devices of racks, in the order of ids.
func DevicesOfRacks(ctx context.Context, q Querier, racks []int64) ([]fleet.Device, error) {
	rows, err := q.Query(ctx, "select "+DeviceColumns+" from devices d where d.rack_id = any($1) and d.retired_at is null order by d.id", racks)
	return collectDevices(rows, err, "read the devices of racks")
}
