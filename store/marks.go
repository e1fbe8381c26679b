package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Marked is what a source says of a device that something holds there.
type Marked struct {
	Device int64
	Name   string
	Ref    string
	Body   []byte
}

// InMaintenance reads what Ironic says of the unretired devices of a site that
// are in maintenance, by id. types are those that are True of such devices,
// whatever else they are True of; 0 where no type tells.
func InMaintenance(ctx context.Context, q Querier, siteID int64, types uint64) ([]Marked, error) {
	return marked(ctx, q, "ironic", "($3 = 0 or d.cond_true & $3 <> 0)", siteID, int64(types))
}

// Drained reads what SLURM says of the unretired devices of a site that it
// drains, by id.
func Drained(ctx context.Context, q Querier, siteID int64) ([]Marked, error) {
	return marked(ctx, q, "slurm", "'DRAIN' = any(d.slurm_states)", siteID)
}

func marked(ctx context.Context, q Querier, source, which string, siteID int64, more ...any) ([]Marked, error) {
	rows, err := q.Query(ctx, `select d.id, d.name, f.ref, f.body from devices d join facts f on f.device_id = d.id and f.source = $2 and not f.ref_gone
		where d.site_id = $1 and d.retired_at is null and `+which+" order by d.id", append([]any{siteID, source}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("read what is held at %s: %w", source, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Marked, error) {
		var m Marked
		err := row.Scan(&m.Device, &m.Name, &m.Ref, &m.Body)
		return m, err
	})
	if err != nil {
		return nil, fmt.Errorf("read what is held at %s: %w", source, err)
	}
	return all, nil
}
