package world

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// leased gives a seeded node of SLURM with the given flag, busy or not.
func leased(t *testing.T, w *World, flag string, busy bool) (found *SlurmNode) {
	t.Helper()
	w.Read(func(s *State) {
		for _, n := range s.SlurmNodes.Of("sim1") {
			if n.Has(flag) && (n.Job != 0) == busy && n.Machine != "" && (flag == SlurmDrain || !n.Has(SlurmDrain)) {
				found = n
				return
			}
		}
	})
	if found == nil {
		t.Fatalf("no seeded node is %s, busy %v", flag, busy)
	}
	return found
}

func wide(t *testing.T, dir string, h *hand) *World {
	t.Helper()
	w, err := Open(Options{Dir: dir, Shape: Shape{Sites: 1, Racks: 4}, Clock: h.now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func must(t *testing.T, w *World, change func(s *State) error) {
	t.Helper()
	if err := w.Do(Effect{Face: "test", Op: "test"}, change); err != nil {
		t.Fatal(err)
	}
}

func slurmNode(w *World, name string) (n *SlurmNode) {
	w.Read(func(s *State) { n = s.SlurmNodes.Get("sim1/" + name) })
	return n
}

func slurmJob(w *World, id int) (j *SlurmJob) {
	w.Read(func(s *State) { j = s.SlurmJobs.Get(JobKey("sim1", id)) })
	return j
}

// A machine that goes off takes its slurmd with it: slurmctld first shows the
// silence, then gives the node up and its job is lost; after the boot it is back.
func TestASlurmdAnswersWhileItsMachineIsOn(t *testing.T) {
	t.Parallel()
	h := start()
	w := wide(t, "", h)
	n := leased(t, w, SlurmAllocated, true)
	power := func(on bool) {
		must(t, w, func(s *State) error { s.Switch(s.Machines.Get("sim1/"+n.Machine), "reset", on); return nil })
		h.at = h.at.Add(PowerDelay)
		w.Read(func(*State) {})
	}
	// Ironic leaves the machine as it is.
	must(t, w, func(s *State) error {
		node := s.Nodes.Edit(Key("sim1", s.Machines.Get("sim1/"+n.Machine).Node))
		if node != nil {
			node.Maintenance = true
			s.Nodes.Put(Key("sim1", node.UUID), node)
		}
		return nil
	})
	power(false)
	h.at = h.at.Add(SlurmdSilence)
	if got := slurmNode(w, n.Name); !got.Has(SlurmNotResponding) || got.Base != SlurmAllocated {
		t.Errorf("after %s: %s %v", SlurmdSilence, got.Base, got.Flags)
	}
	h.at = h.at.Add(SlurmdTimeout - SlurmdSilence)
	if got := slurmNode(w, n.Name); got.Base != SlurmDown || !got.Has(SlurmNotResponding) || got.Reason != silentReason || got.Job != 0 {
		t.Errorf("after %s: %+v", SlurmdTimeout, got)
	}
	if j := slurmJob(w, n.Job); j == nil || j.State != JobNodeFail || j.Why != "NodeDown" {
		t.Errorf("the job is %+v", j)
	}
	power(true)
	if got := slurmNode(w, n.Name); got.Base != SlurmDown {
		t.Errorf("while it boots: %s %v", got.Base, got.Flags)
	}
	h.at = h.at.Add(BootTime)
	if got := slurmNode(w, n.Name); got.Base == SlurmDown || got.Has(SlurmNotResponding) || got.Reason != "" {
		t.Errorf("after the boot: %+v", got)
	}
}

// A drained node that is silent for too long is given up as well. Its reason then
// is a new one, but in 22.05, and it stays down when it is back: a person had it
// out before.
func TestADrainedNodeIsGivenUp(t *testing.T) {
	t.Parallel()
	for generation, reason := range map[int]string{38: "", 42: " : " + silentReason, 45: " : " + silentReason} {
		h := start()
		w := wide(t, "", h)
		n := leased(t, w, SlurmDrain, false)
		must(t, w, func(s *State) error {
			s.SlurmGeneration("sim1", generation)
			s.Switch(s.Machines.Get("sim1/"+n.Machine), "reset", false, true)
			return nil
		})
		h.at = h.at.Add(2*PowerDelay + BootTime)
		got := slurmNode(w, n.Name)
		if !got.Has(SlurmDrain) || got.Has(SlurmNotResponding) || got.Base != SlurmDown || got.Reason != n.Reason+reason || got.ReasonAt.After(n.ReasonAt) != (reason != "") || !got.LastBusy().Equal(n.LastBusy()) {
			t.Errorf("%d: it is %+v, was %+v", generation, got, n)
		}
	}
}

// Where a node can be sent, and what each does to its drain and its reason.
func TestWhereANodeCanBeSent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		states []string
		base   string
		flags  []string
		reason bool // that the first step gave is still there, but in 24.11, where it always is
		fails  bool // the last step
	}{
		"drained":             {[]string{"DRAIN"}, SlurmIdle, []string{"DRAIN"}, true, false},
		"drained twice":       {[]string{"DRAIN", "DRAIN"}, SlurmIdle, []string{"DRAIN"}, true, false},
		"resumed":             {[]string{"DRAIN", "RESUME"}, SlurmIdle, nil, false, false},
		"resumed twice":       {[]string{"DRAIN", "RESUME", "RESUME"}, SlurmIdle, nil, false, true},
		"undrained":           {[]string{"DRAIN", "UNDRAIN"}, SlurmIdle, nil, false, false},
		"drained and idle":    {[]string{"DRAIN", "IDLE"}, SlurmIdle, nil, false, false},
		"down and resumed":    {[]string{"DOWN", "RESUME"}, SlurmIdle, nil, false, false},
		"down and idle":       {[]string{"DOWN", "IDLE"}, SlurmIdle, nil, false, false},
		"down and undrained":  {[]string{"DOWN", "DRAIN", "UNDRAIN"}, SlurmDown, nil, true, false},
		"failing":             {[]string{"FAIL"}, SlurmIdle, []string{"FAIL"}, true, false},
		"failing, drained":    {[]string{"FAIL", "DRAIN"}, SlurmIdle, []string{"DRAIN"}, true, false},
		"drained, failing":    {[]string{"DRAIN", "FAIL"}, SlurmIdle, []string{"FAIL"}, true, false},
		"failing and resumed": {[]string{"FAIL", "RESUME"}, SlurmIdle, nil, false, false},
		"nowhere":             {[]string{"MIXED"}, SlurmIdle, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, generation := range []int{38, 42, 45} {
				h := start()
				w := open(t, "", h)
				must(t, w, func(s *State) error {
					s.SlurmGeneration("sim1", generation)
					s.SlurmNodes.Put("sim1/x", &SlurmNode{Site: "sim1", Name: "x", Base: SlurmIdle})
					return nil
				})
				var err error
				for i, state := range c.states {
					u := SlurmUpdate{State: []string{state}, User: "root"}
					if i == 0 {
						u.Reason = "because"
					}
					must(t, w, func(s *State) error { err = s.UpdateSlurmNode("sim1", "x", u); return nil })
				}
				if n := slurmNode(w, "x"); n.Has(SlurmNotResponding) == n.Ping.IsZero() {
					t.Errorf("%d: it is %v and asked at %s", generation, n.Flags, n.Ping)
				}
				last := c.states[len(c.states)-1]
				if n := slurmNode(w, "x"); n.LastBusy().Equal(h.at) != (n.Base == SlurmIdle && slices.Contains([]string{"RESUME", "UNDRAIN", "IDLE"}, last)) && !c.fails {
					t.Errorf("%d: last busy at %s", generation, n.LastBusy())
				}
				h.at = h.at.Add(slurmdPing)
				got := slurmNode(w, "x")
				if got.Base != c.base || !slices.Equal(got.Flags, c.flags) || (got.Reason != "") != (c.reason || generation == 42) || errors.Is(err, ErrSlurmTransition) != c.fails {
					t.Errorf("%d: %s %v, reason %q, %v", generation, got.Base, got.Flags, got.Reason, err)
				}
			}
		})
	}
}

