package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/fleet"
)

// ErrFindingChanged says that the missing set is another than the one that was
// confirmed: look at it again.
var ErrFindingChanged = errors.New("the missing set is another by now: look at it again")

// ReplaceFindings makes findings the only ones of the given kinds of a source.
// One that stays keeps since when it is there.
func ReplaceFindings(ctx context.Context, q Querier, siteID int64, source string, kinds []string, findings []fleet.Finding) error {
	n := len(findings)
	kind, ref, device, detail := make([]string, n), make([]string, n), make([]*int64, n), make([]string, n)
	for i, f := range findings {
		if f.Detail == nil {
			f.Detail = map[string]any{}
		}
		body, err := json.Marshal(f.Detail)
		if err == nil {
			body, err = CleanJSON(body)
		}
		if err != nil {
			return fmt.Errorf("write findings of %s: %w", source, err)
		}
		kind[i], ref[i], device[i], detail[i] = f.Kind, text(f.Ref), idOrNull(f.DeviceID), string(body)
	}
	if _, err := q.Exec(ctx, `delete from source_findings s where s.site_id = $1 and s.source = $2 and s.kind = any($3)
		and not exists (select 1 from unnest($4::text[], $5::text[]) as u(kind, ref) where u.kind = s.kind and u.ref = s.ref)`,
		siteID, source, kinds, kind, ref); err != nil {
		return fmt.Errorf("take back findings of %s: %w", source, err)
	}
	if n == 0 {
		return nil
	}
	_, err := q.Exec(ctx, `insert into source_findings as s (site_id, source, kind, ref, device_id, detail)
		select distinct on (u.kind, u.ref) $1, $2, u.kind, u.ref, u.device_id, u.detail::jsonb
		from unnest($3::text[], $4::text[], $5::bigint[], $6::text[]) as u(kind, ref, device_id, detail) order by u.kind, u.ref
		on conflict (site_id, source, kind, ref) do update set device_id = excluded.device_id, detail = excluded.detail
		where (s.device_id, s.detail) is distinct from (excluded.device_id, excluded.detail)`, siteID, source, kind, ref, device, detail)
	if err != nil {
		return fmt.Errorf("write findings of %s: %w", source, err)
	}
	return nil
}

// SourceReport is what is known of one source of a site.
type SourceReport struct {
	fleet.Watermark
	Due      time.Time      // when it is next swept
	Sweeping bool           // a sweep is under way
	Findings map[string]int // how many, by kind
	Waits    bool           // what is missing is concluded only by a person's word
}

// SourceReports reads one report for each source that the site reads, by name.
func SourceReports(ctx context.Context, q Querier, siteID int64) ([]SourceReport, error) {
	return sourceReports(ctx, q, &siteID)
}

// AllSourceReports reads the reports of every site.
func AllSourceReports(ctx context.Context, q Querier) ([]SourceReport, error) {
	return sourceReports(ctx, q, nil)
}

func sourceReports(ctx context.Context, q Querier, siteID *int64) ([]SourceReport, error) {
	rows, err := q.Query(ctx, `select w.site_id, w.source, m.at, m.failing_since, coalesce(m.reason, ''), coalesce(m.alert, ''), w.due_at,
			coalesce(w.leased_until > clock_timestamp(), false),
			coalesce((select jsonb_object_agg(c.kind, c.n) from (
				select kind, count(*) as n from source_findings f where f.site_id = w.site_id and f.source = w.source group by kind) c), '{}'),
			exists (select from source_findings f where f.site_id = w.site_id and f.source = w.source and f.kind = $2 and f.detail ->> 'why' = $3)
		from sweeps w left join watermarks m on m.site_id = w.site_id and m.source = w.source
		where $1::bigint is null or w.site_id = $1 order by w.site_id, w.source`, siteID, fleet.FindingMissing, fleet.MissingUnconfirmed)
	if err != nil {
		return nil, fmt.Errorf("read the sources of sites: %w", err)
	}
	reports, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (SourceReport, error) {
		var r SourceReport
		var at, failing *time.Time
		err := row.Scan(&r.SiteID, &r.Source, &at, &failing, &r.Reason, &r.Alert, &r.Due, &r.Sweeping, &r.Findings, &r.Waits)
		r.At, r.FailingSince = orZero(at), orZero(failing)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the sources of sites: %w", err)
	}
	return reports, nil
}

// FindingRow is a finding and since when it is there.
type FindingRow struct {
	fleet.Finding
	Since time.Time
}

// Findings reads the findings of one source by kind and ref, those behind the
// given kind and ref, at most limit.
func Findings(ctx context.Context, q Querier, siteID int64, source, afterKind, afterRef string, limit int) ([]FindingRow, error) {
	rows, err := q.Query(ctx, `select kind, ref, coalesce(device_id, 0), detail, since from source_findings
		where site_id = $1 and source = $2 and (kind, ref) > ($3, $4) order by kind, ref limit $5`, siteID, source, afterKind, afterRef, limit)
	if err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	findings, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (FindingRow, error) {
		var f FindingRow
		err := row.Scan(&f.Kind, &f.Ref, &f.DeviceID, &f.Detail, &f.Since)
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("read findings: %w", err)
	}
	return findings, nil
}

