package nova

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// NewServer is a server that a node of Ironic shall have.
type NewServer struct {
	Name    string // exactly this; it is how the server is found after a lost answer
	Project string // id; must be that of the client's user
	Node    string // uuid of the Ironic node
	Image   string // id
	Flavor  string // id
	Network string // id, or "none" or "auto" where Nova has 2.37
	Key     string // name of a key pair of the client's user; "" none
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func (n *NewServer) check(op string) error {
	for what, value := range map[string]string{"name": n.Name, "project": n.Project, "image": n.Image, "flavor": n.Flavor, "network": n.Network} {
		if value == "" || len(value) > 255 || strings.TrimSpace(value) != value {
			return refused(sources.KindRefused, op, "the %s of a new server is wanting: %q", what, sources.CleanText(value, 64))
		}
	}
	if !uuidForm.MatchString(n.Node) {
		return refused(sources.KindRefused, op, "%q is no uuid of a node", sources.CleanText(n.Node, 64))
	}
	return nil
}

// The microversions that a creation speaks: from 2.74 on the node has a field of
// its own, from 2.37 on networks may be a word.
const (
	nodeSince = 74
	wordSince = 37
)

// body is the request in a microversion of 2.x.
//
// With hypervisor_hostname Nova asks its scheduler whether the node will do, and
// refuses one that is not free; the form zone::node of before goes past it.
// Both need what only an administrator's role has unless policy says otherwise.
func (n *NewServer) body(op string, minor int) (map[string]any, error) {
	server := map[string]any{"name": n.Name, "imageRef": n.Image, "flavorRef": n.Flavor}
	if n.Key != "" {
		server["key_name"] = n.Key
	}
	switch word := n.Network == "none" || n.Network == "auto"; {
	case !word:
		server["networks"] = []any{map[string]any{"uuid": n.Network}}
	case minor < wordSince:
		return nil, refused(sources.KindRefused, op, "this Nova speaks 2.%d, and networks %q needs 2.%d: name a network", minor, n.Network, wordSince)
	default:
		server["networks"] = n.Network
	}
	if minor >= nodeSince {
		server["hypervisor_hostname"] = n.Node
	} else {
		server["availability_zone"] = "nova::" + n.Node
	}
	return map[string]any{"server": server}, nil
}

// Create has Nova put a server on one node, and gives it as soon as Nova knows
// it; Await waits for the end. A server of this name in the project is the
// server: one that is being built or runs is given, and nothing is created. If
// there are several, or the one is on another node or at its end (Terminal), it
// is a conflict, and nothing is deleted.
func (c *Client) Create(ctx context.Context, n NewServer) (*Server, error) {
	const op = "create a server of Nova"
	if err := n.check(op); err != nil {
		return nil, err
	}
	if there, err := c.named(ctx, op, &n); err != nil || there != nil {
		return there, wrapped(op, err)
	}
	minor, err := c.newest(ctx, op)
	if err != nil {
		return nil, err
	}
	body, err := n.body(op, minor)
	if err != nil {
		return nil, err
	}
	answer, sent := c.api.Send(ctx, http.MethodPost, op, "2."+strconv.Itoa(minor), body, "servers")
	if sent != nil && sources.KindOf(sent) != sources.KindTransient {
		return nil, sent
	}
	return c.created(ctx, op, &n, answer, sent)
}

// newest gives the microversion to create in, as the minor of 2.x.
func (c *Client) newest(ctx context.Context, op string) (int, error) {
	body, err := c.api.Call(ctx, http.MethodGet, op, nil)
	switch {
	case sources.KindOf(err) == sources.KindRefused: // a catalog of old, whose endpoint has the project in it
		return 1, nil
	case err != nil:
		return 0, err
	}
	var answer struct {
		Version struct {
			Most string `json:"version"`
		} `json:"version"`
	}
	_ = json.Unmarshal(body, &answer) // what is no document names no version
	text, found := strings.CutPrefix(answer.Version.Most, "2.")
	most, err := strconv.Atoi(text)
	switch {
	case answer.Version.Most == "" && json.Valid(body): // the API of before microversions
		return 1, nil
	case !found || err != nil:
		return 0, foreign(op, body)
	case most >= nodeSince:
		return nodeSince, nil
	case most >= wordSince:
		return wordSince, nil
	}
	return 1, nil
}

// created finds the server after the request: by the answer's id, or by its name
// where the answer was lost.
func (c *Client) created(ctx context.Context, op string, n *NewServer, answer []byte, sent error) (*Server, error) {
	var made struct {
		Server struct {
			ID string `json:"id"`
		} `json:"server"`
	}
	_ = json.Unmarshal(answer, &made) // without an id it is looked for by name
	for waited := time.Duration(0); ; waited += c.config.Poll {
		var there *Server
		var err error
		if validRef(made.Server.ID) {
			there, err = c.Server(ctx, made.Server.ID)
		} else {
			there, err = c.named(ctx, op, n)
		}
		kind := sources.KindOf(err)
		switch {
		case err == nil && there != nil:
			return there, nil
		case err != nil && kind != sources.KindTransient && kind != sources.KindOpen && !errors.Is(err, sources.ErrGone):
			return nil, wrapped(op, err)
		case waited >= lostAnswer && sent != nil:
			return nil, sent
		case waited >= lostAnswer && err != nil:
			return nil, wrapped(op, err)
		case waited >= lostAnswer:
			return nil, refused(sources.KindTransient, op, "it was accepted, but Nova does not show the server")
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return nil, sources.Failure(op, err)
		}
	}
}

// named gives the project's server of the name, nil for none.
func (c *Client) named(ctx context.Context, op string, n *NewServer) (*Server, error) {
	found, err := c.Servers(ctx, Filter{Name: n.Name, Project: n.Project})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	s := &found[0]
	switch {
	case len(found) > 1:
		return nil, refused(sources.KindConflict, op, "there are %d servers named %s already, %s and %s among them: an operator must say which it is", len(found), n.Name, found[0].ID, found[1].ID)
	case s.Node != "" && !strings.EqualFold(s.Node, n.Node):
		return nil, refused(sources.KindConflict, op, "the server %s of this name is on the node %s", s.ID, s.Node)
	case s.Terminal():
		return nil, refused(sources.KindConflict, op, "the server %s of this name came to rest in %s%s", s.ID, s.Status, fault(s))
	}
	return s, nil
}

// Terminal tells a server that will not come to run by waiting: it failed, is on
// its way out, or was put away.
func (s *Server) Terminal() bool {
	switch s.Status {
	case "ERROR", "DELETED", "SOFT_DELETED", "SHELVED", "SHELVED_OFFLOADED":
		return true
	}
	return s.TaskState == "deleting" || s.TaskState == "soft-deleting"
}

// Await waits until a server runs. One that is at its end instead is a conflict
// that tells its fault; ErrGone: Nova has none.
func (c *Client) Await(ctx context.Context, uuid string, patience time.Duration) (*Server, error) {
	const op = "wait until a server of Nova runs"
	state := "it could not be read"
	for waited := time.Duration(0); ; waited += c.config.Poll {
		s, err := c.Server(ctx, uuid)
		kind := sources.KindOf(err)
		switch {
		case err != nil && kind != sources.KindTransient && kind != sources.KindOpen:
			return nil, wrapped(op, err)
		case err != nil:
		case s.Terminal():
			return s, refused(sources.KindConflict, op, "it came to rest in %s%s", s.Status, fault(s))
		case s.Status == "ACTIVE" && s.TaskState == "":
			return s, nil
		default:
			state = strings.TrimSpace("it is still " + s.Status + " " + s.TaskState)
		}
		if waited >= patience {
			return nil, refused(sources.KindTransient, op, "after %s: %s", patience, state)
		}
		if err := c.config.HTTP.Wait(ctx, c.config.Poll); err != nil {
			return nil, sources.Failure(op, err)
		}
	}
}
