package world

import (
	"math/rand/v2"
	"time"
)

// What the jobs of the burn-in queue take, and how many of its nodes are busy.
const (
	burnInTime  = 2 * time.Hour
	burnInShare = 60 // per cent
)

// seedSlurm makes the machine a node of the site's cluster if it is leased to it.
func (s *State) seedSlurm(r *rand.Rand, site *Site, m *Machine, use Use) {
	if !site.Slurm || use != UseBurnIn && use != UseDrained {
		return
	}
	m.Slurm, m.On, m.Deployed = m.Name, true, true
	n := &SlurmNode{
		Name: m.Name, Site: site.Name, Machine: m.Name, Base: SlurmIdle, Partitions: slurmPartitions, Features: []string{m.Rack},
		Boot: s.Now.Add(-time.Duration(r.IntN(30*24)) * time.Hour).Truncate(time.Second),
	}
	if r.IntN(4) == 0 {
		n.Dynamic, n.Created = true, n.Boot
		n.raise(SlurmDynamic)
	}
	if use == UseDrained {
		why := []string{"ECC errors on GPU 2", "NVLink flaps", "waits for a new NIC", "NHC: check_hw_gpus failed"}
		n.raise(SlurmDrain)
		n.explain(why[r.IntN(len(why))], "root", s.Now.Add(-time.Duration(1+r.IntN(200))*time.Hour))
	}
	key := Key(site.Name, n.Name)
	s.SlurmNodes.Put(key, n)
	if use == UseBurnIn && r.IntN(100) < burnInShare {
		s.seedJob(r, n)
	}
}

// seedJob has the node in the middle of a test of the burn-in queue.
func (s *State) seedJob(r *rand.Rand, n *SlurmNode) {
	ran := time.Duration(r.Int64N(int64(burnInTime))).Truncate(time.Second)
	j := &SlurmJob{Site: n.Site, Name: "burn-in", User: "root", Partition: "burnin", Comment: "standing test", Folder: "/tmp", Run: burnInTime, Repeat: true}
	s.SubmitSlurmJob(j)
	j = cloneSlurmJob(j)
	j.Submitted = s.Now.Add(-ran)
	s.startSlurmJob(j, []*SlurmNode{n})
	j.Started, j.Next = j.Submitted, j.Submitted.Add(burnInTime)
	s.SlurmJobs.Put(JobKey(j.Site, j.ID), j)
}
