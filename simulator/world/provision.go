package world

import (
	"fmt"
	"slices"
	"time"
)

// The provision states of Ironic.
const (
	Enroll         = "enroll"
	Verifying      = "verifying"
	Manageable     = "manageable"
	Available      = "available"
	Active         = "active"
	Deploying      = "deploying"
	DeployWait     = "wait call-back"
	DeployFailed   = "deploy failed"
	Cleaning       = "cleaning"
	CleanWait      = "clean wait"
	CleanFailed    = "clean failed"
	Deleting       = "deleting"
	Failed         = "error"
	Inspecting     = "inspecting"
	InspectWait    = "inspect wait"
	InspectFailed  = "inspect failed"
	Adopting       = "adopting"
	AdoptFailed    = "adopt failed"
	Rescuing       = "rescuing"
	RescueWait     = "rescue wait"
	Rescue         = "rescue"
	RescueFailed   = "rescue failed"
	Unrescuing     = "unrescuing"
	UnrescueFailed = "unrescue failed"
)

// What a node can be at.
const (
	WorkVerify   = "verify"
	WorkClean    = "clean"
	WorkDeploy   = "deploy"
	WorkDelete   = "delete"
	WorkInspect  = "inspect"
	WorkAdopt    = "adopt"
	WorkRescue   = "rescue"
	WorkUnrescue = "unrescue"
	WorkAbort    = "abort"
	WorkManage   = "manage" // at once
	WorkPower    = "power"
)

// verbs says from which states which verb leads into which work.
var verbs = map[string]map[string]string{
	"manage": {
		Enroll: WorkVerify, Available: WorkManage, CleanFailed: WorkManage, InspectFailed: WorkManage, AdoptFailed: WorkManage,
	},
	"provide":  {Manageable: WorkClean},
	"clean":    {Manageable: WorkClean},
	"inspect":  {Manageable: WorkInspect, InspectFailed: WorkInspect},
	"active":   {Available: WorkDeploy, DeployFailed: WorkDeploy},
	"rebuild":  {Active: WorkDeploy, Failed: WorkDeploy, DeployFailed: WorkDeploy},
	"adopt":    {Manageable: WorkAdopt, AdoptFailed: WorkAdopt},
	"rescue":   {Active: WorkRescue, Rescue: WorkRescue, RescueFailed: WorkRescue, UnrescueFailed: WorkRescue},
	"unrescue": {Rescue: WorkUnrescue, RescueFailed: WorkUnrescue, UnrescueFailed: WorkUnrescue},
	"abort":    {CleanWait: WorkAbort, InspectWait: WorkAbort, RescueWait: WorkAbort},
	"deleted": {
		Active: WorkDelete, DeployFailed: WorkDelete, DeployWait: WorkDelete, Failed: WorkDelete,
		Rescue: WorkDelete, RescueFailed: WorkDelete, RescueWait: WorkDelete, UnrescueFailed: WorkDelete,
	},
}

// CanVerb tells whether a node's state has a way for a verb.
func (n *Node) CanVerb(verb string) bool { return verbs[verb][n.ProvisionState] != "" }

// How long the passing states of a machine's node last. Those of a fake one are
// all fakePhase, and fakeStep for each step of a manual clean on its BIOS.
const (
	verifyTime   = time.Second
	inspectTime  = 6 * time.Second
	prepareTime  = 3 * time.Second  // before the machine has booted the ramdisk
	ramdiskTime  = 10 * time.Second // until the ramdisk calls back
	deployTime   = 6 * time.Second  // after that
	cleanTime    = 5 * time.Second  // after that
	tearDownTime = 4 * time.Second
	adoptTime    = 2 * time.Second
	rescueTime   = 5 * time.Second
	fakePhase    = 100 * time.Millisecond
	fakeStep     = 2 * time.Second
)

// conductor is the host that holds the locks of a site's nodes.
func conductor(site string) string { return site + "-conductor" }

// Conductor is the name of a site's only conductor.
func Conductor(site string) string { return conductor(site) }

// Verb begins what a verb asks for, which CanVerb has allowed. The node is to be
// Put afterwards.
func (s *State) Verb(n *Node, verb string) {
	work := verbs[verb][n.ProvisionState]
	switch work {
	case WorkManage: // the last error stays: nothing was tried anew
		n.ProvisionState, n.TargetProvision, n.Provisioned, n.Updated = Manageable, "", s.Now, s.Now
	case WorkAbort:
		s.abort(n)
	default:
		n.LastError = ""
		target := map[string]string{
			WorkVerify: Manageable, WorkInspect: Manageable, WorkDeploy: Active, WorkDelete: Available, WorkAdopt: Active,
			WorkRescue: Rescue, WorkUnrescue: Active, WorkClean: Available,
		}[work]
		if verb == "clean" {
			target = Manageable
		}
		s.begin(n, work, target)
	}
}

