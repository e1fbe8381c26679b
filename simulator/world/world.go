package world

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options are what a world is made from.
type Options struct {
	Dir   string // where the journal is; "": nothing is kept
	Shape Shape
	Clock func() time.Time // default time.Now
	Lives bool             // things happen by themselves too, see life.go
	Long  int64            // bytes at which a journal is shortened, default 32 MiB
}

// State is the world at one instant. It is given to the functions of Read and
// Do and must not be kept.
type State struct {
	Now time.Time
	*tables
	world *World
}

// tables are all that the world holds. Keys of what belongs to a site begin
// with its name and a slash.
type tables struct {
	Sites    *Table[Site]    // by name
	Racks    *Table[Rack]    // SITE/NAME
	Machines *Table[Machine] // SITE/NAME

	Nodes     *Table[Node]     // of Ironic, SITE/UUID
	Ports     *Table[Port]     // of Ironic, SITE/UUID
	Customs   *Table[Custom]   // of Placement, SITE/KIND/NAME
	Providers *Table[Provider] // of Placement, SITE/UUID
	Servers   *Table[Server]   // of Nova, SITE/UUID

	Credentials *Table[AppCredential] // of Keystone, by id

	SlurmNodes *Table[SlurmNode] // SITE/NAME
	SlurmJobs  *Table[SlurmJob]  // SITE/ID

	SlurmClusters *Table[SlurmCluster] // by site

	Objects *Table[Object] // of NetBox, KIND/ID

	Reservations *Table[Reservation] // of DHCP, SITE/DEVICE
	Accounts     *Table[BMCAccount]  // of the credentials service, SITE/DEVICE
	Intents      *Table[Intent]      // of the topology service, SITE/NAME

	clock *Table[clock]
	lives *Table[life] // by site
}

// clock is how far the world's time is ahead of the caller's.
type clock struct {
	Ahead time.Duration `json:"ahead"`
}

const clockKey = "clock"

// World is one simulated fleet. It may be used by many goroutines.
type World struct {
	options Options
	tables  map[string]anyTable
	state   tables
	journal *journal

	mu      sync.RWMutex
	writing bool
	timers  timers
	due     atomic.Int64         // UnixNano of the earliest timer, 0 none
	changes []change             // of the Do that is under way
	effects []Effect             // of the Do that is under way
	kept    []Effect             // everything from outside, in order
	touched map[string]time.Time // when somebody outside last acted on a machine
	changed chan struct{}
	moved   map[at]struct{} // while it is opened: rows that the journal has changed
}

// change is a row as it was before.
type change struct {
	table anyTable
	key   string
	was   any
}

// settleLimit bounds the timers that one look settles: more means that a row
// sets its own timer over and over.
const settleLimit = 5_000_000

// Open makes the world or finds it as it was left.
func Open(o Options) (*World, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Long == 0 {
		o.Long = shortenAt
	}
	o.Shape = o.Shape.withDefaults()
	w := &World{options: o, tables: map[string]anyTable{}, changed: make(chan struct{}), touched: map[string]time.Time{}, moved: map[at]struct{}{}}
	w.state = tables{
		Sites: newTable(w, "sites", siteKind()), Racks: newTable(w, "racks", rackKind()), Machines: newTable(w, "machines", machineKind()),
		Ports: newTable(w, "ports", portKind()), Customs: newTable(w, "customs", customKind()), Credentials: newTable(w, "credentials", credentialKind()),
		Nodes: newTable(w, "nodes", nodeKind()), Providers: newTable(w, "providers", providerKind()), Servers: newTable(w, "servers", serverKind()),
		SlurmNodes: newTable(w, "slurm_nodes", slurmNodeKind()), SlurmJobs: newTable(w, "slurm_jobs", slurmJobKind()),
		SlurmClusters: newTable(w, "slurm_clusters", slurmClusterKind()),
		Reservations:  newTable(w, "reservations", kind[Reservation]{clone: copied[Reservation]}),
		Accounts:      newTable(w, "bmc_accounts", kind[BMCAccount]{clone: copied[BMCAccount]}),
		Intents:       newTable(w, "intents", kind[Intent]{clone: copied[Intent]}),
		Objects:       newTable(w, "objects", objectKind()), clock: newTable(w, "clock", clockKind()), lives: newTable(w, "lives", lifeKind(o.Lives)),
	}
	if o.Dir == "" {
		return w, w.begin(o.Clock())
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the simulator's directory: %w", err)
	}
	began, err := claimShape(o.Dir, o.Shape, o.Clock())
	if err != nil {
		return nil, err
	}
	if err := w.begin(began); err != nil {
		return nil, err
	}
	w.journal, err = openJournal(o.Dir, w.restore)
	if err != nil {
		return nil, fmt.Errorf("open the simulator's journal: %w", err)
	}
	if err := w.shorten(o.Dir); err != nil {
		return nil, fmt.Errorf("shorten the simulator's journal: %w", err)
	}
	return w, w.wake()
}

// Shape is what the fleet was made from.
func (w *World) Shape() Shape { return w.options.Shape }

// begin makes the fleet as it was at its first instant.
func (w *World) begin(at time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = true
	defer func() { w.writing, w.changes, w.effects = false, nil, nil }()
	s := &State{Now: at, tables: &w.state, world: w}
	seed(s, w.options.Shape)
	s.seedLives()
	w.setDue()
	return nil
}

// restore takes one entry of the journal.
func (w *World) restore(e *entry) error {
	for i := range e.Rows {
		t := w.tables[e.Rows[i].Table]
		if t == nil {
			return fmt.Errorf("no table %q: the journal is of another version; move the simulator's directory aside", e.Rows[i].Table)
		}
		if err := t.restore(e.Rows[i].Key, e.Rows[i].Row); err != nil {
			return err
		}
		w.moved[at{e.Rows[i].Table, e.Rows[i].Key}] = struct{}{}
	}
	w.keep(e.Effects)
	w.setDue()
	return nil
}

