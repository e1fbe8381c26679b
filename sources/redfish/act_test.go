package redfish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

const (
	hostPath   = "/redfish/v1/Systems/System_0"
	resetPath  = hostPath + "/Actions/ComputerSystem.Reset"
	simplePath = "/redfish/v1/UpdateService/Actions/UpdateService.SimpleUpdate"
)

// quick makes a reset look for its effect in test time.
func quick(r Reset) Reset {
	if r.Within == 0 {
		r.Within = 2 * time.Second
	}
	r.Pause = 20 * time.Millisecond
	return r
}

func (m *machine) writes() (lines, bodies []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := 0
	for _, line := range m.log {
		if strings.HasPrefix(line, "GET") {
			continue
		}
		if !strings.Contains(line, "/SessionService/") {
			lines, bodies = append(lines, line), append(bodies, m.bodies[i])
		}
		i++
	}
	return lines, bodies
}

func (m *machine) open() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.sessions) }

func TestAResetGoesToTheDeclaredPlaceWithADeclaredKind(t *testing.T) {
	t.Parallel()
	inline := map[string]any{"#ComputerSystem.Reset": map[string]any{"target": resetPath, "ResetType@Redfish.AllowableValues": []any{"On", "ForceOff"}}}
	for name, c := range map[string]struct {
		actions any
		from    string
		reset   Reset
		sent    string // "" for none
		err     error
	}{
		"on":                        {nil, "Off", Reset{Types: []string{"On"}, Want: PowerOn}, "On", nil},
		"off by its fall-back":      {nil, "On", Reset{Types: []string{"PushPowerButton", "GracefulShutdown", "ForceOff"}, Want: PowerOff}, "GracefulShutdown", nil},
		"declared inline":           {inline, "On", Reset{Types: []string{"GracefulShutdown", "ForceOff"}, Want: PowerOff}, "ForceOff", nil},
		"none declared":             {inline, "On", Reset{Types: []string{"GracefulRestart"}}, "", ErrNotAllowed},
		"nothing declared at all":   {map[string]any{"#ComputerSystem.Reset": map[string]any{"target": resetPath}}, "On", Reset{Types: []string{"ForceOff"}, Want: PowerOff}, "", ErrNotAllowed},
		"declared by a text":        {map[string]any{"#ComputerSystem.Reset": map[string]any{"target": resetPath, "ResetType@Redfish.AllowableValues": "ForceOff"}}, "On", Reset{Types: []string{"ForceOff"}, Want: PowerOff}, "ForceOff", nil},
		"no action":                 {map[string]any{}, "On", Reset{Types: []string{"ForceOff"}, Want: PowerOff}, "", ErrNotAllowed},
		"an action on another host": {map[string]any{"#ComputerSystem.Reset": map[string]any{"target": "https://127.0.0.9:1/x", "ResetType@Redfish.AllowableValues": []any{"ForceOff"}}}, "On", Reset{Types: []string{"ForceOff"}, Want: PowerOff}, "", errForeign},
		"in the state already":      {nil, "On", Reset{Types: []string{"On"}, Want: PowerOn}, "", nil},
		"by its marker":             {nil, "On", Reset{Types: []string{"ForceRestart"}}, "ForceRestart", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.set(hostPath, "PowerState", c.from)
			if c.actions != nil {
				m.set(hostPath, "Actions", c.actions)
			}
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			r, err := client.Reset(t.Context(), target, quick(c.reset))
			if !errors.Is(err, c.err) || (err != nil) != (c.err != nil) || err == nil && !r.Verified {
				t.Fatalf("%+v %v", r, err)
			}
			lines, bodies := m.writes()
			if c.sent == "" {
				if len(lines) != 0 || r.Sent != "" {
					t.Fatalf("%v", lines)
				}
			} else if len(lines) != 1 || lines[0] != "POST "+resetPath || bodies[0] != fmt.Sprintf(`{"ResetType":%q}`, c.sent) || r.Sent != c.sent {
				t.Fatalf("%v %v", lines, bodies)
			}
			if m.open() != 0 {
				t.Errorf("%d sessions are left open", m.open())
			}
		})
	}
}

