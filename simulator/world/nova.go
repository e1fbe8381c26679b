package world

import (
	"cmp"
	"slices"
	"time"
)

// FaceNova is the face of Nova's API.
const FaceNova = "nova"

// Server is a server of Nova.
type Server struct {
	UUID    string    `json:"uuid"`
	Site    string    `json:"site"`
	Name    string    `json:"name"`
	Project string    `json:"project"`
	User    string    `json:"user,omitempty"`
	Node    string    `json:"node"`           // uuid of the Ironic node it is on, "" none
	Status  string    `json:"status"`         // BUILD, ACTIVE, SHUTOFF, ERROR
	Task    string    `json:"task,omitempty"` // task_state
	Fault   string    `json:"fault,omitempty"`
	Flavor  string    `json:"flavor,omitempty"`
	Image   string    `json:"image,omitempty"`
	KeyName string    `json:"key_name,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Next    time.Time `json:"next,omitzero"` // when a deletion is tried again
}

// TaskDeleting is the task_state of a server that is being deleted.
const TaskDeleting = "deleting"

// deleteRetry is how long Nova waits while the node of a server is locked.
const deleteRetry = 2 * time.Second

func serverKind() kind[Server] {
	return kind[Server]{
		clone:  copied[Server],
		due:    func(v *Server) time.Time { return v.Next },
		settle: settleServer,
	}
}

// Key is the server's key in Servers.
func (v *Server) Key() string { return Key(v.Site, v.UUID) }

// Boot puts a new server on a node, which may be nil: then no host was found.
func (s *State) Boot(v *Server, n *Node) {
	v.Status, v.Task, v.Created, v.Updated = "BUILD", "spawning", s.Now, s.Now
	if n == nil {
		v.Status, v.Task, v.Fault = "ERROR", "", "No valid host was found. There are not enough hosts available."
		s.Servers.Put(v.Key(), v)
		return
	}
	v.Node = n.UUID
	s.Servers.Put(v.Key(), v)
	if p := s.Providers.Edit(n.Key()); p != nil {
		p.Allocations[v.UUID] = Allocation{Resources: map[string]int{resourceClass(n): 1}, Project: v.Project, User: v.User, Type: "INSTANCE", Generation: 1}
		p.Generation++
		s.Providers.Put(p.Key(), p)
	}
	c := s.Nodes.Edit(n.Key())
	c.InstanceUUID = v.UUID
	c.InstanceInfo = map[string]any{"display_name": v.Name, "image_source": cmp.Or(v.Image, "deployed-image"), "nova_host_id": v.Site + "-compute"}
	s.Verb(c, "active")
	s.Nodes.Put(c.Key(), c)
}

// Bootable tells whether Nova could put a server on a node. Where customers get
// nodes by a trait, one that nobody asked for by name must have it; whom Ironic
// has leased the node to, Nova does not ask.
func (s *State) Bootable(n *Node, byName bool) bool {
	if n.ProvisionState != Available || n.Maintenance || n.InstanceUUID != "" || n.Reservation != "" || n.Retired {
		return false
	}
	if site := s.Sites.Get(n.Site); !byName && site.TraitBased && !slices.Contains(n.Traits, site.Trait) {
		return false
	}
	p := s.Providers.Get(n.Key())
	return p != nil && p.Free(resourceClass(n)) > 0
}

// DeleteServer begins a server's end.
func (s *State) DeleteServer(key string) {
	v := s.Servers.Edit(key)
	v.Task, v.Updated = TaskDeleting, s.Now
	s.Servers.Put(key, v)
	s.unspawn(v)
}

func settleServer(s *State, key string, row *Server) {
	v := copied(row)
	v.Next = time.Time{}
	s.Servers.Put(key, v)
	if v.Task == TaskDeleting {
		s.unspawn(v)
	}
}

// unspawn has Ironic tear down the node of a server; the server goes when its
// node is no longer its.
func (s *State) unspawn(v *Server) {
	n := s.Nodes.Edit(Key(v.Site, v.Node))
	switch {
	case n == nil || n.InstanceUUID != v.UUID:
		s.gone(v)
	case n.Work == WorkDelete:
	case n.Reservation == "" && n.CanVerb("deleted"):
		s.Verb(n, "deleted")
		s.Nodes.Put(n.Key(), n)
	default:
		c := copied(v)
		c.Next = s.Now.Add(deleteRetry)
		s.Servers.Put(c.Key(), c)
	}
}

func (s *State) gone(v *Server) {
	s.Release(v.Site, v.UUID)
	s.Servers.Delete(v.Key())
}

// tornDown tells Nova that a node was taken from an instance.
func (s *State) tornDown(n *Node, instance string) {
	if v := s.Servers.Get(Key(n.Site, instance)); v != nil && v.Task == TaskDeleting {
		s.gone(v)
	}
}

// instanceDeployed tells Nova that a node's work succeeded.
func (s *State) instanceDeployed(n *Node, work string) {
	v := s.Servers.Edit(Key(n.Site, n.InstanceUUID))
	if v == nil || work != WorkDeploy || v.Task == TaskDeleting {
		return
	}
	v.Status, v.Task, v.Fault, v.Updated = "ACTIVE", "", "", s.Now
	s.Servers.Put(v.Key(), v)
}

// instanceFailed tells Nova that a node's work failed.
func (s *State) instanceFailed(n *Node, work string) {
	v := s.Servers.Edit(Key(n.Site, n.InstanceUUID))
	if v == nil || work != WorkDeploy && work != WorkDelete {
		return
	}
	v.Status, v.Task, v.Updated = "ERROR", "", s.Now
	v.Fault = "Failed to provision instance " + v.UUID + ": " + n.LastError
	s.Servers.Put(v.Key(), v)
}
