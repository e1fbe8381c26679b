package world

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
	Extra      string    `json:"extra,omitempty"`
	Comment    string    `json:"comment,omitempty"`
	Features   []string  `json:"features,omitempty"`
	Partitions []string  `json:"partitions,omitempty"`
	Dynamic    bool      `json:"dynamic,omitempty"`
	Job        int       `json:"job,omitempty"`    // that runs on it, 0 none
	Boot       time.Time `json:"boot,omitzero"`    // when its slurmd last registered
	Busy       time.Time `json:"busy,omitzero"`    // when it last had work, was resumed or came into service
	Silent     time.Time `json:"silent,omitzero"`  // since when its slurmd does not answer
	Up         time.Time `json:"up,omitzero"`      // when its slurmd will answer again
	Ping       time.Time `json:"ping,omitzero"`    // when slurmctld next asks whether it answers, after a change of its state
	Next       time.Time `json:"next,omitzero"`    // when slurmctld next judges the silence
	Created    time.Time `json:"created,omitzero"` // of a dynamic node
}

// SlurmCluster is the controller of a site's cluster.
type SlurmCluster struct {
	Site       string `json:"site"`
	Generation int    `json:"generation,omitempty"` // 38, 42 or 45: releases differ in what they do with reasons

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
	slurmdPing    = time.Second // from a change of a node's state until its slurmd is asked
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
		due:    func(n *SlurmNode) time.Time { return sooner(n.Ping, sooner(n.Up, n.Next)) },
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

// LastBusy is when a node last had work, was resumed or came into service.
func (n *SlurmNode) LastBusy() time.Time {
	if n.Busy.IsZero() {
		return n.Boot
	}
	return n.Busy
}

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

// SlurmGeneration says which release a site's cluster is of.
func (s *State) SlurmGeneration(site string, generation int) {
	c := s.SlurmClusterOf(site)
	c.Generation = generation
	s.SlurmClusters.Put(site, c)
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

// settleSlurmNode lets a slurmd register or answer, or slurmctld lose patience
// with it.
func settleSlurmNode(s *State, key string, row *SlurmNode) {
	n := cloneSlurmNode(row)
	switch {
	case due(n.Up, s.Now):
		s.slurmdRegisters(key, n)
	case due(n.Ping, s.Now):
		n.Ping = time.Time{}
		if n.Silent.IsZero() {
			n.lower(SlurmNotResponding)
		}
		s.SlurmNodes.Put(key, n)
		s.scheduleSlurm(n.Site)
	case due(n.Next, s.Now):
		n.Next = time.Time{}
		s.slurmdMissed(key, n)
	}
}

func due(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// slurmdMissed shows the silence of a slurmd, and then gives its node up.
func (s *State) slurmdMissed(key string, n *SlurmNode) {
	lost := 0
	switch {
	case n.Silent.IsZero():
	case !n.Has(SlurmNotResponding):
		n.raise(SlurmNotResponding)
		n.Next = later(s.Now, n.Silent.Add(SlurmdTimeout))
	case n.Base != SlurmDown:
		n.Base, lost = SlurmDown, n.Job
		s.explainSilence(n)
	}
	s.SlurmNodes.Put(key, n)
	if lost != 0 {
		s.slurmJobLost(n.Site, lost)
	}
}

// explainSilence puts the silence into the reason: behind what is there, once, as
// a new reason, but in 22.05, which leaves what is there.
func (s *State) explainSilence(n *SlurmNode) {
	switch {
	case n.Reason == "":
		n.explain(silentReason, slurmUser, s.Now)
	case s.SlurmClusterOf(n.Site).Generation == 38:
	case strings.Contains(n.Reason, silentReason):
		n.explain(n.Reason, slurmUser, s.Now)
	default:
		n.explain(n.Reason+" : "+silentReason, slurmUser, s.Now)
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
// on the node is lost. A node that was given up is back if its reason begins with
// the silence; one that had a reason before stays down for somebody to resume.
func (s *State) slurmdRegisters(key string, n *SlurmNode) {
	n.Busy = n.LastBusy() // a registration alone leaves it
	n.Up, n.Next, n.Ping, n.Silent, n.Boot = time.Time{}, time.Time{}, time.Time{}, time.Time{}, s.Now
	n.lower(SlurmNotResponding, "CLOUD", "POWERED_DOWN")
	if n.Base == SlurmDown && strings.HasPrefix(n.Reason, silentReason) {
		n.Base, n.Busy = SlurmIdle, s.Now
		s.reasonEnds(n)
	}
	s.SlurmNodes.Put(key, n)
	if n.Job != 0 {
		s.slurmJobLost(n.Site, n.Job)
	}
	s.scheduleSlurm(n.Site)
}

// reasonEnds takes away the reason of a state that has ended; 24.11 leaves it.
func (s *State) reasonEnds(n *SlurmNode) {
	if s.SlurmClusterOf(n.Site).Generation != 42 {
		n.Reason, n.ReasonUser, n.ReasonAt = "", "", time.Time{}
	}
}

func (n *SlurmNode) explain(reason, user string, at time.Time) {
	n.Reason, n.ReasonUser, n.ReasonAt = reason, user, at.Truncate(time.Second)
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
		killed, err = s.enterSlurm(n, u.State[0])
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

// enterSlurm sets a node's state; killed is the job that this ends. What ends a drain
// or a failure shows the node as not responding until it was asked.
func (s *State) enterSlurm(n *SlurmNode, token string) (killed int, err error) {
	switch token {
	case SlurmDrain:
		n.lower(SlurmFail)
		n.raise(SlurmDrain)
	case SlurmFail:
		n.lower(SlurmDrain)
		n.raise(SlurmFail)
	case SlurmDown:
		killed, n.Base = n.Job, SlurmDown
	case "UNDRAIN":
		n.lower(SlurmDrain)
		s.ask(n)
	case "RESUME":
		if n.Base != SlurmDown && !n.Has(SlurmDrain) && !n.Has(SlurmFail) {
			return 0, ErrSlurmTransition
		}
		n.lower(SlurmDrain, SlurmFail)
		s.raiseUp(n)
		s.ask(n)
	case SlurmIdle:
		if n.Base != SlurmDown && n.Base != SlurmIdle {
			return 0, ErrSlurmTransition
		}
		n.lower(SlurmDrain, SlurmFail)
		s.raiseUp(n)
	default:
		return 0, fmt.Errorf("%s: %w", token, ErrSlurmTransition)
	}
	if n.Base != SlurmDown && slices.Contains([]string{"UNDRAIN", "RESUME", SlurmIdle}, token) {
		s.reasonEnds(n)
		if n.Job == 0 {
			n.Busy = s.Now
		}
	}
	return killed, nil
}

// raiseUp takes a node out of being down. One whose slurmd is silent is waited
// for again.
func (s *State) raiseUp(n *SlurmNode) {
	if n.Base != SlurmDown {
		return
	}
	n.Base = SlurmIdle
	if n.Job != 0 {
		n.Base = SlurmAllocated
	}
	if !n.Silent.IsZero() {
		n.Next = s.Now.Add(SlurmdTimeout)
	}
}

// ask has slurmctld ask a node's slurmd anew.
func (s *State) ask(n *SlurmNode) {
	n.raise(SlurmNotResponding)
	n.Ping = s.Now.Add(slurmdPing)
}