// Work on a draining node goes on to its end, and no other begins there; what
// waits runs where there is room, and what has ended is forgotten.
func TestJobsGoThroughTheQueue(t *testing.T) {
	t.Parallel()
	h := start()
	w := open(t, "", h)
	var first, second int
	must(t, w, func(s *State) error {
		for _, name := range []string{"a", "b"} {
			s.SlurmNodes.Put("sim1/"+name, &SlurmNode{Site: "sim1", Name: name, Base: SlurmIdle, Partitions: []string{"test"}})
		}
		first = s.SubmitSlurmJob(&SlurmJob{Site: "sim1", Name: "one", Partition: "test", Required: []string{"a"}, Run: time.Minute})
		second = s.SubmitSlurmJob(&SlurmJob{Site: "sim1", Name: "two", Partition: "test", Wanted: 2, Run: time.Minute, Exit: 3})
		return nil
	})
	if j := slurmJob(w, first); j.State != JobPending {
		t.Errorf("at once: %+v", j)
	}
	h.at = h.at.Add(schedulerDelay)
	if j, n := slurmJob(w, first), slurmNode(w, "a"); j.State != JobRunning || n.Base != SlurmAllocated || slurmJob(w, second).Why != "Resources" {
		t.Errorf("then: %+v on %+v, the other %+v", j, n, slurmJob(w, second))
	}
	must(t, w, func(s *State) error {
		return s.UpdateSlurmNode("sim1", "a", SlurmUpdate{State: []string{SlurmDrain}, Reason: "x", User: "root"})
	})
	if n := slurmNode(w, "a"); n.Base != SlurmAllocated || !n.Has(SlurmDrain) {
		t.Errorf("draining: %+v", n)
	}
	h.at = h.at.Add(time.Minute)
	if n := slurmNode(w, "a"); n.Base != SlurmIdle || !n.Has(SlurmDrain) || slurmJob(w, first).State != JobCompleted || slurmJob(w, second).State != JobPending {
		t.Errorf("drained: %+v, jobs %+v %+v", n, slurmJob(w, first), slurmJob(w, second))
	}
	must(t, w, func(s *State) error {
		return s.UpdateSlurmNode("sim1", "a", SlurmUpdate{State: []string{"RESUME"}, User: "root"})
	})
	if j := slurmJob(w, second); j.State != JobPending {
		t.Errorf("before the node was asked: %+v", j)
	}
	h.at = h.at.Add(slurmdPing)
	if j := slurmJob(w, second); j.State != JobRunning || len(j.Nodes) != 2 {
		t.Errorf("resumed: %+v", j)
	}
	h.at = h.at.Add(time.Minute)
	if j := slurmJob(w, second); j.State != JobFailed || j.Why != "NonZeroExitCode" {
		t.Errorf("ended: %+v", j)
	}
	h.at = h.at.Add(jobAge)
	if j := slurmJob(w, second); j != nil {
		t.Errorf("not forgotten: %+v", j)
	}
}

