package world

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// SlurmNode is a node of a site's SLURM cluster.
type SlurmNode struct {
	Name       string    `json:"name"`
	Site       string    `json:"site"`
	Machine    string    `json:"machine,omitempty"` // name of the machine it is; "": one that always answers
	Base       string    `json:"base"`              // IDLE, ALLOCATED, DOWN
	Flags      []string  `json:"flags,omitempty"`   // DRAIN, NOT_RESPONDING, …
	Reason     string    `json:"reason,omitempty"`
	ReasonUser string    `json:"reason_user,omitempty"`
	ReasonAt   time.Time `json:"reason_at,omitzero"`
	Over       bool      `json:"over,omitempty"` // what the reason was for has ended: only some releases still show it
	Extra      string    `json:"extra,omitempty"`
	Comment    string    `json:"comment,omitempty"`
	Features   []string  `json:"features,omitempty"`
	Partitions []string  `json:"partitions,omitempty"`
	Dynamic    bool      `json:"dynamic,omitempty"`
	Job        int       `json:"job,omitempty"`    // that runs on it, 0 none
	Boot       time.Time `json:"boot,omitzero"`    // when its slurmd last registered
	Busy       time.Time `json:"busy,omitzero"`    // when work last began or ended
	Silent     time.Time `json:"silent,omitzero"`  // since when its slurmd does not answer
	Up         time.Time `json:"up,omitzero"`      // when its slurmd will answer again
	Lost       bool      `json:"lost,omitempty"`   // it is down for its silence alone
	Next       time.Time `json:"next,omitzero"`    // when slurmctld next judges the silence
	Created    time.Time `json:"created,omitzero"` // of a dynamic node
}

// SlurmCluster is the controller of a site's cluster.
type SlurmCluster struct {
	Site    string    `json:"site"`
	Down    bool      `json:"down,omitempty"`
	Hung    bool      `json:"hung,omitempty"`
	Unknown time.Time `json:"unknown,omitzero"` // until then, after a start, live nodes show as UNKNOWN
	LastJob int       `json:"last_job"`
}

// How long slurmctld waits for a silent slurmd until it shows that, and until it
// gives the node up; how long a machine takes from power on until its slurmd
// answers; how long nodes are unknown after slurmctld's start.
const (
	SlurmdSilence = 20 * time.Second
	SlurmdTimeout = 30 * time.Second
	BootTime      = 30 * time.Second
	SlurmctldPoll = 3 * time.Second
)

// The tokens of a node's state that the world itself sets.
const (
	SlurmIdle      = "IDLE"
	SlurmAllocated = "ALLOCATED"
	SlurmDown      = "DOWN"

	SlurmDrain         = "DRAIN"
	SlurmFail          = "FAIL"
	SlurmNotResponding = "NOT_RESPONDING"
	SlurmDynamic       = "DYNAMIC_NORM"
)

// slurmUser is whom slurmctld runs as, silentReason what it writes of a node
// that it gave up.
const (
	slurmUser    = "slurm"
	silentReason = "Not responding"
)

func slurmNodeKind() kind[SlurmNode] {
	return kind[SlurmNode]{
		clone:  cloneSlurmNode,
		due:    func(n *SlurmNode) time.Time { return sooner(n.Up, n.Next) },
		settle: settleSlurmNode,
	}
}

func cloneSlurmNode(n *SlurmNode) *SlurmNode {
	c := *n
	c.Flags, c.Features, c.Partitions = slices.Clone(n.Flags), slices.Clone(n.Features), slices.Clone(n.Partitions)
	return &c
}

func slurmClusterKind() kind[SlurmCluster] { return kind[SlurmCluster]{clone: copied[SlurmCluster]} }

// sooner gives the earlier of two instants, of which a zero one never comes.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Has reports a token of the node's state.
func (n *SlurmNode) Has(token string) bool { return n.Base == token || slices.Contains(n.Flags, token) }

func (n *SlurmNode) raise(flag string) {
	if !slices.Contains(n.Flags, flag) {
		n.Flags = append(n.Flags, flag)
	}
}

