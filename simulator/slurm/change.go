package slurm

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

// The world's refusals in SLURM's words.
var (
	noNode    = fault{number: 2018, text: "Invalid node name specified"}
	noAdmin   = fault{number: 2010, text: "Invalid user id"}
	badState  = fault{number: 2028, text: "Invalid node state specified"}
	nodeTaken = fault{number: 2168, text: "Node already exists in the node table"}
	badFlag   = fault{number: 9207, text: "Data parser unable to parse invalid flag"}
)

// settable are the words that an update's state may hold, whether or not a node
// can be sent there.
var settable = strings.Fields(`INVALID UNKNOWN DOWN IDLE ALLOCATED ERROR MIXED FUTURE RESERVED UNDRAIN CLOUD RESUME DRAIN COMPLETING
	NOT_RESPONDING POWERED_DOWN FAIL POWERING_UP MAINTENANCE REBOOT_REQUESTED REBOOT_CANCELED POWERING_DOWN DYNAMIC_FUTURE REBOOT_ISSUED
	PLANNED INVALID_REG POWER_DOWN POWER_UP POWER_DRAIN DYNAMIC_NORM`)

// updatable are the members of an update that are known; what else comes is
// warned of.
var updatable = []string{
	"comment", "cpu_bind", "extra", "features", "features_act", "gres", "address", "hostname", "name", "state", "reason", "reason_uid",
	"resume_after", "weight", "cert_token", "topology_str",
}

// refuse answers a write that slurmctld turned down.
func (x *exchange) refuse(about, source string, d *document, e fault) {
	e.about, e.source = about, source
	d.status = x.v.refusal
	d.fail(e)
	x.answer(d)
}

func (x *exchange) updateNode(name string) {
	o := x.object()
	if o == nil {
		return
	}
	x.change(name, "Failure to update node "+name, o, &document{})
}

// updateNodes changes the nodes that the body names.
func (x *exchange) updateNodes(string) {
	if x.v.old() {
		plain(x.w, http.StatusMethodNotAllowed, "Requested REST method is not defined at URL. Please view /openapi/v3 for API reference.")
		return
	}
	o := x.object()
	if o == nil {
		return
	}
	d := &document{}
	names, text := texts(o["name"])
	if text {
		d.warn(fmt.Sprintf("Expected OpenAPI type=array (Slurm type=list) but got OpenAPI type=string (Slurm type=string): %s", o["name"]), "#/name/")
	}
	x.change(strings.Join(names, ","), "Failure to update nodes", o, d)
}

// texts reads a list of texts, or one text in its place.
func texts(raw json.RawMessage) (list []string, single bool) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, true
	}
	_ = json.Unmarshal(raw, &list) // what is no list is none
	return list, false
}