func TestResetsThatGoWrongEndByTheirMeaning(t *testing.T) {
	t.Parallel()
	already := `{"error": {"@Message.ExtendedInfo": [{"MessageId": "iLO.0.10.InvalidOperationForSystemState", "MessageArgs": ["Power is off"]}]}}`
	on := Reset{Types: []string{"On"}, Want: PowerOn, Within: 300 * time.Millisecond}
	restart := Reset{Types: []string{"ForceRestart"}, Within: 300 * time.Millisecond}
	for name, c := range map[string]struct {
		rule   answerRule
		reset  Reset
		during func(m *machine)
		sends  int
		kind   sources.Kind // "" for success
		is     error
	}{
		"refused, and there already":     {answerRule{status: 400, body: already}, on, func(m *machine) { m.set(hostPath, "PowerState", "On") }, 1, "", nil},
		"refused for its state":          {answerRule{status: 400, body: already}, on, nil, 1, sources.KindConflict, nil},
		"accepted without effect":        {answerRule{status: 204}, on, nil, 1, sources.KindConflict, ErrNoEffect},
		"restarted without effect":       {answerRule{status: 204}, restart, nil, 1, sources.KindConflict, ErrNoEffect},
		"the answer is lost, it is done": {answerRule{drop: "after"}, on, nil, 1, "", nil},
		"the answer is lost, it is not":  {answerRule{drop: "before"}, on, nil, 1, sources.KindTransient, ErrUnknownOutcome},
		"a restart's answer is lost":     {answerRule{drop: "before"}, restart, nil, 1, sources.KindTransient, ErrUnknownOutcome},
		"a restart's answer, and done":   {answerRule{drop: "after"}, restart, nil, 1, "", nil},
		"a fault inside":                 {answerRule{status: 500}, on, nil, 1, sources.KindTransient, ErrUnknownOutcome},
		"a gateway's fault, and done":    {answerRule{status: 504}, on, func(m *machine) { m.set(hostPath, "PowerState", "On") }, 1, "", nil},
		"not ready":                      {answerRule{status: 503, header: map[string]string{"Retry-After": "30"}}, on, nil, 1, sources.KindTransient, nil},
		"chassis must be off":            {answerRule{status: 400, body: `{"error": {"@Message.ExtendedInfo": [{"MessageId": "X.1.0.ChassisPowerStateOffRequired"}]}}`}, on, nil, 1, sources.KindRefused, nil},
		"a precondition":                 {answerRule{status: 412}, on, nil, 1, sources.KindConflict, nil},
		"redirected":                     {answerRule{status: 307, header: map[string]string{"Location": "https://127.0.0.9:1/x"}}, on, nil, 1, sources.KindTransient, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			c.rule.method, c.rule.path = "POST", "Reset$"
			m.rule(c.rule)
			if c.during != nil {
				m.onReset = nil
				m.rule(answerRule{method: "DELETE", path: "Sessions/", delay: 1})
			}
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			if c.during != nil { // the state comes about while the reset is answered
				go func() {
					for len(m.requests("^POST .*Reset$")) == 0 {
						time.Sleep(time.Millisecond)
					}
					c.during(m)
				}()
			}
			r, err := client.Reset(t.Context(), target, quick(c.reset))
			if c.kind == "" && (err != nil || !r.Verified) {
				t.Errorf("%+v %v", r, err)
			}
			if c.kind != "" && (err == nil || sources.KindOf(err) != c.kind || c.is != nil && !errors.Is(err, c.is) || c.is == nil && (errors.Is(err, ErrNoEffect) || errors.Is(err, ErrUnknownOutcome))) {
				t.Errorf("%v is %s", err, sources.KindOf(err))
			}
			if lines, _ := m.writes(); len(lines) != c.sends {
				t.Errorf("sent %v", lines)
			}
			if m.open() != 0 {
				t.Errorf("%d sessions are left open", m.open())
			}
		})
	}
}

func TestAResetWaitsWhileTheMachineIsPassingToAnotherState(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	m.set(hostPath, "PowerState", "PoweringOff")
	var sentWhile atomic.Bool
	m.onReset = func(m *machine, kind string) {
		if m.tree[hostPath].(map[string]any)["PowerState"] == "PoweringOff" {
			sentWhile.Store(true)
		}
		m.change(hostPath, "PowerState", "On")
	}
	client, target := m.client(t, facts.DeviceClassGpuCompute)
	go func() {
		for len(m.requests("GET "+hostPath+"$")) < 3 {
			time.Sleep(time.Millisecond)
		}
		m.set(hostPath, "PowerState", "Off")
	}()
	if r, err := client.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn})); err != nil || !r.Verified || sentWhile.Load() {
		t.Errorf("%+v %v", r, err)
	}
}

func TestAShelfIsResetByItsChassis(t *testing.T) {
	t.Parallel()
	const at = "/redfish/v1/Chassis/powershelf"
	m := newMachine(t, object(t, `{"/redfish/v1": {}, "/redfish/v1/Chassis": {"Members": [{"@odata.id": "`+at+`"}]},
		"`+at+`": {"PowerState": "Off", "Actions": {"#Chassis.Reset": {"target": "`+at+`/Actions/Chassis.Reset", "ResetType@Redfish.AllowableValues": ["On", "ForceOff"]}}}}`))
	c, target := m.client(t, facts.DeviceClassPowershelf)
	r, err := c.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn}))
	lines, bodies := m.writes()
	if err != nil || !r.Verified || len(lines) != 1 || lines[0] != "POST "+at+"/Actions/Chassis.Reset" || bodies[0] != `{"ResetType":"On"}` {
		t.Errorf("%+v %v %v", r, err, lines)
	}
}

