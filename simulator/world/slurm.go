package world

import (
	"slices"
	"time"
)

// SlurmNode is a node of a site's SLURM cluster.
type SlurmNode struct {
	Name       string    `json:"name"`
	Site       string    `json:"site"`
	Machine    string    `json:"machine,omitempty"`
	Base       string    `json:"base"`            // IDLE, ALLOCATED, MIXED, DOWN, …
	Flags      []string  `json:"flags,omitempty"` // DRAIN, NOT_RESPONDING, …
	Reason     string    `json:"reason,omitempty"`
	ReasonUser string    `json:"reason_user,omitempty"`
	ReasonAt   time.Time `json:"reason_at,omitzero"`
	Extra      string    `json:"extra,omitempty"`
	Comment    string    `json:"comment,omitempty"`
	Partitions []string  `json:"partitions,omitempty"`
	Dynamic    bool      `json:"dynamic,omitempty"`
	Boot       time.Time `json:"boot,omitzero"`
	Next       time.Time `json:"next,omitzero"` // when slurmctld notices what became of the slurmd
}

// SlurmJob is a job of a site's SLURM cluster.
type SlurmJob struct {
	ID        int       `json:"id"`
	Site      string    `json:"site"`
	Name      string    `json:"name"`
	User      string    `json:"user"`
	Partition string    `json:"partition"`
	State     string    `json:"state"` // PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, …
	Nodes     []string  `json:"nodes,omitempty"`
	Wanted    int       `json:"wanted"`
	Comment   string    `json:"comment,omitempty"`
	Submitted time.Time `json:"submitted"`
	Started   time.Time `json:"started,omitzero"`
	Ended     time.Time `json:"ended,omitzero"`
	Next      time.Time `json:"next,omitzero"`
}

// SlurmdTimeout is how long slurmctld waits for a silent slurmd, BootTime how
// long a machine takes from power on until its slurmd answers.
const (
	SlurmdTimeout = 20 * time.Second
	BootTime      = 30 * time.Second
)

func slurmNodeKind() kind[SlurmNode] {
	return kind[SlurmNode]{
		clone:  cloneSlurmNode,
		due:    func(n *SlurmNode) time.Time { return n.Next },
		settle: settleSlurmNode,
	}
}

func cloneSlurmNode(n *SlurmNode) *SlurmNode {
	c := *n
	c.Flags, c.Partitions = slices.Clone(n.Flags), slices.Clone(n.Partitions)
	return &c
}

func slurmJobKind() kind[SlurmJob] {
	return kind[SlurmJob]{
		clone:  cloneSlurmJob,
		due:    func(j *SlurmJob) time.Time { return j.Next },
		settle: settleSlurmJob,
	}
}

func cloneSlurmJob(j *SlurmJob) *SlurmJob {
	c := *j
	c.Nodes = slices.Clone(j.Nodes)
	return &c
}

func settleSlurmNode(s *State, key string, row *SlurmNode) {
	n := cloneSlurmNode(row)
	n.Next = time.Time{}
	s.SlurmNodes.Put(key, n)
}

func settleSlurmJob(s *State, key string, row *SlurmJob) {
	j := cloneSlurmJob(row)
	j.Next = time.Time{}
	s.SlurmJobs.Put(key, j)
}

// slurmdChanged tells a machine's slurmd that its power or what is deployed on
// it has changed.
func (s *State) slurmdChanged(*Machine) {}
