package redfish

import (
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func TestWhatAnUpdateNamesToBeAskedFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	base := m.server.URL
	running := `{"@odata.id": "/redfish/v1/TaskService/Tasks/0", "Id": 0, "TaskState": "Running", "PercentComplete": "10"}`
	for name, c := range map[string]struct {
		status   int
		location string
		body     string
		want     Task
	}{
		"a location":              {202, "/redfish/v1/TaskService/TaskMonitors/7", "", Task{Mode: ByMonitor, URI: "/redfish/v1/TaskService/TaskMonitors/7"}},
		"an absolute one":         {202, base + "/redfish/v1/TaskService/TaskMonitors/7?x=1", running, Task{Mode: ByMonitor, URI: "/redfish/v1/TaskService/TaskMonitors/7?x=1"}},
		"one on another host":     {202, "https://bmc.example/redfish/v1/TaskService/TaskMonitors/7", running, Task{Mode: ByTask, URI: "/redfish/v1/TaskService/Tasks/0"}},
		"a task":                  {202, "", running, Task{Mode: ByTask, URI: "/redfish/v1/TaskService/Tasks/0"}},
		"a task and its monitor":  {202, "", strings.Replace(running, "{", `{"TaskMonitor": "/m/1",`, 1), Task{Mode: ByMonitor, URI: "/m/1"}},
		"a success and no more":   {200, "", `{"@Message.ExtendedInfo": [{"MessageId": "Base.1.8.1.Success"}]}`, Task{Mode: ByVersion}},
		"nothing":                 {204, "", "", Task{Mode: ByVersion}},
		"another host, no task":   {202, "https://bmc.example/x", "", Task{Mode: ByVersion}},
		"a page":                  {200, "", "<html/>", Task{Mode: ByVersion}},
		"nothing but a task path": {204, "/redfish/v1/TaskService/Tasks/42", "", Task{Mode: ByMonitor, URI: "/redfish/v1/TaskService/Tasks/42"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, object(t, tray))
			location := strings.Replace(c.location, base, m.server.URL, 1)
			m.rule(answerRule{method: "POST", path: "SimpleUpdate$", status: c.status, body: c.body, header: map[string]string{"Location": location, "Retry-After": "30"}})
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			got, err := client.Update(t.Context(), target, Image{URI: "https://images/x.fwpkg", Targets: []string{"/redfish/v1/UpdateService/FirmwareInventory/BMC"}})
			if err != nil || got.Mode != c.want.Mode || got.URI != c.want.URI || got.Started.IsZero() || got.Wait != 30*time.Second {
				t.Errorf("%+v %v", got, err)
			}
			lines, bodies := m.writes()
			if len(lines) != 1 || lines[0] != "POST "+simplePath || bodies[0] != `{"ImageURI":"https://images/x.fwpkg","Targets":["/redfish/v1/UpdateService/FirmwareInventory/BMC"]}` {
				t.Errorf("%v %v", lines, bodies)
			}
		})
	}
}

