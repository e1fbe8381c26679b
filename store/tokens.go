package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Token is a static token as it is kept: its SHA-256 alone.
type Token struct {
	ID        int64
	Name      string
	Hash      []byte
	Scopes    []string
	Sites     []string // nil: every site
	Writer    string   // the one writer that condition:write is bound to
	CreatedAt time.Time
	CreatedBy string
	ExpiresAt time.Time // zero: never
	RevokedAt time.Time // zero: not revoked
}

const tokenColumns = `id, name, hash, scopes, sites, writer, created_at, created_by,
	coalesce(expires_at, '0001-01-01 00:00:00+00'), coalesce(revoked_at, '0001-01-01 00:00:00+00')`

func scanToken(row pgx.CollectableRow) (Token, error) {
	var t Token
	err := row.Scan(&t.ID, &t.Name, &t.Hash, &t.Scopes, &t.Sites, &t.Writer, &t.CreatedAt, &t.CreatedBy, &t.ExpiresAt, &t.RevokedAt)
	return t, err
}

// CreateToken keeps a new token and gives its id.
func CreateToken(ctx context.Context, q Querier, t Token) (int64, error) {
	var expires *time.Time
	if !t.ExpiresAt.IsZero() {
		expires = &t.ExpiresAt
	}
	var id int64
	err := q.QueryRow(ctx, `insert into tokens (name, hash, scopes, sites, writer, created_by, expires_at)
		values ($1, $2, $3, $4, $5, $6, $7) returning id`, t.Name, t.Hash, t.Scopes, t.Sites, t.Writer, t.CreatedBy, expires).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("store token: %w", err)
	}
	return id, nil
}

// TokenByHash finds a token, revoked and expired ones too; ErrNotFound if
// there is none.
func TokenByHash(ctx context.Context, q Querier, hash []byte) (Token, error) {
	rows, err := q.Query(ctx, "select "+tokenColumns+" from tokens where hash = $1", hash)
	if err != nil {
		return Token{}, fmt.Errorf("read token: %w", err)
	}
	t, err := pgx.CollectExactlyOneRow(rows, scanToken)
	return t, found(err, "read token")
}

// Tokens lists every token, the newest first.
func Tokens(ctx context.Context, q Querier) ([]Token, error) {
	rows, err := q.Query(ctx, "select "+tokenColumns+" from tokens order by id desc")
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	tokens, err := pgx.CollectRows(rows, scanToken)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// RevokeToken ends a token by its id; ErrNotFound if there is none that is valid.
func RevokeToken(ctx context.Context, q Querier, id int64) error {
	tag, err := q.Exec(ctx, "update tokens set revoked_at = now() where id = $1 and revoked_at is null", id)
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("revoke token %d: %w", id, ErrNotFound)
	}
	return nil
}
