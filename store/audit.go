package store

import (
	"context"
	"fmt"
	"time"
)

// AuditEntry says who changed what. Detail holds no secret.
type AuditEntry struct {
	ID        int64
	At        time.Time
	Principal string
	Remote    string
	Action    string
	Target    string
	Detail    map[string]any
}

// Audit appends an entry, in the transaction of the act itself.
func Audit(ctx context.Context, q Querier, e AuditEntry) error {
	if e.Detail == nil {
		e.Detail = map[string]any{}
	}
	_, err := q.Exec(ctx, "insert into audit (principal, remote, action, target, detail) values ($1, $2, $3, $4, $5)",
		e.Principal, e.Remote, e.Action, e.Target, e.Detail)
	if err != nil {
		return fmt.Errorf("write audit: %w", err)
	}
	return nil
}
