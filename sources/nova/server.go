package nova

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// Server is one instance, as far as workflows ask.
type Server struct {
	ID      string
	Name    string
	Project string // id of whose it is

	Status    string // Nova's own: ACTIVE, BUILD, ERROR, DELETED, SHUTOFF, …; "" where not read
	TaskState string // "" while nothing is under way; "deleting" on the way out
	VMState   string
	Host      string // of the compute service, "" for none
	Node      string // uuid of the Ironic node, "" for none (not scheduled, or on its way out)
	NodeKnown bool   // false: the account may not see where servers are

	Fault     string // what went wrong last; "" for nothing
	CreatedAt time.Time
}

// Ended tells a server that Nova has deleted and only remembers. One that is
// SOFT_DELETED is not: it keeps its node until Nova reclaims it.
func (s *Server) Ended() bool { return s.Status == "DELETED" }

// Server reads one server by its uuid. ErrGone: Nova says that it has none.
func (c *Client) Server(ctx context.Context, uuid string) (*Server, error) {
	const op = "read a server of Nova"
	if !validRef(uuid) {
		return nil, refused(sources.KindRefused, op, "%q is no uuid of a server", sources.CleanText(uuid, 64))
	}
	body, err := c.api.Call(ctx, http.MethodGet, op, nil, "servers", uuid)
	if err != nil {
		return nil, keystone.Gone(err)
	}
	var answer struct {
		Server json.RawMessage `json:"server"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return nil, foreign(op, body)
	}
	s, ok := decodeServer(answer.Server)
	if !ok || !strings.EqualFold(s.ID, uuid) {
		return nil, foreign(op, body)
	}
	return s, nil
}

type rawServer struct {
	ID        json.RawMessage `json:"id"`
	Name      json.RawMessage `json:"name"`
	Tenant    json.RawMessage `json:"tenant_id"`
	Status    json.RawMessage `json:"status"`
	TaskState json.RawMessage `json:"OS-EXT-STS:task_state"`
	VMState   json.RawMessage `json:"OS-EXT-STS:vm_state"`
	Host      json.RawMessage `json:"OS-EXT-SRV-ATTR:host"`
	Node      json.RawMessage `json:"OS-EXT-SRV-ATTR:hypervisor_hostname"`
	Fault     struct {
		Message json.RawMessage `json:"message"`
	} `json:"fault"`
	Created json.RawMessage `json:"created"`
}

// decodeServer reads a server. Without a readable id it is none.
func decodeServer(body []byte) (*Server, bool) {
	var raw rawServer
	if json.Unmarshal(body, &raw) != nil {
		return nil, false
	}
	s := &Server{
		ID: text(raw.ID), Name: text(raw.Name), Project: text(raw.Tenant), Status: text(raw.Status), TaskState: text(raw.TaskState),
		VMState: text(raw.VMState), Host: text(raw.Host), Node: text(raw.Node), Fault: text(raw.Fault.Message),
	}
	s.NodeKnown = len(raw.Node) > 0 && (s.Node != "" || bytes.Equal(raw.Node, []byte("null")) || bytes.Equal(raw.Node, []byte(`""`)))
	if at, err := sources.ParseTime(text(raw.Created)); err == nil {
		s.CreatedAt = at
	}
	return s, validRef(s.ID)
}

// text reads a text, "" for anything else.
func text(raw json.RawMessage) (s string) {
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return sources.CleanText(strings.TrimSpace(s), 1024)
}

// validRef tells a uuid from what would lead elsewhere in a URL.
func validRef(ref string) bool {
	return ref != "" && len(ref) <= 64 && !strings.ContainsFunc(ref, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-')
	})
}
