package redfish

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/simulator/world"
)

const (
	updatePath   = root + "/UpdateService"
	firmwarePath = updatePath + "/FirmwareInventory"
	tasksPath    = root + "/TaskService/Tasks"
	monitorsPath = root + "/TaskService/TaskMonitors"
	pushPath     = updatePath + "/update-multipart"
	// imageLimit bounds a pushed image.
	imageLimit = 256 << 20
)

func addUpdates(md *model) {
	md.resources[updatePath] = &resource{render: func(v *view) object {
		o := object{
			"@odata.id": updatePath, "@odata.type": "#UpdateService.v1_14_0.UpdateService", "Id": "UpdateService", "Name": "Update Service",
			"ServiceEnabled": true, "Status": object{"State": "Enabled", "Health": "OK"}, "FirmwareInventory": link(firmwarePath),
			"MultipartHttpPushUri": pushPath, "MaxImageSizeBytes": imageLimit,
		}
		if !v.m.BMC.PushOnly {
			o["Actions"] = object{"#UpdateService.SimpleUpdate": object{
				"target": updatePath + "/Actions/UpdateService.SimpleUpdate", "TransferProtocol@Redfish.AllowableValues": []any{"HTTP", "HTTPS"},
			}}
		}
		return o
	}}
	md.resources[firmwarePath] = &resource{render: func(v *view) object {
		var paths []string
		for _, id := range slices.Sorted(maps.Keys(v.m.Firmware)) {
			paths = append(paths, firmwarePath+"/"+id)
		}
		return collection(firmwarePath, "SoftwareInventory", "Software Inventory Collection", paths...)
	}}
	md.resources[root+"/TaskService"] = &resource{render: func(v *view) object {
		return object{
			"@odata.id": root + "/TaskService", "@odata.type": "#TaskService.v1_1_4.TaskService", "Id": "TaskService", "Name": "Task Service",
			"ServiceEnabled": true, "CompletedTaskOverWritePolicy": "Oldest", "DateTime": instant(v.now), "Tasks": link(tasksPath),
		}
	}}
	md.resources[tasksPath] = &resource{render: func(v *view) object {
		var paths []string
		for i := range v.m.Tasks {
			paths = append(paths, tasksPath+"/"+v.m.Tasks[i].ID)
		}
		return collection(tasksPath, "Task", "Task Collection", paths...)
	}}
	md.actions[updatePath+"/Actions/UpdateService.SimpleUpdate"] = &action{owner: updatePath, name: "UpdateService.SimpleUpdate", run: (*view).simpleUpdate}
	md.actions[pushPath] = &action{owner: updatePath, name: "MultipartHttpPushUri", raw: (*view).push}
}

// firmwareResource is a component by its id.
func (v *view) firmwareResource(id string) *resource {
	if _, ok := v.m.Firmware[id]; !ok {
		return nil
	}
	return &resource{render: func(v *view) object {
		return object{
			"@odata.id": firmwarePath + "/" + id, "@odata.type": "#SoftwareInventory.v1_10_0.SoftwareInventory", "Id": id, "Name": "Software Inventory",
			"Manufacturer": v.m.Vendor, "Version": v.m.Firmware[id], "Updateable": true, "Status": object{"State": "Enabled", "Health": "OK"},
		}
	}}
}

// taskResource is a task, or its monitor.
func (v *view) taskResource(id string, monitor bool) *resource {
	i := slices.IndexFunc(v.m.Tasks, func(t world.Task) bool { return t.ID == id })
	if i < 0 || v.lenient() {
		return nil
	}
	t := v.m.Tasks[i]
	return &resource{render: func(v *view) object { return v.task(&t) }, pending: monitor && t.State == world.TaskRunning}
}

// task renders a task: how far it is follows from the time.
func (v *view) task(t *world.Task) object {
	o := object{
		"@odata.id": tasksPath + "/" + t.ID, "@odata.type": "#Task.v1_7_4.Task", "Id": t.ID, "Name": "Task " + t.ID,
		"TaskState": t.State, "TaskStatus": t.Status, "StartTime": instant(t.Start), "TaskMonitor": v.location(monitorsPath + "/" + t.ID),
		"Payload": object{"HttpOperation": "POST", "TargetUri": updatePath}, "Messages": []any{},
	}
	progress := 100
	if t.State == world.TaskRunning {
		progress = min(99, int(100*v.now.Sub(t.Start)/world.UpdateTime))
	} else {
		o["EndTime"] = instant(t.End)
	}
	o["PercentComplete"] = progress
	id, severity, text := "TaskEvent.1.0.TaskProgressChanged", "OK", "The update of "+t.Component+" goes on."
	switch t.State {
	case world.TaskCompleted:
		id, text = "Update.1.0.UpdateSuccessful", "The update of "+t.Component+" to "+t.Version+" is done."
	case world.TaskException:
		id, severity, text = "Update.1.0.VerificationFailed", "Critical", "The image for "+t.Component+" did not verify."
	}
	o["Messages"] = []any{object{
		"@odata.type": "#Message.v1_1_2.Message", "MessageId": id, "Message": text, "MessageArgs": []any{t.Component}, "MessageSeverity": severity, "Resolution": "None.",
	}}
	return o
}