// change applies an update to every node of a hostlist. Where one state is
// refused, what else was asked for may have been done: SLURM reads an update in
// parts.
func (x *exchange) change(list, about string, o map[string]json.RawMessage, d *document) {
	const source = "_update_node"
	if !x.reach(about, source) {
		return
	}
	u, bogus := x.readUpdate(o, d)
	names, err := expand(list)
	switch {
	case u.State == nil && o["state"] != nil && !slices.Contains([]string{"null", "[]"}, string(o["state"])):
		d.status = http.StatusInternalServerError
		d.fail(fault{"Expected a List but found a " + typeOf(o["state"]), 9206, "Data parser expects flags to be a list", "#/state/"})
		x.answer(d)
		return
	case !x.from.admin():
		x.refuse(about, source, d, noAdmin)
		return
	case err != nil || len(names) == 0:
		x.refuse(about, source, d, noNode)
		return
	}
	refused := bogus
	if bogus {
		u.State = nil // the reason is taken all the same
	}
	err = x.world.Do(world.Effect{Face: "slurm", Site: x.site, Op: opOf(o), Subject: strings.Join(names, ","), Detail: u.Reason}, func(s *world.State) error {
		for _, name := range names {
			one := u
			if n := s.SlurmNodes.Get(world.Key(x.site, name)); n != nil && x.v.generation == 45 && len(u.State) == 0 && !bogus && n.Base == world.SlurmIdle && len(n.Flags) == 0 {
				one.Reason = "" // 26.05 wipes a reason that nothing is the matter for
			}
			err := s.UpdateSlurmNode(x.site, name, one)
			if errors.Is(err, world.ErrSlurmTransition) {
				refused = true
				if x.v.generation == 42 {
					continue
				}
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, world.ErrSlurmNode):
		x.refuse(about, source, d, noNode)
	case bogus && err == nil: // an error of slurmrestd itself, in every release
		e := x.v.transition
		e.about, e.source = about, source
		d.status = http.StatusInternalServerError
		d.fail(e)
		x.answer(d)
	case errors.Is(err, world.ErrSlurmTransition), err == nil && refused:
		x.refuse(about, source, d, x.v.transition)
	case err != nil:
		plain(x.w, http.StatusInternalServerError, err.Error())
	default:
		x.answer(d)
	}
}

// opOf names an update by the state that it asks for.
func opOf(o map[string]json.RawMessage) string {
	if list, _ := texts(o["state"]); len(list) > 0 {
		return "update " + strings.Join(list, "+")
	}
	return "update"
}

// readUpdate reads what is asked for; bogus: a state that is none.
func (x *exchange) readUpdate(o map[string]json.RawMessage, d *document) (u world.SlurmUpdate, bogus bool) {
	u.User = x.from.user
	u.State, _ = texts(o["state"])
	for i, token := range u.State {
		token = strings.ToUpper(token)
		u.State[i] = token
		if !slices.Contains(settable, token) {
			e := badFlag
			e.about, e.source = fmt.Sprintf("Unknown flag %q", token), fmt.Sprintf("#/state[%d]/", i)
			d.fail(e)
			bogus = true
		}
	}
	if reason := x.text(d, o, "reason"); reason != nil {
		u.Reason = *reason
	}
	u.Comment, u.Extra = x.text(d, o, "comment"), x.text(d, o, "extra")
	u.Features, _ = texts(o["features"])
	for _, name := range sortedKeys(o) {
		if !slices.Contains(updatable, name) {
			d.warn(fmt.Sprintf("Ignoring unknown field %q of type %s in DATA_PARSER_UPDATE_NODE_MSG", name, typeOf(o[name])), "#/"+name+"/")
		}
	}
	return u, bogus
}

// text reads a text, or what can be taken for one; nil without it.
func (x *exchange) text(d *document, o map[string]json.RawMessage, name string) *string {
	raw := o[name]
	var text *string
	if raw == nil || json.Unmarshal(raw, &text) == nil {
		return text
	}
	kind := typeOf(raw)
	api := map[string]string{"64 bit integer": "integer", "floating point number": "number", "dictionary": "object", "list": "array"}[kind]
	d.warn(fmt.Sprintf("Expected OpenAPI type=string (Slurm type=string) but got OpenAPI type=%s (Slurm type=%s): %s", pick(api == "", kind, api), kind, raw), "#/"+name+"/")
	taken := string(raw)
	return &taken
}

func sortedKeys(o map[string]json.RawMessage) []string {
	var keys []string
	for key := range o {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// typeOf names a JSON value's type as SLURM does.
func typeOf(raw json.RawMessage) string {
	switch strings.TrimSpace(string(raw))[0] {
	case '"':
		return "string"
	case '{':
		return "dictionary"
	case '[':
		return "list"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if strings.ContainsAny(string(raw), ".eE") {
		return "floating point number"
	}
	return "64 bit integer"
}

// deleteNode takes a dynamic node away; static ones stay.
func (x *exchange) deleteNode(name string) {
	about := pick(x.v.generation == 42, "Failure to update node ", "Failure to delete node ") + name
	const source = "op_handler_node"
	if !x.reach(about, source) {
		return
	}
	if !x.from.admin() {
		x.refuse(about, source, &document{}, noAdmin)
		return
	}
	err := x.world.Do(world.Effect{Face: "slurm", Site: x.site, Op: "delete node", Subject: name}, func(s *world.State) error {
		return s.DeleteSlurmNode(x.site, name)
	})
	switch {
	case errors.Is(err, world.ErrSlurmNode):
		x.refuse(about, source, &document{}, noNode)
	case errors.Is(err, world.ErrSlurmTransition):
		x.refuse(about, source, &document{}, badState)
	case err != nil:
		plain(x.w, http.StatusInternalServerError, err.Error())
	default:
		x.answer(&document{})
	}
}

var nodeConf = regexp.MustCompile(`(?i)(?:^|\s)(nodename|feature|features)=(\S+)`)

var errTaken = errors.New("the name is taken")

// createNode makes dynamic nodes of a line as in slurm.conf.
func (x *exchange) createNode(string) {
	const about, source = "Failure to create node", "_create_node"
	o := x.object()
	if o == nil || !x.reach(about, source) {
		return
	}
	conf, _ := texts(o["node_conf"])
	var names, features []string
	for _, match := range nodeConf.FindAllStringSubmatch(strings.Join(conf, " "), -1) {
		if strings.EqualFold(match[1], "nodename") {
			names, _ = expand(match[2])
		} else {
			features = strings.Split(match[2], ",")
		}
	}
	switch {
	case !x.from.admin():
		x.refuse(about, source, &document{}, noAdmin)
		return
	case len(names) == 0:
		x.refuse(about, source, &document{}, noNode)
		return
	}
	err := x.world.Do(world.Effect{Face: "slurm", Site: x.site, Op: "create node", Subject: strings.Join(names, ",")}, func(s *world.State) error {
		for _, name := range names {
			if !s.CreateSlurmNode(&world.SlurmNode{Site: x.site, Name: name, Features: features, Partitions: world.SlurmPartitions()}) {
				return errTaken
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errTaken):
		x.refuse(about, source, &document{}, nodeTaken)
	case err != nil:
		plain(x.w, http.StatusInternalServerError, err.Error())
	default:
		x.answer(&document{})
	}
}
