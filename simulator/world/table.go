package world

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Table holds the rows of one kind by their keys. A row in a table is never
// changed: Edit gives a copy, Put takes it in its place. So a row that was read
// inside Read or Do may be used afterwards, as what it was then.
type Table[T any] struct {
	name  string
	world *World
	rows  map[string]*T
	keys  []string // ascending
	kind  kind[T]
}

// kind says what a table must know of its rows.
type kind[T any] struct {
	clone  func(*T) *T                        // deep enough that the copy can be changed
	due    func(*T) time.Time                 // when time alone will change the row, zero never; nil never
	settle func(s *State, key string, row *T) // makes the change that was due at s.Now
}

func newTable[T any](w *World, name string, k kind[T]) *Table[T] {
	t := &Table[T]{name: name, world: w, rows: map[string]*T{}, kind: k}
	w.tables[name] = t
	return t
}

// Get gives a row, not to be changed, or nil.
func (t *Table[T]) Get(key string) *T { return t.rows[key] }

// Edit gives a copy of a row that may be changed and Put, or nil.
func (t *Table[T]) Edit(key string) *T {
	row := t.rows[key]
	if row == nil {
		return nil
	}
	return t.kind.clone(row)
}

// Put stores a row. It may be called inside Do and by timers only.
func (t *Table[T]) Put(key string, row *T) {
	t.world.note(t, key, t.rows[key])
	t.set(key, row)
}

// Delete removes a row, as Put stores one.
func (t *Table[T]) Delete(key string) {
	if old := t.rows[key]; old != nil {
		t.world.note(t, key, old)
		t.set(key, nil)
	}
}

// Len is the number of rows.
func (t *Table[T]) Len() int { return len(t.rows) }

// All gives the rows in the order of their keys. The table must not be changed
// meanwhile.
func (t *Table[T]) All() iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for _, key := range t.keys {
			if !yield(key, t.rows[key]) {
				return
			}
		}
	}
}

// Of gives the rows whose keys begin with site and a slash, in the order of
// their keys.
func (t *Table[T]) Of(site string) iter.Seq2[string, *T] {
	prefix := site + "/"
	return func(yield func(string, *T) bool) {
		first, _ := slices.BinarySearch(t.keys, prefix)
		for _, key := range t.keys[first:] {
			if len(key) < len(prefix) || key[:len(prefix)] != prefix || !yield(key, t.rows[key]) {
				return
			}
		}
	}
}

func (t *Table[T]) set(key string, row *T) {
	i, had := slices.BinarySearch(t.keys, key)
	switch {
	case row == nil:
		delete(t.rows, key)
		if had {
			t.keys = slices.Delete(t.keys, i, i+1)
		}
		return
	case !had:
		t.keys = slices.Insert(t.keys, i, key)
	}
	t.rows[key] = row
	if t.kind.due != nil {
		if at := t.kind.due(row); !at.IsZero() {
			t.world.timers.add(timer{at: at, table: t, key: key})
		}
	}
}

// anyTable is a table whatever its rows are.
type anyTable interface {
	label() string
	encode(key string) (json.RawMessage, error)     // null where there is no row
	restore(key string, body json.RawMessage) error // from the journal
	back(key string, row any)                       // undoes a Put
	dueAt(key string) time.Time
	run(s *State, key string)
}

func (t *Table[T]) label() string { return t.name }

func (t *Table[T]) encode(key string) (json.RawMessage, error) { return json.Marshal(t.rows[key]) }

func (t *Table[T]) restore(key string, body json.RawMessage) error {
	var row *T
	if err := json.Unmarshal(body, &row); err != nil {
		return fmt.Errorf("%s %s: %w", t.name, key, err)
	}
	t.set(key, row)
	return nil
}

func (t *Table[T]) back(key string, row any) { t.set(key, row.(*T)) }

func (t *Table[T]) dueAt(key string) time.Time {
	if row := t.rows[key]; row != nil && t.kind.due != nil {
		return t.kind.due(row)
	}
	return time.Time{}
}

func (t *Table[T]) run(s *State, key string) { t.kind.settle(s, key, t.rows[key]) }
