package redfish

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
)

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": "Base.1.18." + message, "message": message,
		"@Message.ExtendedInfo": []any{map[string]any{"MessageId": "Base.1.18." + message, "Message": "It is " + message + "."}}}})
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (m *machine) serve(w http.ResponseWriter, req *http.Request, path string, body []byte) {
	const sessions = "/redfish/v1/SessionService/Sessions"
	if req.Method == http.MethodPost && path == sessions && m.tree["/redfish/v1"].(map[string]any)["Links"] != nil {
		m.logIn(w, sessions, body)
		return
	}
	if path != "/redfish/v1" && !m.authorised(req) {
		refuse(w, 401, "NoValidSession")
		return
	}
	switch req.Method {
	case http.MethodGet:
		m.read(w, req, path)
	case http.MethodDelete:
		if _, mine := m.sessions[path]; !mine {
			refuse(w, 404, "ResourceMissingAtURI")
			return
		}
		delete(m.sessions, path)
		w.WriteHeader(204)
	case http.MethodPatch:
		m.patch(w, req, path, body)
	case http.MethodPost:
		m.act(w, req, path, body)
	default:
		refuse(w, 405, "OperationNotAllowed")
	}
}

func (m *machine) authorised(req *http.Request) bool {
	if token := req.Header.Get("X-Auth-Token"); token != "" {
		m.auths["token"]++
		return slices.Contains(slices.Collect(maps.Values(m.sessions)), token)
	}
	user, password, ok := req.BasicAuth()
	if !ok {
		m.auths["none"]++
		return false
	}
	m.auths["basic"]++
	return user == "admin" && password == m.password
}

func (m *machine) logIn(w http.ResponseWriter, sessions string, body []byte) {
	sent := parse(body)
	if sent.text("UserName") != "admin" || sent.text("Password") != m.password {
		refuse(w, 401, "InsufficientPrivilege")
		return
	}
	if len(m.sessions) >= m.slots {
		refuse(w, 503, "SessionLimitExceeded")
		return
	}
	path := sessions + "/" + strconv.Itoa(len(m.log))
	m.sessions[path] = "token" + path
	w.Header().Set("X-Auth-Token", m.sessions[path])
	w.Header().Set("Location", path)
	reply(w, 201, map[string]any{"@odata.id": path, "Id": path, "Name": "Session"})
}

func (m *machine) read(w http.ResponseWriter, req *http.Request, path string) {
	if answers, task := m.tasks[path]; task && len(answers) > 0 {
		if len(answers) > 1 {
			m.tasks[path] = answers[1:]
		}
		reply(w, 200, answers[0])
		return
	}
	found, there := m.tree[path]
	if !there {
		refuse(w, 404, "ResourceMissingAtURI")
		return
	}
	if expand := req.URL.Query().Get("$expand"); expand != "" {
		if m.noExpand {
			refuse(w, 501, "QueryNotSupported")
			return
		}
		found = m.expanded(found)
	}
	w.Header().Set("ETag", m.etag(path))
	reply(w, 200, found)
}

func (m *machine) expanded(found any) any {
	body, _ := found.(map[string]any)
	members, _ := body["Members"].([]any)
	full := maps.Clone(body)
	all := make([]any, len(members))
	for i, one := range members {
		all[i] = one
		if link, ok := one.(map[string]any); ok {
			if target, ok := m.tree[clean(fmt.Sprint(link["@odata.id"]))].(map[string]any); ok {
				whole := maps.Clone(target)
				whole["@odata.id"] = link["@odata.id"]
				all[i] = whole
			}
		}
	}
	full["Members"] = all
	return full
}

func (m *machine) patch(w http.ResponseWriter, req *http.Request, path string, body []byte) {
	now, there := m.tree[path].(map[string]any)
	if !there {
		refuse(w, 404, "ResourceMissingAtURI")
		return
	}
	switch match := req.Header.Get("If-Match"); {
	case match == "":
		refuse(w, 428, "PreconditionRequired")
		return
	case match != m.etag(path):
		refuse(w, 412, "PreconditionFailed")
		return
	}
	var sent map[string]any
	if json.Unmarshal(body, &sent) != nil {
		refuse(w, 400, "MalformedJSON")
		return
	}
	for field, value := range sent {
		object, _ := now[field].(map[string]any)
		change, ok := value.(map[string]any)
		if object == nil || !ok {
			refuse(w, 400, "PropertyUnknown")
			return
		}
		merged := maps.Clone(object)
		for name, v := range change {
			if _, known := object[name]; !known || v == nil {
				refuse(w, 400, "PropertyUnknown")
				return
			}
			merged[name] = v
		}
		m.change(path, field, merged)
	}
	w.WriteHeader(204)
}

func (m *machine) act(w http.ResponseWriter, req *http.Request, path string, body []byte) {
	for owner, resource := range m.tree {
		object, _ := resource.(map[string]any)
		if push, _ := object["MultipartHttpPushUri"].(string); push == path {
			w.Header().Set("Location", "/redfish/v1/TaskService/TaskMonitors/7")
			w.WriteHeader(202)
			return
		}
		actions, _ := object["Actions"].(map[string]any)
		for name, value := range actions {
			action, _ := value.(map[string]any)
			if action["target"] != path {
				continue
			}
			sent := parse(body)
			kind := sent.text("ResetType")
			if name == "#UpdateService.SimpleUpdate" {
				w.Header().Set("Location", "/redfish/v1/TaskService/TaskMonitors/7")
				reply(w, 202, map[string]any{"@odata.id": "/redfish/v1/TaskService/Tasks/7", "Id": "7", "TaskState": "Running"})
				return
			}
			if !slices.Contains(m.allowed(action), kind) {
				refuse(w, 400, "ActionParameterNotSupported")
				return
			}
			m.reset(owner, kind)
			w.WriteHeader(204)
			return
		}
	}
	refuse(w, 404, "ResourceMissingAtURI")
}

func (m *machine) allowed(action map[string]any) (found []string) {
	values, _ := action["ResetType@Redfish.AllowableValues"].([]any)
	if one, ok := action["ResetType@Redfish.AllowableValues"].(string); ok {
		values = []any{one}
	}
	if info, _ := action["@Redfish.ActionInfo"].(string); info != "" {
		body, _ := m.tree[info].(map[string]any)
		parameters, _ := body["Parameters"].([]any)
		for _, p := range parameters {
			more, _ := p.(map[string]any)["AllowableValues"].([]any)
			values = append(values, more...)
		}
	}
	for _, v := range values {
		found = append(found, fmt.Sprint(v))
	}
	return found
}

func (m *machine) reset(owner, kind string) {
	if m.onReset != nil {
		m.onReset(m, kind)
		return
	}
	switch kind {
	case "On", "ForceOn":
		m.change(owner, "PowerState", "On")
	case "ForceOff", "GracefulShutdown":
		m.change(owner, "PowerState", "Off")
	default:
		m.change(owner, "LastResetTime", "2026-11-30T12:00:0"+strconv.Itoa(len(m.log)%10)+"Z")
	}
}
