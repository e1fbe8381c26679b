package redfish

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

func TestRefusalsAreAnswers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status int
		body   string
		want   facts.BMCRefusal
	}{
		"401":           {401, "", facts.BMCRefusalBmcCredentialRefused},
		"403":           {403, "", facts.BMCRefusalBmcCredentialRefused},
		"sessions full": {503, `{"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.2.4.RAC0218", "Message": "The maximum number of user sessions is reached."}]}}`, facts.BMCRefusalBmcSessionsFull},
		"not ready":     {400, `{"error": {"@Message.ExtendedInfo": [{"MessageId": "IDRAC.1.6.SWC0700", "Message": "iDRAC is not ready."}]}}`, facts.BMCRefusalBmcNotReady},
		"unavailable":   {503, "", facts.BMCRefusalBmcNotReady},
		"a fault":       {500, "", 0},
		"a page":        {200, "<html/>", 0},
		"nothing there": {404, "", 0},
	} {
		for _, class := range []facts.DeviceClass{facts.DeviceClassGpuCompute, facts.DeviceClassPowershelf} {
			t.Run(name+" "+class.String(), func(t *testing.T) {
				t.Parallel()
				m := newMachine(t, object(t, tray))
				m.rule(answerRule{path: "/redfish/v1/", status: c.status, body: c.body})
				client, _ := m.client(t, class)
				got := answeredFacts(t, client)
				if got.Refusal != c.want || got.PowerState.Known || got.ChassisHealth != 0 || got.Processors != 0 {
					t.Errorf("%+v", got)
				}
				if (len(got.Unreadable) > 0) != (c.want == 0) {
					t.Errorf("unread %v", got.Unreadable)
				}
			})
		}
	}
}

func TestNoLoginAfterThreeRefusalsInARow(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	m.password = "changed"
	secret := "admin:secret"
	c, target := m.client(t, facts.DeviceClassGpuCompute, func(c *Config) { c.Secret = func(string) (string, error) { return secret, nil } })
	logins := func() int { m.mu.Lock(); defer m.mu.Unlock(); return m.auths["basic"] + m.auths["token"] }
	for range 6 {
		if got := answeredFacts(t, c); got.Refusal != facts.BMCRefusalBmcCredentialRefused {
			t.Fatalf("%+v", got)
		}
	}
	told := func(want ...string) {
		t.Helper()
		if end, err := c.List(t.Context(), func([]sources.Record) error { return nil }); err != nil || !slices.Equal(end.Refused, want) {
			t.Errorf("refused at %v, want %v: %v", end.Refused, want, err)
		}
	}
	told(target.Address)
	if logins() != 3 {
		t.Errorf("%d logins with a credential that is refused", logins())
	}
	if _, err := c.Power(t.Context(), target); sources.KindOf(err) != sources.KindForbidden || logins() != 3 {
		t.Errorf("%v, %d logins", err, logins())
	}
	c.AllowLogin(target.Address)
	answeredFacts(t, c)
	if logins() != 4 {
		t.Errorf("a person asked, and there are %d logins", logins())
	}
	for range 4 {
		answeredFacts(t, c)
	}
	secret = "admin:changed"
	if got := answeredFacts(t, c); got.Refusal != 0 || got.PowerState.String() != "Off" {
		t.Errorf("with its new content: %+v", got)
	}
	told()
}

func TestARefusalNowAndThenIsNoRefusal(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	c, target := m.client(t, facts.DeviceClassGpuCompute)
	path := "GET /redfish/v1/Systems$"
	b := c.bmc(target, c.logins().of(t.Context(), "c01"))
	defer b.close()
	denied := 0
	for i, status := range []int{200, 401, 200, 401, 401, 401} {
		m.mu.Lock()
		m.answers = nil
		if status != 200 {
			m.answers = []answerRule{{path: path, status: status}}
		}
		m.mu.Unlock()
		a, err := b.request(t.Context(), "/redfish/v1/Systems")
		if err != nil {
			t.Fatal(err)
		}
		b.learn("/redfish/v1/Systems", a.refusal(true))
		if b.denied != nil && denied == 0 {
			denied = i + 1
		}
	}
	if denied != 6 {
		t.Errorf("the credential counts as refused after %d answers", denied)
	}
	if m.mu.Lock(); true {
		m.answers = []answerRule{{path: "Storage/1$", status: 401, times: 1}}
		m.mu.Unlock()
	}
	c.AllowLogin(target.Address)
	if got := answeredFacts(t, c); got.Refusal != 0 || got.Storage != facts.RedfishHealthOK {
		t.Errorf("one refusal among good answers: %+v", got)
	}
}