// A job that runs when the process dies ends when it would have, and another one
// of the standing tests follows it.
func TestJobsGoOnAfterAStart(t *testing.T) {
	t.Parallel()
	dir, h := t.TempDir(), start()
	w := wide(t, dir, h)
	n := leased(t, w, SlurmAllocated, true)
	before := slurmJob(w, n.Job)
	must(t, w, func(s *State) error { return s.UpdateSlurmNode("sim1", n.Name, SlurmUpdate{Comment: new(string)}) })

	h.at = before.Next.Add(2 * schedulerDelay)
	again := wide(t, dir, h) // the first one was never closed
	if j := slurmJob(again, before.ID); j == nil || j.State != JobCompleted || !j.Ended.Equal(before.Next) {
		t.Errorf("the job is %+v", j)
	}
	var follows *SlurmJob
	again.Read(func(s *State) {
		for _, j := range s.SlurmJobs.Of("sim1") {
			if j.Submitted.Equal(before.Next) {
				follows = j
			}
		}
	})
	if follows == nil || follows.State != JobRunning || !follows.Repeat {
		t.Errorf("what follows is %+v", follows)
	}
}

// A node of a machine can be made and taken away again only if it is dynamic.
func TestDynamicNodesComeAndGo(t *testing.T) {
	t.Parallel()
	h := start()
	w := wide(t, "", h)
	busy := leased(t, w, SlurmAllocated, true)
	if err := w.Do(Effect{Face: "test"}, func(s *State) error { return s.DeleteSlurmNode("sim1", busy.Name) }); !errors.Is(err, ErrSlurmTransition) {
		t.Errorf("a busy node is deleted: %v", err)
	}
	var free *Machine
	w.Read(func(s *State) {
		for _, m := range s.Machines.Of("sim1") {
			if m.Class == ClassCompute && m.Slurm == "" && m.slurmd() {
				free = m
				return
			}
		}
	})
	made := &SlurmNode{Site: "sim1", Name: free.Name, Partitions: SlurmPartitions()}
	must(t, w, func(s *State) error {
		if !s.CreateSlurmNode(made) || s.CreateSlurmNode(&SlurmNode{Site: "sim1", Name: free.Name}) {
			t.Error("a new name is taken, or one twice")
		}
		return nil
	})
	if n := slurmNode(w, free.Name); !n.Has("POWERED_DOWN") || !n.Has(SlurmDynamic) {
		t.Errorf("made: %+v", n)
	}
	h.at = h.at.Add(time.Second)
	if n := slurmNode(w, free.Name); n.Base == SlurmDown || n.Has("POWERED_DOWN") {
		t.Errorf("registered: %+v", n)
	}
	must(t, w, func(s *State) error {
		if n := s.SlurmNodes.Get(Key("sim1", free.Name)); n.Job != 0 {
			_ = s.CancelSlurmJob("sim1", n.Job)
		}
		return s.DeleteSlurmNode("sim1", free.Name)
	})
	w.Read(func(s *State) {
		if s.SlurmNodes.Get(Key("sim1", free.Name)) != nil || s.Machines.Get(free.Key()).Slurm != "" {
			t.Error("the node is still there")
		}
	})
}
