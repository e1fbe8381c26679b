package world

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// SlurmJob is a job of a site's SLURM cluster. It takes whole nodes.
type SlurmJob struct {
	ID        int           `json:"id"`
	Site      string        `json:"site"`
	Name      string        `json:"name"`
	User      string        `json:"user"`
	Partition string        `json:"partition"`
	State     string        `json:"state"`         // PENDING, RUNNING, COMPLETED, FAILED, CANCELLED, TIMEOUT, NODE_FAIL
	Why       string        `json:"why,omitempty"` // SLURM's state_reason, "" None
	Nodes     []string      `json:"nodes,omitempty"`
	Required  []string      `json:"required,omitempty"` // nodes that it must have
	Wanted    int           `json:"wanted"`
	Comment   string        `json:"comment,omitempty"`
	Folder    string        `json:"folder,omitempty"`
	Run       time.Duration `json:"run"`              // how long it takes
	Limit     time.Duration `json:"limit,omitempty"`  // the most it may take, 0 any
	Exit      int           `json:"exit,omitempty"`   // with what its script ends
	Signal    int           `json:"signal,omitempty"` // by which it was ended
	Repeat    bool          `json:"repeat,omitempty"` // another one follows it
	Submitted time.Time     `json:"submitted"`
	Started   time.Time     `json:"started,omitzero"`
	Ended     time.Time     `json:"ended,omitzero"`
	Next      time.Time     `json:"next,omitzero"`
}

// The states of jobs.
const (
	JobPending   = "PENDING"
	JobRunning   = "RUNNING"
	JobCompleted = "COMPLETED"
	JobFailed    = "FAILED"
	JobCancelled = "CANCELLED"
	JobTimeout   = "TIMEOUT"
	JobNodeFail  = "NODE_FAIL"
)

// SlurmPartitions are what every cluster has; the first is its default.
var slurmPartitions = []string{"main", "burnin"}

// SlurmPartitions gives the names of the partitions that every cluster has, the
// default first.
func SlurmPartitions() []string { return slices.Clone(slurmPartitions) }

// The scheduler looks so long after a job came; a job that has ended is forgotten
// so long after.
const (
	schedulerDelay = time.Second
	jobAge         = 5 * time.Minute
)

const (
	sigHangUp    = 1
	sigTerminate = 15
)

func slurmJobKind() kind[SlurmJob] {
	return kind[SlurmJob]{
		clone:  cloneSlurmJob,
		due:    func(j *SlurmJob) time.Time { return j.Next },
		settle: settleSlurmJob,
	}
}

func cloneSlurmJob(j *SlurmJob) *SlurmJob {
	c := *j
	c.Nodes, c.Required = slices.Clone(j.Nodes), slices.Clone(j.Required)
	return &c
}

// JobKey is a job's key in SlurmJobs; keys are in the order of ids.
func JobKey(site string, id int) string { return Key(site, fmt.Sprintf("%09d", id)) }

// SubmitSlurmJob puts a job into the queue and gives it its id.
func (s *State) SubmitSlurmJob(j *SlurmJob) int {
	c := s.SlurmClusterOf(j.Site)
	c.LastJob++
	s.SlurmClusters.Put(j.Site, c)
	j.ID, j.State, j.Submitted, j.Wanted = c.LastJob, JobPending, s.Now, max(j.Wanted, len(j.Required), 1)
	j.Next = s.Now.Add(schedulerDelay)
	s.SlurmJobs.Put(JobKey(j.Site, j.ID), j)
	return j.ID
}

// The ways that a job cannot be cancelled.
var (
	ErrSlurmJob   = errors.New("no such SLURM job")
	ErrSlurmEnded = errors.New("the SLURM job has ended")
)

// CancelSlurmJob ends a job.
func (s *State) CancelSlurmJob(site string, id int) error {
	j := s.SlurmJobs.Edit(JobKey(site, id))
	switch {
	case j == nil:
		return ErrSlurmJob
	case j.State != JobPending && j.State != JobRunning:
		return ErrSlurmEnded
	}
	j.Repeat = false
	s.endSlurmJob(j, JobCancelled, "", sigTerminate)
	return nil
}

// SlurmJobsFit reports whether the cluster has as many nodes as a job wants.
func (s *State) SlurmJobsFit(site string, wanted int) bool {
	for range s.SlurmNodes.Of(site) {
		if wanted--; wanted <= 0 {
			return true
		}
	}
	return wanted <= 0
}

