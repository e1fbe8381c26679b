package ironic

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// write carries out one write on a node that nobody holds.
func (f *fake) write(w http.ResponseWriter, r *http.Request, n *fakeNode, what string) {
	var body any
	_ = json.NewDecoder(r.Body).Decode(&body)
	object, _ := body.(map[string]any)
	status := http.StatusAccepted
	switch {
	case what == "" && r.Method == http.MethodDelete:
		if n.doc["instance_uuid"] != nil && n.doc["maintenance"] != true {
			f.refuse(w, 409, "Node %s is associated with instance %s.", n.doc["uuid"], n.doc["instance_uuid"])
			return
		}
		if !slices.Contains([]any{"enroll", "manageable", "adopt failed"}, n.doc["provision_state"]) && n.doc["maintenance"] != true {
			f.refuse(w, 409, "Can not delete node \"%s\" while it is in provision state \"%s\".", n.doc["uuid"], n.doc["provision_state"])
			return
		}
		f.nodes = slices.DeleteFunc(f.nodes, func(other *fakeNode) bool { return other == n })
		status = http.StatusNoContent
	case what == "":
		f.patch(n.doc, body)
		status = http.StatusOK
	case what == "maintenance" && r.Method == http.MethodPut:
		n.doc["maintenance"], n.doc["maintenance_reason"] = true, object["reason"]
	case what == "maintenance":
		n.doc["maintenance"], n.doc["maintenance_reason"], n.doc["fault"] = false, nil, nil
	case what == "states/provision":
		if refusal := f.verb(n, object); refusal != "" {
			f.refuse(w, 400, "%s", refusal)
			return
		}
	case what == "states/power":
		f.power(n, object["target"].(string))
	case strings.HasPrefix(what, "traits"):
		if !f.trait(n.doc, r.Method, strings.TrimPrefix(strings.TrimPrefix(what, "traits"), "/"), object) {
			f.refuse(w, 404, "Node %s doesn't have a trait", n.doc["uuid"])
			return
		}
		status = http.StatusNoContent
	default:
		f.refuse(w, 404, "Not Found")
		return
	}
	if f.after != nil {
		f.after(w, r)
	}
	var answer any
	if status == http.StatusOK {
		answer = n.doc
	}
	f.answer(w, status, answer)
}

func (f *fake) patch(doc map[string]any, body any) {
	for _, op := range body.([]any) {
		op := op.(map[string]any)
		at := doc
		parts := strings.Split(strings.TrimPrefix(op["path"].(string), "/"), "/")
		for _, part := range parts[:len(parts)-1] {
			at = at[part].(map[string]any)
		}
		last := parts[len(parts)-1]
		switch {
		case op["op"] != "remove":
			at[last] = op["value"]
		case len(parts) == 1:
			at[last] = nil
		default:
			delete(at, last)
		}
	}
}

func (f *fake) trait(doc map[string]any, method, name string, body map[string]any) bool {
	have := doc["traits"].([]any)
	switch {
	case name == "":
		doc["traits"] = body["traits"]
	case method == http.MethodPut:
		if !slices.Contains(have, any(name)) {
			doc["traits"] = append(slices.Clone(have), name)
		}
	case !slices.Contains(have, any(name)):
		return false
	default:
		doc["traits"] = slices.DeleteFunc(slices.Clone(have), func(v any) bool { return v == name })
	}
	return true
}

// moves lists, for verb and state, the states that a node goes through.
var moves = map[string][]string{
	"manage enroll": {"verifying", "manageable"}, "manage available": {"manageable"}, "manage clean failed": {"manageable"},
	"provide manageable": {"cleaning", "available"}, "active available": {"deploying", "active"},
	"deleted active": {"deleting", "cleaning", "available"}, "clean manageable": {"cleaning", "cleaning", "manageable"},
	"inspect manageable": {"inspecting", "manageable"}, "abort clean wait": {"clean failed"}, "rebuild active": {"deploying", "active"},
}

func (f *fake) verb(n *fakeNode, body map[string]any) (refusal string) {
	verb, state := body["target"].(string), n.doc["provision_state"].(string)
	states, ok := moves[verb+" "+state]
	if !ok {
		return `The requested action "` + verb + `" can not be performed on node "` + n.doc["uuid"].(string) + `" while it is in state "` + state + `".`
	}
	if verb == "active" && n.doc["maintenance"] == true {
		return "The deploy operation can't be performed on node " + n.doc["uuid"].(string) + " because it's in maintenance mode."
	}
	steps, _ := json.Marshal(body["clean_steps"])
	if strings.Contains(string(steps), "bogus") {
		states = []string{"cleaning", "clean failed"}
	}
	goal := states[len(states)-1]
	n.doc["provision_state"], n.doc["target_provision_state"], n.doc["reservation"] = states[0], goal, "fake-conductor"
	stamp(n.doc)
	if verb == "manage" {
		n.doc["last_error"] = nil
	}
	if drive := body["configdrive"]; drive != nil {
		n.doc["instance_info"].(map[string]any)["configdrive"] = drive
	}
	for _, next := range states[1:] {
		n.todo = append(n.todo, func(doc map[string]any) { doc["provision_state"] = next; stamp(doc) })
	}
	n.todo = append(n.todo, func(doc map[string]any) {
		doc["target_provision_state"] = nil
		switch {
		case verb == "inspect":
			doc["inspection_finished_at"] = doc["provision_updated_at"]
		case verb == "deleted":
			doc["instance_uuid"], doc["instance_info"] = nil, map[string]any{}
		case goal == "clean failed":
			doc["maintenance"], doc["fault"] = true, "clean failure"
			doc["last_error"] = "the clean step failed"
			if doc["maintenance_reason"] == nil {
				doc["maintenance_reason"] = doc["last_error"]
			}
		}
	})
	return ""
}

func (f *fake) power(n *fakeNode, target string) {
	goal := map[string]string{"power on": "power on", "power off": "power off", "soft power off": "power off", "rebooting": "power on", "soft rebooting": "power on"}[target]
	n.doc["target_power_state"], n.doc["reservation"] = goal, "fake-conductor"
	n.todo = append(n.todo, func(map[string]any) {}, func(doc map[string]any) {
		doc["target_power_state"] = nil
		if doc["broken"] == true {
			doc["last_error"] = "the BMC did not answer"
			return
		}
		doc["power_state"] = goal
	})
}