// simpleUpdate has an image fetched and written. The version that an image
// holds is told by its name.
func (v *view) simpleUpdate(body object) *answer {
	if v.m.BMC.PushOnly {
		return refuse("ActionNotSupported", "UpdateService.SimpleUpdate")
	}
	uri, ok := body["ImageURI"].(string)
	if !ok {
		return refuse("ActionParameterMissing", "UpdateService.SimpleUpdate", "ImageURI")
	}
	targets, _ := body["Targets"].([]any)
	return v.update(uri, targets)
}

// versionOf reads the version of an image from its name, which is
// COMPONENT@VERSION or COMPONENT_VERSION with an ending.
func versionOf(image string) string {
	name := path.Base(image)
	for _, end := range []string{".fwpkg", ".bin", ".img", ".tar", ".rom"} {
		name = strings.TrimSuffix(name, end)
	}
	at := strings.LastIndexByte(name, '@')
	if at < 0 {
		at = strings.LastIndexByte(name, '_')
	}
	if version := name[at+1:]; strings.ContainsAny(version, "0123456789") {
		return version
	}
	return ""
}

// update starts the update of the first target, the BMC's own firmware by
// default.
func (v *view) update(image string, targets []any) *answer {
	component := bmcComponent(v.m.Class)
	if named, _, _ := strings.Cut(path.Base(image), "@"); v.m.Firmware[named] != "" { // an image knows what it is for
		component = named
	}
	if len(targets) > 0 {
		target, _ := targets[0].(string)
		component = path.Base(target)
	}
	version := versionOf(image)
	if version == "" {
		return refuse("ActionParameterValueFormatError", image, "ImageURI", "UpdateService.SimpleUpdate")
	}
	var id string
	err := v.do("update "+component, func(s *world.State, m *world.Machine) error {
		if _, ok := m.Firmware[component]; !ok {
			return &refusal{refuse("ActionParameterValueNotInList", component, "Targets", "UpdateService.SimpleUpdate")}
		}
		if m.Update != nil {
			return &refusal{refuse("ResourceInUse")}
		}
		id = s.StartUpdate(m, component, version, image)
		return nil
	})
	if err != nil {
		return failed(err)
	}
	if v.lenient() {
		return &answer{status: http.StatusNoContent}
	}
	i := slices.IndexFunc(v.m.Tasks, func(t world.Task) bool { return t.ID == id })
	if i < 0 {
		return refuse("InternalError")
	}
	return tell(http.StatusAccepted, v.task(&v.m.Tasks[i])).with("Location", v.location(monitorsPath+"/"+id)).with("Retry-After", "2")
}

// push takes an image in the body: UpdateParameters, then UpdateFile.
func (v *view) push() *answer {
	media, params, err := mime.ParseMediaType(v.r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" {
		return refuse("UnrecognizedRequestBody")
	}
	reader := multipart.NewReader(io.LimitReader(v.r.Body, imageLimit), params["boundary"])
	var targets []any
	image, described := "", false
	for range 8 { // parts
		part, err := reader.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return refuse("MalformedJSON")
		}
		switch part.FormName() {
		case "UpdateParameters":
			var o struct{ Targets []any }
			if err := json.NewDecoder(io.LimitReader(part, bodyLimit)).Decode(&o); err != nil {
				return refuse("MalformedJSON")
			}
			targets, described = o.Targets, true
		case "UpdateFile":
			image = part.FileName()
			if _, err := io.Copy(io.Discard, part); err != nil {
				return refuse("MalformedJSON")
			}
		}
	}
	switch {
	case !described:
		return refuse("ActionParameterMissing", "MultipartHttpPushUri", "UpdateParameters")
	case image == "":
		return refuse("ActionParameterMissing", "MultipartHttpPushUri", "UpdateFile")
	}
	return v.update(image, targets)
}