func TestTasksAreReadAsTheyCome(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]struct {
		stage   Stage
		percent int
	}{
		`{"Id": "1", "TaskState": "Running", "PercentComplete": "10"}`:                                    {StageRunning, 10},
		`{"Id": "1", "TaskState": "Running", "PercentComplete": 33.3}`:                                    {StageRunning, 33},
		`{"Id": "1", "TaskState": "Completed", "Links": {"CreatedResources": [{"@odata.id": "/x"}]}}`:     {StageSucceeded, -1},
		`{"Id": 1, "TaskState": "Running"}`:                                                               {StageRunning, -1},
		`{"Id": "1", "TaskState": "Running", "Messages": [{"MessageId": "a", "MessageArgs": [1, null]}]}`: {StageRunning, -1},
		`{"Id": "1", "TaskState": "Exception", "Messages": null, "TaskStatus": null}`:                     {StageFailed, -1},
		`{"Id": "1", "TaskState": "Running", "PercentComplete": null}`:                                    {StageRunning, -1},
		`{"Id": "1", "TaskState": "Running", "Payload": {"JsonBody": {"x": 1}}}`:                          {StageRunning, -1},
		`{"TaskState": "Completed", "PercentComplete": 100, "TaskStatus": "Critical", "Messages": [{"MessageId": "IDRAC.2.8.JCP052", "Message": "no progress in the allotted time"}]}`: {StageFailed, 100},
		`{"TaskState": "Completed", "TaskStatus": "OK"}`:                {StageSucceeded, -1},
		`{"TaskState": "Completed", "TaskStatus": "Warning"}`:           {StageFailed, -1},
		`{"TaskState": "New"}`:                                          {StageQueued, -1},
		`{"JobState": "New", "Message": "Lifecycle Controller in use"}`: {StageQueued, -1},
		`{"JobState": "Scheduled"}`:                                     {StageQueued, -1},
		`{"TaskState": "Cancelled"}`:                                    {StageFailed, -1},
		`{"TaskState": "Killed", "PercentComplete": 1e300}`:             {StageFailed, -1},
	} {
		p := Progress{Percent: -1}
		if p.read(parse([]byte(body))); p.Stage != want.stage || p.Percent != want.percent {
			t.Errorf("%s is %+v", body, p)
		}
	}
}

func TestAnUpdateIsJudgedByTheVersionsAndNeverSentAgain(t *testing.T) {
	t.Parallel()
	const monitor = "/redfish/v1/TaskService/TaskMonitors/7"
	run := map[string]any{"TaskState": "Running", "PercentComplete": 40}
	done := map[string]any{"TaskState": "Completed", "TaskStatus": "OK"}
	for name, c := range map[string]struct {
		task    []any
		rules   []answerRule
		version string
		want    error
		text    string
	}{
		"done":                         {[]any{run, done}, nil, "7.10.30", nil, ""},
		"done, and the old version":    {[]any{run, done}, nil, "7.0", ErrVersionMismatch, `BMC is "7.0" and not "7.10.30"`},
		"completed critical":           {[]any{run, map[string]any{"TaskState": "Completed", "TaskStatus": "Critical", "Messages": []any{map[string]any{"Message": "no progress"}}}}, nil, "7.10.30", ErrUpdateFailed, "no progress"},
		"gone after the BMC's restart": {[]any{run}, []answerRule{{path: monitor, skip: 1, times: 3, drop: "before"}, {path: monitor, skip: 1, status: 404}}, "7.10.30", nil, ""},
		"gone, and the old version":    {[]any{run}, []answerRule{{path: monitor, status: 404}}, "7.0", ErrVersionMismatch, ""},
		"never answers again":          {[]any{run}, []answerRule{{path: monitor, skip: 1, drop: "before"}}, "7.10.30", nil, ""},
		"ends with the monitor's 204":  {[]any{run}, []answerRule{{path: monitor, skip: 1, status: 204}}, "7.10.30", nil, ""},
		"ends with the monitor's 400":  {[]any{run}, []answerRule{{path: monitor, skip: 1, status: 400, body: `{"error": {"message": "bad image"}}`}}, "7.10.30", ErrUpdateFailed, "bad image"},
		"stays queued":                 {[]any{map[string]any{"TaskState": "New"}}, nil, "7.0", nil, "still New"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.tasks[monitor] = c.task
			for _, r := range c.rules {
				m.rule(r)
			}
			m.set("/redfish/v1/UpdateService/FirmwareInventory/BMC", "Version", c.version)
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			task, err := client.Update(t.Context(), target, Image{URI: "https://images/x.fwpkg"})
			if err != nil {
				t.Fatal(err)
			}
			second := 300 * time.Millisecond
			err = client.Await(t.Context(), target, task, map[string]string{"BMC": "7.10.30"}, Budget{Queue: second, Run: second, Gap: second, Pause: 10 * time.Millisecond})
			if c.want != nil && !errors.Is(err, c.want) || c.want == nil && (err != nil) != (c.text != "") || err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			if lines, _ := m.writes(); len(lines) != 1 {
				t.Errorf("sent %v", lines)
			}
		})
	}
}