// settleSlurmJob starts, ends or forgets a job.
func settleSlurmJob(s *State, key string, row *SlurmJob) {
	j := cloneSlurmJob(row)
	j.Next = time.Time{}
	switch j.State {
	case JobPending:
		s.SlurmJobs.Put(key, j)
		s.scheduleSlurm(j.Site)
	case JobRunning:
		switch {
		case j.Limit > 0 && j.Run > j.Limit:
			s.endSlurmJob(j, JobTimeout, "TimeLimit", sigTerminate)
		case j.Exit != 0:
			s.endSlurmJob(j, JobFailed, "NonZeroExitCode", 0)
		default:
			s.endSlurmJob(j, JobCompleted, "", 0)
		}
	default:
		s.SlurmJobs.Delete(key)
	}
}

// slurmJobLost ends a job whose node is no longer there.
func (s *State) slurmJobLost(site string, id int) {
	if j := s.SlurmJobs.Edit(JobKey(site, id)); j != nil && j.State == JobRunning {
		s.endSlurmJob(j, JobNodeFail, "NodeDown", sigHangUp)
	}
}

// endSlurmJob ends a job, frees its nodes and sees what else may run.
func (s *State) endSlurmJob(j *SlurmJob, state, why string, signal int) {
	for _, name := range j.Nodes {
		key := Key(j.Site, name)
		n := s.SlurmNodes.Edit(key)
		if n == nil || n.Job != j.ID {
			continue
		}
		n.Job, n.Busy = 0, s.Now
		if n.Base == SlurmAllocated {
			n.Base = SlurmIdle
		}
		s.SlurmNodes.Put(key, n)
	}
	j.State, j.Why, j.Signal, j.Ended, j.Next = state, why, signal, s.Now, s.Now.Add(jobAge)
	s.SlurmJobs.Put(JobKey(j.Site, j.ID), j)
	if j.Repeat {
		s.SubmitSlurmJob(&SlurmJob{
			Site: j.Site, Name: j.Name, User: j.User, Partition: j.Partition, Required: slices.Clone(j.Required), Wanted: j.Wanted,
			Comment: j.Comment, Folder: j.Folder, Run: j.Run, Limit: j.Limit, Exit: j.Exit, Repeat: true,
		})
	}
	s.scheduleSlurm(j.Site)
}

// scheduleSlurm starts what can start, the oldest first. A stopped controller
// starts nothing.
func (s *State) scheduleSlurm(site string) {
	if c := s.SlurmClusters.Get(site); c != nil && (c.Down || c.Hung) {
		return
	}
	var waiting []*SlurmJob
	for _, j := range s.SlurmJobs.Of(site) {
		if j.State == JobPending && !j.Next.After(s.Now) {
			waiting = append(waiting, j)
		}
	}
	for _, row := range waiting {
		j := cloneSlurmJob(row)
		nodes := s.freeSlurmNodes(j)
		if nodes == nil {
			if j.Why == "" {
				j.Why = "Resources"
				s.SlurmJobs.Put(JobKey(site, j.ID), j)
			}
			continue
		}
		s.startSlurmJob(j, nodes)
	}
}

// freeSlurmNodes gives the nodes that a job can have, nil while there are too few.
func (s *State) freeSlurmNodes(j *SlurmJob) []*SlurmNode {
	var found []*SlurmNode
	take := func(n *SlurmNode) bool {
		if n != nil && n.Base == SlurmIdle && slices.Contains(n.Partitions, j.Partition) &&
			!n.Has(SlurmDrain) && !n.Has(SlurmFail) && !n.Has(SlurmNotResponding) && !n.Has("POWERED_DOWN") {
			found = append(found, n)
		}
		return len(found) < j.Wanted
	}
	for _, name := range j.Required {
		take(s.SlurmNodes.Get(Key(j.Site, name)))
	}
	if len(found) < len(j.Required) {
		return nil
	}
	if len(found) < j.Wanted {
		for _, n := range s.SlurmNodes.Of(j.Site) {
			if !slices.Contains(j.Required, n.Name) && !take(n) {
				break
			}
		}
	}
	if len(found) < j.Wanted {
		return nil
	}
	return found
}

func (s *State) startSlurmJob(j *SlurmJob, nodes []*SlurmNode) {
	for _, row := range nodes {
		n := cloneSlurmNode(row)
		n.Base, n.Job = SlurmAllocated, j.ID
		s.SlurmNodes.Put(Key(n.Site, n.Name), n)
		j.Nodes = append(j.Nodes, n.Name)
	}
	run := j.Run
	if j.Limit > 0 {
		run = min(run, j.Limit)
	}
	j.State, j.Why, j.Started, j.Next = JobRunning, "", s.Now, s.Now.Add(run)
	s.SlurmJobs.Put(JobKey(j.Site, j.ID), j)
}