func (s *State) begin(n *Node, work, target string) {
	n.Work, n.TargetProvision, n.Ahead = work, target, s.phases(n, work, target)
	if work == WorkInspect {
		n.InspectStarted = s.Now
	}
	s.enter(n)
}

// phases gives the passing states of a work.
func (s *State) phases(n *Node, work, target string) []Phase {
	lasts := func(d time.Duration) time.Duration {
		if n.Driver == fakeHardware {
			return fakePhase
		}
		return d
	}
	switch work {
	case WorkVerify:
		return []Phase{{Verifying, lasts(verifyTime)}}
	case WorkInspect:
		return s.inspection(n, lasts(inspectTime))
	case WorkAdopt:
		return []Phase{{Adopting, lasts(adoptTime)}}
	case WorkRescue:
		return s.byRamdisk(n, Rescuing, RescueWait, lasts(prepareTime), lasts(rescueTime))
	case WorkUnrescue:
		return []Phase{{Unrescuing, lasts(rescueTime)}}
	case WorkDelete:
		return []Phase{{Deleting, lasts(tearDownTime)}}
	case WorkDeploy:
		return s.byRamdisk(n, Deploying, DeployWait, lasts(prepareTime), lasts(deployTime))
	}
	if target == Available && n.AutomatedClean != nil && !*n.AutomatedClean {
		return []Phase{{Cleaning, fakePhase}}
	}
	takes := lasts(cleanTime)
	for _, step := range n.Steps {
		if takes < cleanTime && step.Interface == "bios" {
			takes += fakeStep
		}
	}
	return s.byRamdisk(n, Cleaning, CleanWait, lasts(prepareTime), takes)
}

// inspection are the phases of an inspection: by the BMC, or in the machine
// itself by a ramdisk, which is waited for without end where none can boot.
func (s *State) inspection(n *Node, takes time.Duration) []Phase {
	switch {
	case n.Interfaces["inspect"] != InBand:
		return []Phase{{Inspecting, takes}}
	case s.MachineOf(n) == nil:
		return []Phase{{Inspecting, takes}, {InspectWait, 0}}
	}
	return []Phase{{Inspecting, prepareTime}, {InspectWait, ramdiskTime + takes}}
}

// InBand is the inspect interface that has a ramdisk look at the machine.
const InBand = "inspector"

// byRamdisk are the phases of what a ramdisk does: without one, at once; with
// one that never calls, for ever.
func (s *State) byRamdisk(n *Node, state, wait string, prepare, rest time.Duration) []Phase {
	switch {
	case n.Interfaces["deploy"] != "direct":
		return []Phase{{state, rest}}
	case s.MachineOf(n) == nil && state == Cleaning:
		return []Phase{{state, prepare}, {wait, 0}}
	case s.MachineOf(n) == nil:
		return []Phase{{state, prepare}}
	}
	return []Phase{{state, prepare}, {wait, ramdiskTime}, {state, rest}}
}

// enter puts the node into the first of the states that are ahead.
func (s *State) enter(n *Node) {
	phase := n.Ahead[0]
	n.Ahead = n.Ahead[1:]
	n.ProvisionState, n.Provisioned, n.Updated = phase.State, s.Now, s.Now
	n.Next, n.Reservation = time.Time{}, conductor(n.Site)
	if phase.Takes > 0 {
		n.Next = s.Now.Add(phase.Takes)
	}
	if waits(phase.State) {
		n.Reservation = ""
	}
	s.operate(n)
}

func waits(state string) bool {
	return state == CleanWait || state == DeployWait || state == RescueWait || state == InspectWait
}

// operate does to the machine what entering a state means for it.
func (s *State) operate(n *Node) {
	m := s.MachineOf(n)
	if m == nil || s.reach(n) != "" {
		return
	}
	last := len(n.Ahead) == 0
	switch {
	case n.Work == WorkDelete:
		s.setDeployed(m, false)
		s.drive(n, s.MachineOf(n), "tear down", false, false)
	case n.Work == WorkDeploy && !last && !waits(n.ProvisionState):
		s.setDeployed(m, false) // what was there is overwritten
	case waits(n.ProvisionState):
		s.drive(n, m, n.Work+": boot the ramdisk", true, true)
	case last && n.Work == WorkClean && n.Interfaces["deploy"] == "direct" && !s.fastTrack(n.Site):
		s.drive(n, m, "clean: power off", false, false)
	}
}

