package redfish

import (
	"context"
	"errors"
	"fmt"
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
	on := Reset{Types: []string{"On"}, Want: PowerOn, Within: 2 * time.Second}
	restart := Reset{Types: []string{"ForceRestart"}, Within: 2 * time.Second}
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
			c.rule.method, c.rule.path, c.rule.before = "POST", "Reset$", c.during
			m.rule(c.rule)
			client, target := m.client(t, facts.DeviceClassGpuCompute)
			if c.kind == "" {
				c.reset.Within = time.Minute // it is seen as soon as it is there
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
