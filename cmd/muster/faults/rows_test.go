package faults

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	domain "github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// rows are what is stored of a fleet, each row under a name: devices with all
// their statuses, conditions, history, identities in the sources, racks.
type rows map[string]string

// whatIsStored leaves out what a reading may touch without anything having
// changed: when it was made, and what is unread.
const whatIsStored = `
	select 'device ' || name || ' #' || id, (to_jsonb(d) - '{updated_at,due_at,unread,observation_version}'::text[])::text from devices d
	union all select 'condition ' || type || ' of device ' || device_id, to_jsonb(c)::text from conditions c
	union all select 'event ' || id, to_jsonb(e)::text from lifecycle_events e
	union all select 'identity in ' || source || ' of device ' || device_id, concat_ws(' ', ref, ref_gone, serial) from facts
	union all select 'writer ' || writer || ' of device ' || device_id, in_scope::text from device_writers
	union all select 'rack ' || id, to_jsonb(r)::text from racks r`

// whatIsUnread is what the newest readings did not give.
const whatIsUnread = `
	select 'unread of ' || id, unread::text from devices
	union all select 'unread of the writer ' || writer || ' of ' || device_id,
		(select coalesce(string_agg(key || ' ' || (value ->> 'reason'), ', ' order by key), '') from jsonb_each(unread)) from device_writers
	union all select 'unread of ' || source || ' of ' || device_id, unread_reason from facts`

func (r *replica) query(t *testing.T, sql string) rows {
	t.Helper()
	found := rows{}
	result, err := r.db.Query(t.Context(), sql)
	must(t, err)
	var key, value string
	_, err = pgx.ForEachRow(result, []any{&key, &value}, func() error { found[key] = value; return nil })
	must(t, err)
	return found
}

func (r *replica) rows(t *testing.T) rows { t.Helper(); return r.query(t, whatIsStored) }

func (r *replica) unread(t *testing.T) rows { t.Helper(); return r.query(t, whatIsUnread) }

// differ lists what is in one only, or different.
func (before rows) differ(now rows) (all []string) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if after, still := now[key]; !still {
			all = append(all, fmt.Sprintf("%s is no more: %s", key, before[key]))
		} else if after != before[key] {
			all = append(all, fmt.Sprintf("%s\n  was %s\n  is  %s", key, before[key], after))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if _, was := before[key]; !was {
			all = append(all, fmt.Sprintf("%s is new: %s", key, now[key]))
		}
	}
	return all
}

func (r *replica) mark(t *testing.T, source string) domain.Watermark {
	t.Helper()
	marks, err := store.Watermarks(t.Context(), r.db, r.site.ID)
	must(t, err)
	return marks[source]
}

// findings gives a source's findings, "kind ref" with what they say.
func (r *replica) findings(t *testing.T, source string) rows {
	t.Helper()
	all, err := store.Findings(t.Context(), r.db, r.site.ID, source, "", "", 1000)
	must(t, err)
	found := rows{}
	for i := range all {
		found[all[i].Kind+" "+all[i].Ref] = fmt.Sprint(all[i].Detail)
	}
	return found
}

// scalar reads one number.
func (r *replica) scalar(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	must(t, r.db.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}