func (w *World) keep(effects []Effect) {
	for _, e := range effects {
		if e.External() {
			w.kept = append(w.kept, e)
		}
		if e.External() && e.Face != FaceMachine {
			w.touched[e.Subject] = e.At
		}
	}
}

// Close closes the journal. Nobody uses the world any more.
func (w *World) Close() error {
	if w.journal == nil {
		return nil
	}
	return w.journal.close()
}

// Now is the world's time.
func (w *World) Now() time.Time {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.now()
}

func (w *World) now() time.Time {
	now := w.options.Clock()
	if c := w.state.clock.Get(clockKey); c != nil {
		now = now.Add(c.Ahead)
	}
	return now.UTC().Truncate(time.Microsecond)
}

// Read shows the world as it is now. Rows may be kept, the state may not.
func (w *World) Read(look func(s *State)) {
	w.mu.RLock()
	now := w.now()
	if due := w.due.Load(); due == 0 || due > now.UnixNano() {
		defer w.mu.RUnlock()
		look(&State{Now: now, tables: &w.state, world: w})
		return
	}
	w.mu.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	now = w.now()
	_ = w.settle(now) // what cannot be written now is settled again after the next start
	look(&State{Now: now, tables: &w.state, world: w})
}

// Do changes the world: all of it, on the disk when Do returns, or, when change
// gives an error, nothing. The effect's instant is filled in.
func (w *World) Do(effect Effect, change func(s *State) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if err := w.settle(now); err != nil {
		return err
	}
	return w.write(now, &effect, change)
}

// Note adds to what the Do that is under way has done.
func (s *State) Note(e Effect) {
	e.At = s.Now
	s.world.effects = append(s.world.effects, e)
}

// write makes one change and its entry; the mutex is held.
func (w *World) write(now time.Time, effect *Effect, change func(s *State) error) error {
	s := &State{Now: now, tables: &w.state, world: w}
	w.writing, w.changes, w.effects = true, nil, nil
	defer func() { w.writing = false }()
	if effect != nil {
		s.Note(*effect)
	}
	err := change(s)
	if err == nil {
		err = w.store()
	}
	if err != nil {
		for _, c := range slices.Backward(w.changes) {
			c.table.back(c.key, c.was)
		}
		return err
	}
	w.keep(w.effects)
	w.setDue()
	close(w.changed)
	w.changed = make(chan struct{})
	return nil
}

// store writes what was changed into the journal.
func (w *World) store() error {
	if w.journal == nil || len(w.changes) == 0 && len(w.effects) == 0 {
		return nil
	}
	e := entry{Effects: w.effects}
	// What happens by itself happens again after a start that knows nothing of it.
	external := slices.ContainsFunc(w.effects, func(e Effect) bool { return e.External() && e.Face != FaceMachine })
	seen := map[string]bool{}
	for _, c := range w.changes {
		id := c.table.label() + " " + c.key
		if seen[id] {
			continue
		}
		seen[id] = true
		body, err := c.table.encode(c.key)
		if err != nil {
			return err
		}
		e.Rows = append(e.Rows, image{Table: c.table.label(), Key: c.key, Row: body})
	}
	if err := w.journal.add(&e, external); err != nil {
		return fmt.Errorf("write the simulator's journal: %w", err)
	}
	return nil
}

func (w *World) note(t anyTable, key string, was any) {
	if !w.writing {
		panic("the world is changed outside Do")
	}
	w.changes = append(w.changes, change{t, key, was})
}

// settle lets everything happen that is due until now, in its order.
func (w *World) settle(now time.Time) error {
	for range settleLimit {
		next := w.timers.next()
		if next.IsZero() || next.After(now) {
			w.setDue()
			return nil
		}
		t := w.timers.take()
		if !t.table.dueAt(t.key).Equal(t.at) {
			continue
		}
		if err := w.write(t.at, nil, func(s *State) error {
			t.table.run(s, t.key)
			return nil
		}); err != nil {
			w.timers.add(t)
			return err
		}
	}
	return errors.New("the simulated world does not come to rest: a timer sets itself over and over")
}

func (w *World) setDue() {
	next := w.timers.next()
	if next.IsZero() {
		w.due.Store(0)
		return
	}
	w.due.Store(next.UnixNano())
}

// Advance moves the world's time on. What becomes due happens in its order.
func (w *World) Advance(by time.Duration) error {
	if by < 0 || by > maxAdvance {
		return fmt.Errorf("advance by %s: it must be between 0 and %s", by, maxAdvance)
	}
	return w.Do(Effect{Face: FaceControl, Op: "advance", Subject: "world", Detail: by.String()}, func(s *State) error {
		c := s.clock.Edit(clockKey)
		if c == nil {
			c = &clock{}
		}
		c.Ahead += by
		s.clock.Put(clockKey, c)
		return nil
	})
}

// FaceControl is the face of the simulator's own control API.
const FaceControl = "control"

const maxAdvance = 366 * 24 * time.Hour

// Effects gives what was done from outside and to machines, in its order, from
// the given index on.
func (w *World) Effects(from int) []Effect {
	w.Read(func(*State) {}) // what is due has happened
	w.mu.RLock()
	defer w.mu.RUnlock()
	if from < 0 || from >= len(w.kept) {
		return nil
	}
	return slices.Clone(w.kept[from:])
}

// Changed gives a channel that is closed at the next change.
func (w *World) Changed() <-chan struct{} {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.changed
}