func TestWithoutACredentialTheBMCIsOnlyReached(t *testing.T) {
	t.Parallel()
	m := newMachine(t, object(t, tray))
	for name, adjust := range map[string]func(*Config){
		"none fits":     func(c *Config) { c.Credentials = []Credential{{Match: "x*", Ref: "env:X"}} },
		"no such file":  func(c *Config) { c.Secret = func(string) (string, error) { return "", fmt.Errorf("no file") } },
		"not a login":   func(c *Config) { c.Secret = func(string) (string, error) { return "hunter2", nil } },
		"none is given": func(c *Config) { c.Credentials = nil },
	} {
		c, _ := m.client(t, facts.DeviceClassGpuCompute, adjust)
		if got := answeredFacts(t, c); got.Refusal != facts.BMCRefusalBmcCredentialRefused {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if m.mu.Lock(); len(m.auths) > 0 {
		t.Errorf("logins: %v", m.auths)
	}
	m.mu.Unlock()
}

func TestCredentialsAreChosenByTheDevicesName(t *testing.T) {
	t.Parallel()
	for pattern, names := range map[string][2]string{
		"*":      {"anything", ""},
		"r01-c*": {"r01-c17", "r02-c17"},
		"R01-?":  {"r01-a", "r01-ab"},
		"*-p*":   {"x-p1", "xp1"},
		"a*b*c":  {"aXbYbZc", "abcd"},
		"exact":  {"Exact", "exactly"},
		"[ab]":   {"[ab]", "a"},
		"*b":     {"aab", "aba"},
		"c**":    {"c", "d"},
	} {
		if !fits(pattern, names[0]) || names[1] != "" && fits(pattern, names[1]) {
			t.Errorf("%q against %q", pattern, names)
		}
	}
	c := &Client{config: Config{Credentials: []Credential{{"a*", "env:A"}, {"*", "env:B"}}, Secret: func(ref string) (string, error) { return ref + "x:p:q", nil }}}
	if l := c.logins().of(t.Context(), "abc"); l.user != "env" || l.password != "Ax:p:q" {
		t.Errorf("%+v", l)
	}
	if l := c.logins().of(t.Context(), "xyz"); l.password != "Bx:p:q" {
		t.Errorf("%+v", l)
	}
}

func TestSecretsAreInNoErrorAndNoLog(t *testing.T) {
	t.Parallel()
	const canary = "c4n4ry-p4ssw0rd"
	var logged bytes.Buffer
	m := newMachine(t, object(t, tray))
	m.password = canary
	for name, c := range map[string]struct {
		secret string
		rule   answerRule
	}{
		"accepted":    {"admin:" + canary, answerRule{path: "none"}},
		"refused":     {"other:" + canary, answerRule{path: "none"}},
		"malformed":   {canary, answerRule{path: "none"}},
		"a bad reset": {"admin:" + canary, answerRule{method: "POST", path: "Reset$", status: 400, times: 1}},
		"a lost one":  {"admin:" + canary, answerRule{method: "POST", path: "Reset$", drop: "before", times: 1}},
	} {
		m.rule(c.rule)
		client, target := m.client(t, facts.DeviceClassGpuCompute, func(config *Config) {
			config.Secret = func(string) (string, error) { return c.secret, nil }
		})
		client.log = hclog.New(&hclog.LoggerOptions{Level: hclog.Trace, Output: &logged})
		record := poll(t, client)
		_, err := client.Reset(t.Context(), target, quick(Reset{Types: []string{"On"}, Want: PowerOn, Within: 100 * time.Millisecond}))
		said := fmt.Sprintf("%+v %+v %v", record, record.BMC, err)
		if strings.Contains(said, canary) || strings.Contains(logged.String(), canary) {
			t.Errorf("%s: %s\n%s", name, said, logged.String())
		}
	}
	if logged.Len() == 0 {
		t.Error("nothing was logged")
	}
}
