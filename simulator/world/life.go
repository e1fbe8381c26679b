package world

import (
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"
)

// life is what happens at a site without anybody asking: customers come and go,
// jobs run, parts break and people mend them. Each step follows from the seed,
// the site, the number of the step and the world as it is then.
type life struct {
	Site     string    `json:"site"`
	Step     uint64    `json:"step"`
	Next     time.Time `json:"next"`
	Troubles []trouble `json:"troubles,omitempty"` // that it made and will end, the oldest first
}

// trouble is something that went wrong by itself.
type trouble struct {
	Machine string    `json:"machine"`
	Kind    string    `json:"kind"`
	Since   time.Time `json:"since"`
}

const (
	stepLeast = 12 * time.Second // between two steps of a site
	stepMost  = 32 * time.Second

	// handsOff is how long life leaves a machine alone after somebody outside
	// has acted on it.
	handsOff = 10 * time.Minute
	// troubleLeast is how long a trouble lasts at least.
	troubleLeast = 3 * time.Minute
	// troubleShare is how many machines of a hundred are in such trouble at most.
	troubleShare = 4
)

// lifeKind is of rows that are due only in a world that lives.
func lifeKind(lives bool) kind[life] {
	k := kind[life]{clone: func(l *life) *life {
		c := *l
		c.Troubles = slices.Clone(l.Troubles)
		return &c
	}}
	if lives {
		k.due = func(l *life) time.Time { return l.Next }
		k.settle = settleLife
	}
	return k
}

// seedLives begins the life of each site that there is something to live in.
func (s *State) seedLives() {
	for name, site := range s.Sites.All() {
		if !site.InventoryOnly {
			l := &life{Site: name}
			l.Next = s.Now.Add(gap(s.dice(l)))
			s.lives.Put(name, l)
		}
	}
}

// wake lets life go on now where the last run ended long ago: nothing happened
// meanwhile.
func (w *World) wake() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if !w.options.Lives {
		return nil
	}
	return w.write(now, nil, func(s *State) error {
		for name := range s.lives.All() {
			if l := s.lives.Edit(name); l.Next.Before(s.Now) {
				l.Next = s.Now.Add(gap(s.dice(l)))
				s.lives.Put(name, l)
			}
		}
		return nil
	})
}

// dice are the step's own: what happens does not hang on who asked what before.
func (s *State) dice(l *life) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.Site))
	return rand.New(rand.NewPCG(s.world.options.Shape.Seed^h.Sum64(), l.Step))
}

func gap(r *rand.Rand) time.Duration {
	return (stepLeast + time.Duration(r.Int64N(int64(stepMost-stepLeast)))).Truncate(time.Millisecond)
}

// settleLife takes one step.
func settleLife(s *State, key string, row *life) {
	l := s.lives.kind.clone(row)
	l.Step++
	r := s.dice(l)
	l.Next = s.Now.Add(gap(r))
	if !s.mend(l, r) {
		s.happen(l, r)
	}
	s.lives.Put(key, l)
}

// alone tells whether nobody outside has acted on a machine lately.
func (s *State) alone(m *Machine) bool {
	at, touched := s.world.touched[m.Name]
	return !touched || s.Now.Sub(at) >= handsOff
}

// happening is one thing that life can do to a machine, where it fits.
type happening struct {
	name   string
	weight int // how often beside the others
	fits   func(s *State, m *Machine) bool
	begin  func(s *State, m *Machine, r *rand.Rand)
	mend   func(s *State, m *Machine) // ends it, where that is somebody's act; nil: it ends by itself
}

// happen lets one thing happen.
func (s *State) happen(l *life, r *rand.Rand) {
	free := s.untroubled(l)
	kinds := happenings()
	if len(l.Troubles)*100 >= len(free)*troubleShare+100 {
		kinds = slices.DeleteFunc(kinds, func(h happening) bool { return h.mend != nil })
	}
	for len(kinds) > 0 {
		i := drawn(kinds, r)
		h := kinds[i]
		kinds = slices.Delete(kinds, i, i+1)
		fits := slices.DeleteFunc(slices.Clone(free), func(m *Machine) bool { return !h.fits(s, m) })
		if len(fits) == 0 {
			continue
		}
		m := fits[r.IntN(len(fits))]
		h.begin(s, m, r)
		s.Note(Effect{Face: FaceWorld, Site: l.Site, Op: h.name, Subject: m.Name})
		if h.mend != nil {
			l.Troubles = append(l.Troubles, trouble{Machine: m.Name, Kind: h.name, Since: s.Now})
		}
		return
	}
}

// mend ends the oldest trouble, if it is old enough, by a coin.
func (s *State) mend(l *life, r *rand.Rand) bool {
	if len(l.Troubles) == 0 || s.Now.Sub(l.Troubles[0].Since) < troubleLeast || r.IntN(3) == 0 {
		return false
	}
	t := l.Troubles[0]
	l.Troubles = slices.Delete(l.Troubles, 0, 1)
	m := s.Machines.Get(Key(l.Site, t.Machine))
	if m == nil || !s.alone(m) {
		return false // whoever acted on it sees to it
	}
	for _, h := range happenings() {
		if h.name == t.Kind && h.mend != nil {
			h.mend(s, m)
			s.Note(Effect{Face: FaceWorld, Site: l.Site, Op: "no more: " + h.name, Subject: m.Name})
			return true
		}
	}
	return false
}

// untroubled gives the site's machines that life may do something to.
func (s *State) untroubled(l *life) []*Machine {
	var free []*Machine
	for _, m := range s.Machines.Of(l.Site) {
		if m.Address != "" && s.alone(m) && !slices.ContainsFunc(l.Troubles, func(t trouble) bool { return t.Machine == m.Name }) {
			free = append(free, m)
		}
	}
	return free
}

// drawn gives the index of one kind, by weight.
func drawn(kinds []happening, r *rand.Rand) int {
	sum := 0
	for _, h := range kinds {
		sum += h.weight
	}
	n := r.IntN(sum)
	for i, h := range kinds {
		if n -= h.weight; n < 0 {
			return i
		}
	}
	return len(kinds) - 1
}