func TestSessionsAreClosedOrNotOpened(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule  answerRule
		slots int
		ends  bool
	}{
		"full":              {answerRule{path: "none"}, 0, true},
		"full by Dell":      {answerRule{method: "POST", path: "Sessions$", status: 503, body: `{"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.4.RAC0218"}]}}`}, 4, true},
		"no token":          {answerRule{method: "POST", path: "Sessions$", status: 201, body: "{}"}, 4, true},
		"a page":            {answerRule{method: "POST", path: "Sessions$", status: 200, body: "<html/>"}, 4, true},
		"no session at all": {answerRule{method: "POST", path: "Sessions$", status: 404}, 4, true},
		"refused":           {answerRule{method: "POST", path: "Sessions$", status: 401}, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.slots = c.slots
			m.rule(c.rule)
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			_, err := client.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn}))
			if c.ends != (err == nil) || !c.ends && sources.KindOf(err) != sources.KindForbidden {
				t.Errorf("%v", err)
			}
			if lines, _ := m.writes(); !c.ends && len(lines) > 0 {
				t.Errorf("%v", lines)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if len(m.sessions) != 0 || m.auths["none"] != 0 {
				t.Errorf("%d sessions, logins %v", len(m.sessions), m.auths)
			}
		})
	}
	t.Run("cancelled in the middle", func(t *testing.T) {
		t.Parallel()
		m := newMachine(t, object(t, tray))
		client, target := m.client(t, facts.DeviceClassGpuCompute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		m.rule(answerRule{method: "POST", path: "Reset$", delay: 5 * time.Second})
		go func() {
			for len(m.requests("^POST .*Reset$")) == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if _, err := client.Reset(ctx, target, quick(Reset{Types: []string{"On"}, Want: PowerOn})); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("%v", err)
		}
		if m.open() != 0 || len(m.requests("^DELETE")) != 1 {
			t.Errorf("%d sessions are left open", m.open())
		}
	})
}

func TestABootOverrideIsReadBack(t *testing.T) {
	t.Parallel()
	pxe := Boot{Target: "Pxe", Enabled: "Once", Mode: "UEFI"}
	for name, c := range map[string]struct {
		rule answerRule
		boot Boot
		want error
		sent int
	}{
		"set":                       {answerRule{path: "none"}, pxe, nil, 1},
		"so already":                {answerRule{path: "none"}, Boot{Enabled: "Disabled"}, nil, 0},
		"changed since it was read": {answerRule{method: "PATCH", path: "System_0$", status: 412, times: 1}, pxe, nil, 2},
		"not to be had":             {answerRule{path: "none"}, Boot{Target: "Floppy", Enabled: "Once"}, ErrNotAllowed, 0},
		"accepted and not done":     {answerRule{method: "PATCH", path: "System_0$", status: 204}, pxe, ErrNoEffect, 1},
		"lost and done":             {answerRule{method: "PATCH", path: "System_0$", drop: "after"}, pxe, nil, 1},
		"lost and not done":         {answerRule{method: "PATCH", path: "System_0$", drop: "before"}, pxe, ErrUnknownOutcome, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, object(t, tray))
			m.rule(c.rule)
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			client.bootSettle = 200 * time.Millisecond
			err := client.BootOverride(t.Context(), target, c.boot)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("%v", err)
			}
			lines, bodies := m.writes()
			if len(lines) != c.sent {
				t.Errorf("%v", lines)
			}
			for _, body := range bodies {
				if body != `{"Boot":{"BootSourceOverrideEnabled":"Once","BootSourceOverrideMode":"UEFI","BootSourceOverrideTarget":"Pxe"}}` {
					t.Errorf("sent %s", body)
				}
			}
			if m.open() != 0 {
				t.Errorf("%d sessions are left open", m.open())
			}
		})
	}
}

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

func TestNothingGoesToAnotherHost(t *testing.T) {
	t.Parallel()
	var seen atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { seen.Add(1) }))
	t.Cleanup(other.Close)
	m := newMachine(t, object(t, tray))
	m.rule(answerRule{path: "Storage$|POST .*Sessions$|POST .*Reset$", status: 307, header: map[string]string{"Location": other.URL + "/x"}})
	m.set("/redfish/v1/Chassis", "Members@odata.nextLink", other.URL+"/x")
	m.set("/redfish/v1", "UpdateService", map[string]any{"@odata.id": other.URL + "/x"})
	c, target := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) { c.TLS = TLS{Insecure: true} })
	got := answeredFacts(t, c)
	if got.Unreadable["storage"] == "" || got.Unreadable["firmware"] == "" {
		t.Errorf("%+v", got)
	}
	if _, err := c.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn})); err == nil {
		t.Error("a redirect is taken for a success")
	}
	if seen.Load() != 0 {
		t.Errorf("another host was asked %d times", seen.Load())
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