func (n *SlurmNode) lower(flags ...string) {
	n.Flags = slices.DeleteFunc(n.Flags, func(f string) bool { return slices.Contains(flags, f) })
}

// SlurmClusterOf gives a site's controller, a copy.
func (s *State) SlurmClusterOf(site string) *SlurmCluster {
	if c := s.SlurmClusters.Edit(site); c != nil {
		return c
	}
	return &SlurmCluster{Site: site}
}

// SlurmController stops, hangs or starts a site's slurmctld: after a start it
// first asks every slurmd.
func (s *State) SlurmController(site string, down, hung bool) {
	c := s.SlurmClusterOf(site)
	if c.Down && !down {
		c.Unknown = s.Now.Add(SlurmctldPoll)
	}
	c.Down, c.Hung = down, hung
	s.SlurmClusters.Put(site, c)
	s.scheduleSlurm(site)
}

// slurmdChanged tells a machine's slurmd that its power or what is deployed on
// it has changed.
func (s *State) slurmdChanged(m *Machine) {
	key := Key(m.Site, m.Slurm)
	n := s.SlurmNodes.Edit(key)
	if n == nil {
		return
	}
	up := m.slurmd()
	switch {
	case up && n.Silent.IsZero():
		return
	case up:
		n.Up = s.Now.Add(BootTime)
	case n.Silent.IsZero():
		n.Silent, n.Up, n.Next = s.Now, time.Time{}, s.Now.Add(SlurmdSilence)
	default:
		n.Up = time.Time{}
	}
	s.SlurmNodes.Put(key, n)
}

// settleSlurmNode lets a slurmd register, or slurmctld lose patience with it.
func settleSlurmNode(s *State, key string, row *SlurmNode) {
	n := cloneSlurmNode(row)
	if !n.Up.IsZero() && !n.Up.After(s.Now) {
		s.slurmdRegisters(key, n)
		return
	}
	if n.Next.IsZero() || n.Next.After(s.Now) {
		return
	}
	n.Next = time.Time{}
	lost := n.Job
	switch {
	case n.Silent.IsZero():
		lost = 0
	case !n.Has(SlurmNotResponding):
		n.raise(SlurmNotResponding)
		n.Next, lost = later(s.Now, n.Silent.Add(SlurmdTimeout)), 0
	case n.Base != SlurmDown:
		n.Base, n.Lost = SlurmDown, true
		if n.Reason == "" || n.Over {
			n.explain(silentReason, slurmUser, s.Now)
		}
	}
	s.SlurmNodes.Put(key, n)
	if lost != 0 {
		s.slurmJobLost(n.Site, lost)
	}
}

// later gives the instant, but one that is still to come.
func later(now, at time.Time) time.Time {
	if at.After(now) {
		return at
	}
	return now.Add(SlurmdTimeout - SlurmdSilence)
}

// slurmdRegisters has slurmctld hear of a slurmd that has started anew: what ran
// on the node is lost, and a node that was given up for its silence alone is back.
func (s *State) slurmdRegisters(key string, n *SlurmNode) {
	n.Up, n.Next, n.Silent, n.Boot = time.Time{}, time.Time{}, time.Time{}, s.Now
	n.lower(SlurmNotResponding, "CLOUD", "POWERED_DOWN")
	if n.Base == SlurmDown && n.Lost {
		n.Base, n.Over = SlurmIdle, n.Over || n.Reason == silentReason
	}
	n.Lost = false
	s.SlurmNodes.Put(key, n)
	if n.Job != 0 {
		s.slurmJobLost(n.Site, n.Job)
	}
	s.scheduleSlurm(n.Site)
}

func (n *SlurmNode) explain(reason, user string, at time.Time) {
	n.Reason, n.ReasonUser, n.ReasonAt, n.Over = reason, user, at.Truncate(time.Second), false
}

// SlurmUpdate is what an administrator asks of a node; nil leaves a text as it is.
type SlurmUpdate struct {
	State          []string
	Reason         string
	Extra, Comment *string
	Features       []string
	User           string
}

// ErrSlurmTransition says that a node cannot be set to a state: nothing of the
// state is changed, while the rest of the update is.
var ErrSlurmTransition = errors.New("invalid node state transition")