func (s *State) fastTrack(site string) bool {
	at := s.Sites.Get(site)
	return at != nil && at.FastTrack
}

// setDeployed tells whether an operating system is on a machine's disk.
func (s *State) setDeployed(m *Machine, deployed bool) {
	if m.Deployed == deployed {
		return
	}
	c := s.Machines.Edit(m.Key())
	c.Deployed = deployed
	s.Machines.Put(c.Key(), c)
	if c.Slurm != "" {
		s.slurmdChanged(c)
	}
}

// settleNode lets the node's state go on, and Ironic compare its power.
func settleNode(s *State, key string, row *Node) {
	n := cloneNode(row)
	if !n.SyncAt.IsZero() && !n.SyncAt.After(s.Now) {
		n.SyncAt = time.Time{}
		s.syncPower(n)
	}
	if !n.Next.IsZero() && !n.Next.After(s.Now) {
		n.Next = time.Time{}
		s.nextState(n)
	}
	s.Nodes.Put(key, n)
}

// nextState lets a passing provision state go on.
func (s *State) nextState(n *Node) {
	switch {
	case n.Work == WorkPower:
		s.endPower(n)
	case n.Work == "":
	case s.fault(n) != "":
		s.fail(n, s.fault(n))
	case len(n.Ahead) > 0:
		s.enter(n)
	default:
		s.finish(n)
	}
}

// fault gives what makes the work of a node fail, "" nothing.
func (s *State) fault(n *Node) string {
	if broken := s.reach(n); broken != "" {
		return broken
	}
	if broken := s.unpowered(n); broken != "" {
		return broken
	}
	switch n.Work {
	case WorkClean:
		return cleanFault(n)
	case WorkDeploy:
		if n.Interfaces["deploy"] == "direct" && n.Machine == "" {
			return fmt.Sprintf("Validation of image href %v failed, reason: the server does not answer", n.InstanceInfo["image_source"])
		}
	case WorkInspect:
		if n.Interfaces["inspect"] == "redfish" && n.Machine == "" {
			return "Redfish connection failed for node " + n.UUID + ": Unable to connect"
		}
	case WorkAdopt:
		if n.Interfaces["deploy"] == "ramdisk" && n.Interfaces["boot"] == "pxe" {
			return "Failed to validate PXE boot image: kernel and ramdisk are missing"
		}
	}
	if n.Fails == n.Work {
		return "the simulated " + n.Work + " was told to fail"
	}
	return ""
}

// finish ends a work that succeeded.
func (s *State) finish(n *Node) {
	m := s.MachineOf(n)
	work, instance := n.Work, n.InstanceUUID
	n.Work = ""
	switch work {
	case WorkDelete:
		n.InstanceUUID, n.InstanceInfo, n.Steps = "", map[string]any{}, nil
		s.tornDown(n, instance)
		s.begin(n, WorkClean, Available)
		return
	case WorkInspect:
		s.inspected(n, m)
		if m != nil && n.Interfaces["inspect"] == InBand {
			n.Inventoried = true
			if !s.fastTrack(n.Site) {
				s.drive(n, m, "inspect: power off", false, false)
			}
		}
		if m != nil && s.PortAt(n.Site, hostMAC(m)) == nil {
			p := portOf(n, m, 0)
			p.CreatedAt = s.Now
			s.AddPort(p)
		}
	case WorkVerify:
		if m != nil {
			n.PowerState = powerWord(m.On)
		}
	}
	s.rest(n, n.TargetProvision)
	n.TargetProvision = ""
	if work == WorkDeploy && m != nil {
		s.setDeployed(m, true)
		s.drive(n, s.MachineOf(n), "deploy: boot the deployed system", true, false)
	}
	n.Steps = nil
	s.instanceDeployed(n, work)
	if n.ProvisionState == Available {
		s.offered(n)
	}
}

// rest puts a node into a state that only a verb leaves.
func (s *State) rest(n *Node, state string) {
	n.ProvisionState, n.Provisioned, n.Updated = state, s.Now, s.Now
	n.Work, n.Ahead, n.Reservation, n.Next = "", nil, "", time.Time{}
	if m := s.MachineOf(n); m != nil && len(m.Moves) == 0 && n.TargetPower != "" {
		n.PowerState, n.TargetPower = powerWord(m.On), ""
	}
}

// CustomTrait tells whether a trait is one that anybody may make up.
func CustomTrait(trait string) bool {
	rest := len("CUSTOM_")
	return len(trait) > rest && len(trait) <= 255 && trait[:rest] == "CUSTOM_" &&
		!slices.ContainsFunc([]byte(trait), func(b byte) bool { return !(b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_') })
}