// MissingSet reads what a source's newest complete listing lacks, and the hash
// by which a person confirms exactly this set; "" when nothing is missing.
func MissingSet(ctx context.Context, q Querier, siteID int64, source string) (refs []string, hash string, err error) {
	rows, err := q.Query(ctx, "select ref from source_findings where site_id = $1 and source = $2 and kind = $3 order by ref", siteID, source, fleet.FindingMissing)
	if err != nil {
		return nil, "", fmt.Errorf("read the missing set: %w", err)
	}
	if refs, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, "", fmt.Errorf("read the missing set: %w", err)
	}
	return refs, fleet.HashKeys(refs), nil
}

// Confirmation is a person's word that a missing set is really gone.
type Confirmation struct {
	SiteID int64
	Source string
	Hash   string
	Actor  string
	Remote string
}

// classSet reads the devices whose new class waits for a person, with the hash
// by which it was shown.
func classSet(ctx context.Context, q Querier, siteID int64, source string) (refs []string, hash string, err error) {
	err = q.QueryRow(ctx, `select coalesce(array_agg(ref order by ref), '{}'), coalesce(min(detail ->> 'confirm'), '')
		from source_findings where site_id = $1 and source = $2 and kind = $3`, siteID, source, fleet.FindingClass).Scan(&refs, &hash)
	if err != nil {
		return nil, "", fmt.Errorf("read the classes that wait for a person: %w", err)
	}
	return refs, hash, nil
}

// Confirm records that what the hash names is really so, a missing set that is
// gone or changes of class that are meant, and asks for the sweep that concludes
// it; it gives the set. ErrFindingChanged when the set is another, ErrNotFound
// when nothing waits for a person.
func Confirm(ctx context.Context, tx pgx.Tx, c Confirmation) ([]string, error) {
	refs, hash, err := MissingSet(ctx, tx, c.SiteID, c.Source)
	if err != nil {
		return nil, err
	}
	classes, classHash, err := classSet(ctx, tx, c.SiteID, c.Source)
	switch {
	case err != nil:
		return nil, err
	case hash == "" && classHash == "":
		return nil, fmt.Errorf("confirm what %s says: nothing waits for a person: %w", c.Source, ErrNotFound)
	case c.Hash == classHash:
		refs = classes
	case c.Hash != hash:
		return nil, fmt.Errorf("confirm what %s says: %w", c.Source, ErrFindingChanged)
	}
	if _, err := tx.Exec(ctx, "insert into source_confirmations (site_id, source, hash, refs, confirmed_by) values ($1, $2, $3, $4, $5)",
		c.SiteID, c.Source, c.Hash, refs, c.Actor); err != nil {
		return nil, fmt.Errorf("confirm what %s lacks: %w", c.Source, err)
	}
	if err := RequestSweep(ctx, tx, c.SiteID, c.Source); err != nil {
		return nil, err
	}
	return refs, Audit(ctx, tx, AuditEntry{
		Principal: c.Actor, Remote: c.Remote, Action: "source.confirm", Target: fmt.Sprintf("site %d source %s", c.SiteID, c.Source),
		Detail: map[string]any{"hash": c.Hash, "count": len(refs)},
	})
}

// Confirmed reads the hashes of the sets that were confirmed and that no
// listing has answered yet.
func Confirmed(ctx context.Context, q Querier, siteID int64, source string) (map[string]bool, error) {
	rows, err := q.Query(ctx, "select hash from source_confirmations where site_id = $1 and source = $2 and used_at is null", siteID, source)
	if err != nil {
		return nil, fmt.Errorf("read the confirmations for %s: %w", source, err)
	}
	hashes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the confirmations for %s: %w", source, err)
	}
	confirmed := make(map[string]bool, len(hashes))
	for _, hash := range hashes {
		confirmed[hash] = true
	}
	return confirmed, nil
}

// SpendConfirmations ends the confirmations that were given before a listing
// began which has now ended: they were followed, or the set was another.
func SpendConfirmations(ctx context.Context, q Querier, siteID int64, source string, began time.Time) error {
	_, err := q.Exec(ctx, `update source_confirmations set used_at = clock_timestamp()
		where site_id = $1 and source = $2 and used_at is null and confirmed_at < $3`, siteID, source, began)
	if err != nil {
		return fmt.Errorf("end the confirmations for %s: %w", source, err)
	}
	return nil
}

// AddFindings writes findings beside those that are there.
func AddFindings(ctx context.Context, q Querier, siteID int64, source string, findings []fleet.Finding) error {
	return ReplaceFindings(ctx, q, siteID, source, nil, findings)
}

// ExpireFindings takes back the findings of a kind that are there for longer
// than they are shown.
func ExpireFindings(ctx context.Context, q Querier, siteID int64, source, kind string, shown time.Duration) error {
	if _, err := q.Exec(ctx, "delete from source_findings where site_id = $1 and source = $2 and kind = $3 and since < clock_timestamp() - $4::interval",
		siteID, source, kind, shown); err != nil {
		return fmt.Errorf("take back old findings of %s: %w", source, err)
	}
	return nil
}