// ErrSlurmNode says that there is no node of the name.
var ErrSlurmNode = errors.New("no such SLURM node")

// UpdateSlurmNode changes a node as `scontrol update` does.
func (s *State) UpdateSlurmNode(site, name string, u SlurmUpdate) error {
	key := Key(site, name)
	n := s.SlurmNodes.Edit(key)
	if n == nil {
		return ErrSlurmNode
	}
	if u.Reason != "" {
		n.explain(u.Reason, u.User, s.Now)
	}
	if u.Extra != nil {
		n.Extra = *u.Extra
	}
	if u.Comment != nil {
		n.Comment = *u.Comment
	}
	if u.Features != nil {
		n.Features = u.Features
	}
	killed := 0
	var err error
	switch len(u.State) {
	case 0:
	case 1:
		killed, err = n.enter(s.Now, u.State[0])
	default:
		err = ErrSlurmTransition
	}
	s.SlurmNodes.Put(key, n)
	if killed != 0 {
		s.slurmJobLost(site, killed)
	}
	s.scheduleSlurm(site)
	return err
}

// enter sets the node's state; killed is the job that this ends.
func (n *SlurmNode) enter(now time.Time, token string) (killed int, err error) {
	switch token {
	case SlurmDrain, SlurmFail:
		n.raise(token)
	case "UNDRAIN":
		n.lower(SlurmDrain)
		n.Over = true
	case SlurmDown:
		killed, n.Base, n.Lost = n.Job, SlurmDown, false
	case "RESUME", SlurmIdle:
		return 0, n.resume(now, token)
	default:
		return 0, fmt.Errorf("%s: %w", token, ErrSlurmTransition)
	}
	return killed, nil
}

// resume gives the node back to work. One whose slurmd is silent is waited for
// again.
func (n *SlurmNode) resume(now time.Time, token string) error {
	if token == SlurmIdle {
		if n.Base != SlurmDown && n.Base != SlurmIdle {
			return ErrSlurmTransition
		}
	} else {
		if n.Base != SlurmDown && !n.Has(SlurmDrain) && !n.Has(SlurmFail) {
			return ErrSlurmTransition
		}
		n.lower(SlurmDrain, SlurmFail)
	}
	if n.Base == SlurmDown {
		n.Base, n.Lost = SlurmIdle, false
		if n.Job != 0 {
			n.Base = SlurmAllocated
		}
		if !n.Silent.IsZero() {
			n.Next = now.Add(SlurmdTimeout - SlurmdSilence)
		}
	}
	n.Over = true
	return nil
}

// CreateSlurmNode makes a dynamic node, which is a machine of its name if there
// is one: its slurmd, if it runs, registers at once. False: the name is taken.
func (s *State) CreateSlurmNode(n *SlurmNode) bool {
	key := Key(n.Site, n.Name)
	if s.SlurmNodes.Get(key) != nil {
		return false
	}
	n.Dynamic, n.Base, n.Created = true, SlurmIdle, s.Now
	n.Flags = []string{"CLOUD", "POWERED_DOWN", SlurmDynamic}
	if m := s.Machines.Edit(Key(n.Site, n.Name)); m != nil {
		n.Machine, m.Slurm = m.Name, n.Name
		s.Machines.Put(m.Key(), m)
		if m.slurmd() {
			n.Up, n.Silent = s.Now.Add(time.Second), s.Now
		}
	}
	s.SlurmNodes.Put(key, n)
	return true
}

// DeleteSlurmNode takes a dynamic node away.
func (s *State) DeleteSlurmNode(site, name string) error {
	key := Key(site, name)
	n := s.SlurmNodes.Get(key)
	switch {
	case n == nil:
		return ErrSlurmNode
	case !n.Dynamic, n.Job != 0:
		return ErrSlurmTransition
	}
	if m := s.Machines.Edit(Key(site, n.Machine)); m != nil {
		m.Slurm = ""
		s.Machines.Put(m.Key(), m)
	}
	s.SlurmNodes.Delete(key)
	return nil
}