func TestHowABMCTakesFirmwareIsKnownBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		service string
		want    UpdateMethods
		err     error
	}{
		"both":         {`{"MultipartHttpPushUri": "/u", "Actions": {"#UpdateService.SimpleUpdate": {"target": "/s"}}}`, UpdateMethods{"/s", "/u"}, nil},
		"a push":       {`{"MultipartHttpPushUri": "/u"}`, UpdateMethods{"", "/u"}, nil},
		"an old push":  {`{"ServiceEnabled": true, "HttpPushUri": "/redfish/v1/UpdateService", "MaxImageSizeBytes": 73400320}`, UpdateMethods{}, ErrNoUpdateMethod},
		"switched off": {`{"ServiceEnabled": false, "MultipartHttpPushUri": "/u"}`, UpdateMethods{}, ErrNoUpdateMethod},
		"none":         {`{}`, UpdateMethods{}, ErrNoUpdateMethod},
		"elsewhere":    {`{"MultipartHttpPushUri": "https://127.0.0.9/u"}`, UpdateMethods{}, errForeign},
	} {
		m := newMachine(t, object(t, tray))
		m.tree["/redfish/v1/UpdateService"] = object(t, c.service)
		client, target := m.client(t, facts.DeviceClassGpuCompute)
		got, err := client.UpdateMethods(t.Context(), target)
		if !errors.Is(err, c.err) || err == nil && got != c.want || err != nil && sources.KindOf(err) != sources.KindRefused {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

func TestAPushStreamsItsParametersFirst(t *testing.T) {
	t.Parallel()
	u := Upload{Name: `x".fwpkg`, Size: 5, Content: strings.NewReader("image and more"), Targets: []string{"/a"}}
	form, kind, err := u.form()
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(form)
	if err != nil || int64(len(body)) != form.size {
		t.Fatalf("%d bytes of %d, %v", len(body), form.size, err)
	}
	_, params, err := mime.ParseMediaType(kind)
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(strings.NewReader(string(body)), params["boundary"])
	first, err := parts.NextPart()
	if err != nil || first.FormName() != "UpdateParameters" || first.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%v %v", first, err)
	}
	var parameters struct{ Targets []string }
	if err := json.NewDecoder(first).Decode(&parameters); err != nil || len(parameters.Targets) != 1 {
		t.Errorf("%+v %v", parameters, err)
	}
	second, err := parts.NextPart()
	if err != nil || second.FormName() != "UpdateFile" || second.FileName() != `x".fwpkg` {
		t.Fatalf("%v %v", second, err)
	}
	if content, err := io.ReadAll(second); string(content) != "image" || err != nil {
		t.Errorf("%q %v", content, err)
	}
	m := newMachine(t, object(t, tray))
	client, target := m.client(t, facts.DeviceClassGpuCompute)
	u.Content = strings.NewReader("image")
	task, err := client.Push(t.Context(), target, u)
	if err != nil || task.Mode != ByMonitor || len(m.requests("POST /redfish/v1/UpdateService/upload")) != 1 || m.open() != 0 {
		t.Errorf("%+v %v", task, err)
	}
}

func TestTasksUnderWayAreListed(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	m.tree["/redfish/v1/TaskService/Tasks"] = object(t, `{"Members": [{"@odata.id": "/t/1"}, {"@odata.id": "/t/2"}, {"@odata.id": "/t/3"}]}`)
	m.tree["/t/1"] = object(t, `{"TaskState": "Running", "PercentComplete": 5}`)
	m.tree["/t/2"] = object(t, `{"TaskState": "Completed"}`)
	c, target := m.client(t, facts.DeviceClassGpuCompute)
	got, err := c.Updates(t.Context(), target)
	if err != nil || len(got) != 1 || got[0].URI != "/t/1" || got[0].Percent != 5 {
		t.Errorf("%+v %v", got, err)
	}
}
