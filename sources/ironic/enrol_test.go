package ironic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/sources"
)

var (
	newNode = NewNode{
		UUID: "00000000-0000-4000-8000-00000000000a", Name: "tray-1", Driver: "redfish", Lessee: "enrol",
		DriverInfo: map[string]any{"redfish_password": "tops3cret"},
	}
	ours = Deployment{Job: "7", Instance: instanceID, Source: "http://images.example/os.raw", Keys: []string{"ssh-ed25519 AAAA me"}}
)

// bound are the fields of a node that ours is bound to.
func bound() map[string]any {
	return map[string]any{"instance_uuid": instanceID, "instance_info": map[string]any{"image_source": "x"}, "extra": map[string]any{"muster": Mark("7", instanceID)}}
}

// acts are the writes of enrolment and of deployments, with the node "u" as each
// needs it.
var acts = map[string]struct {
	state string
	more  func() map[string]any
	write func(ctx context.Context, c *Client) error
}{
	"create": {"enroll", nil, func(ctx context.Context, c *Client) error { return errOf(c.Create(ctx, newNode)) }},
	"port": {"enroll", nil, func(ctx context.Context, c *Client) error {
		return c.AddPort(ctx, "u", NewPort{MAC: "02:00:00:00:00:01"})
	}},
	"delete":   {"manageable", nil, func(ctx context.Context, c *Client) error { return c.Delete(ctx, "u", "muster:7") }},
	"bind":     {"available", nil, func(ctx context.Context, c *Client) error { return errOf(c.Bind(ctx, "u", ours)) }},
	"deploy":   {"available", bound, func(ctx context.Context, c *Client) error { return errOf(c.Deploy(ctx, "u", ours)) }},
	"undeploy": {"active", bound, func(ctx context.Context, c *Client) error { return errOf(c.Undeploy(ctx, "u", instanceID)) }},
	"unbind":   {"available", bound, func(ctx context.Context, c *Client) error { return errOf(c.Unbind(ctx, "u", instanceID)) }},
}

func TestALostAnswerToAnActIsFoundByReading(t *testing.T) {
	t.Parallel()
	for name, act := range acts {
		var more map[string]any
		if act.more != nil {
			more = act.more()
		}
		f, c := writer(t, act.state, more)
		f.after = cut
		if err := act.write(t.Context(), c); err != nil || len(f.written()) != 1 {
			t.Errorf("%s: %v after the writes %v", name, err, f.written())
		}
		f.after = nil
		if err := act.write(t.Context(), c); err != nil || name != "deploy" && name != "undeploy" && len(f.written()) != 1 {
			t.Errorf("%s again: %v after the writes %v", name, err, f.written())
		}
	}
}

func TestALostActIsNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	for name, act := range acts {
		var more map[string]any
		if act.more != nil {
			more = act.more()
		}
		f, c := writer(t, act.state, more)
		sent := 0
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				f.mu.Lock()
				sent++
				f.mu.Unlock()
				cut(w, r)
			}
			return false
		}
		if err := act.write(t.Context(), c); err == nil || sources.KindOf(err) != sources.KindTransient || sent != 1 || strings.Contains(err.Error(), "tops3cret") {
			t.Errorf("%s: %v after %d requests", name, err, sent)
		}
	}
}

// A refusal of Ironic is told, and with it no secret of the request.
func TestARefusedActIsToldWithoutSecrets(t *testing.T) {
	t.Parallel()
	for name, act := range acts {
		var more map[string]any
		if act.more != nil {
			more = act.more()
		}
		f, c := writer(t, act.state, more)
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				f.refuse(w, http.StatusBadRequest, "nonsense")
				return true
			}
			return false
		}
		err := act.write(t.Context(), c)
		wantKind(t, err, sources.KindRefused)
		if !strings.Contains(err.Error(), "nonsense") || strings.Contains(err.Error(), "tops3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestALockedNodeIsWaitedForByActs(t *testing.T) {
	t.Parallel()
	for name, act := range acts {
		more := map[string]any{}
		if act.more != nil {
			more = act.more()
		}
		f, c := writer(t, act.state, more)
		refusals := 0
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.Method != http.MethodGet && refusals < 3 {
				refusals++
				f.refuse(w, http.StatusConflict, "Node u is locked by host cond-1, please retry after the current operation is completed.")
				return true
			}
			return false
		}
		if err := act.write(t.Context(), c); err != nil || len(f.written()) != 1 {
			t.Errorf("%s: %v, written %v", name, err, f.written())
		}
	}
}

// Another instance that is bound between our read and our request stays.
func TestABindingThatLosesTheRaceIsAConflict(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", nil)
	f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			f.set("u", map[string]any{"instance_uuid": "99999999-2222-4333-8444-555555555555"})
			f.refuse(w, http.StatusConflict, "Node u is associated with instance 99999999-2222-4333-8444-555555555555.")
			return true
		}
		return false
	}
	_, err := c.Bind(t.Context(), "u", ours)
	wantKind(t, err, sources.KindConflict)
	wantKind(t, errOf(c.Unbind(t.Context(), "u", instanceID)), sources.KindConflict)
	wantKind(t, c.Delete(t.Context(), "u", "muster:7"), sources.KindConflict)
	if len(f.written()) != 0 {
		t.Errorf("written: %v", f.written())
	}
}

// A node that is another's by the time at which its lock is let go is neither torn
// down nor bound: it may be its customer's.
func TestAWaitForTheLockEndsWithWhoseTheNodeIs(t *testing.T) {
	t.Parallel()
	const other = "99999999-2222-4333-8444-555555555555"
	leased := ours
	leased.Lessee = "slurm"
	locked := func(state string, more, meanwhile map[string]any) (*fake, *Client) {
		f, c := writer(t, state, more)
		f.set("u", map[string]any{"reservation": "cond-1"})
		c.config.HTTP.Wait = func(context.Context, time.Duration) error {
			f.set("u", meanwhile)
			f.set("u", map[string]any{"reservation": nil})
			return nil
		}
		return f, c
	}
	for name, c := range map[string]struct {
		state     string
		more      map[string]any
		meanwhile map[string]any
		write     func(c *Client) error
		kind      sources.Kind // "" it is done
		writes    int
	}{
		"torn down: a customer's meanwhile": {"active", bound(), map[string]any{"instance_uuid": other}, func(c *Client) error { return errOf(c.Undeploy(t.Context(), "u", instanceID)) }, sources.KindConflict, 1},
		"torn down: unbound meanwhile":      {"active", bound(), map[string]any{"instance_uuid": nil}, func(c *Client) error { return errOf(c.Undeploy(t.Context(), "u", instanceID)) }, sources.KindConflict, 1},
		"torn down: clean meanwhile": {"active", bound(), map[string]any{"instance_uuid": nil, "provision_state": "available"},
			func(c *Client) error { return errOf(c.Undeploy(t.Context(), "u", instanceID)) }, "", 1},
		"torn down: being cleaned meanwhile": {"active", bound(), map[string]any{"instance_uuid": nil, "provision_state": "cleaning", "target_provision_state": "available"},
			func(c *Client) error { return errOf(c.Undeploy(t.Context(), "u", instanceID)) }, "", 1},
		"torn down: ours still":                {"active", bound(), nil, func(c *Client) error { return errOf(c.Undeploy(t.Context(), "u", instanceID)) }, "", 2},
		"bound: given to customers meanwhile":  {"available", map[string]any{"lessee": "slurm"}, map[string]any{"lessee": nil}, func(c *Client) error { return errOf(c.Bind(t.Context(), "u", leased)) }, sources.KindConflict, 1},
		"bound: ours still":                    {"available", map[string]any{"lessee": "slurm"}, nil, func(c *Client) error { return errOf(c.Bind(t.Context(), "u", leased)) }, "", 2},
		"bound: whose it is cannot be read by": {"available", map[string]any{"lessee": "slurm"}, map[string]any{"lessee": 7}, func(c *Client) error { return errOf(c.Bind(t.Context(), "u", leased)) }, sources.KindTransient, 1},
	} {
		f, client := locked(c.state, c.more, c.meanwhile)
		err := c.write(client)
		switch {
		case c.kind == "" && err != nil, c.kind != "" && (err == nil || sources.KindOf(err) != c.kind):
			t.Errorf("%s: %v", name, err)
		}
		if got := f.written(); len(got) != c.writes {
			t.Errorf("%s: written %q", name, got)
		}
	}
	_, c := writer(t, "active", nil)
	wantKind(t, errOf(c.Undeploy(t.Context(), "u", "")), sources.KindRefused)
}

// A node that is given an instance while it is brought to manageable is not
// deleted.
func TestADeletionLooksAgainBeforeItDeletes(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", nil)
	f.after = func(http.ResponseWriter, *http.Request) { f.find("u").doc["instance_uuid"] = instanceID }
	wantKind(t, c.Delete(t.Context(), "u", "muster:7"), sources.KindConflict)
	if got := f.written(); !slices.Equal(got, []string{"PUT states/provision"}) {
		t.Errorf("written: %v", got)
	}
}

func TestWhatIsNotOursToDeleteOrBind(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state string
		more  map[string]any
		kind  sources.Kind // of a deletion and a binding
	}{
		"in transition":       {"cleaning", nil, sources.KindLocked},
		"waiting":             {"clean wait", nil, sources.KindLocked},
		"an unknown state":    {"firmware hold", nil, sources.KindTransient},
		"an unread instance":  {"available", map[string]any{"instance_uuid": 7}, sources.KindTransient},
		"an unread lock":      {"manageable", map[string]any{"reservation": 7}, sources.KindTransient},
		"an operator's hold":  {"manageable", map[string]any{"maintenance": true, "maintenance_reason": "do not touch"}, sources.KindConflict},
		"a hold over a fault": {"clean failed", map[string]any{"maintenance": true, "maintenance_reason": "x", "last_error": "y", "fault": "clean failure"}, sources.KindConflict},
		"an instance":         {"available", map[string]any{"instance_uuid": "x"}, sources.KindConflict},
	} {
		f, c := writer(t, test.state, test.more)
		if err := c.Delete(t.Context(), "u", "muster:7"); err == nil || sources.KindOf(err) != test.kind {
			t.Errorf("%s: deleted: %v", name, err)
		}
		if _, err := c.Bind(t.Context(), "u", ours); err == nil {
			t.Errorf("%s: it is bound", name)
		}
		if len(f.written()) != 0 {
			t.Errorf("%s: written %v", name, f.written())
		}
	}
	f, c := writer(t, "available", map[string]any{"extra": map[string]any{"muster": "a note of somebody"}})
	_, err := c.Bind(t.Context(), "u", ours)
	wantForeign(t, err)
	must(t, errOf(c.Unbind(t.Context(), "u", "")))
	if len(f.written()) != 0 {
		t.Errorf("written %v", f.written())
	}
}

// Ironic's own maintenance after a fault is no operator's hold.
func TestAFaultDoesNotKeepANodeFromItsEnd(t *testing.T) {
	t.Parallel()
	for state, writes := range map[string][]string{
		"clean failed":  {"PUT states/provision", "DELETE"},
		"manageable":    {"DELETE"},
		"error":         {"DELETE"},
		"rescue failed": {"DELETE"},
	} {
		f, c := writer(t, state, map[string]any{"maintenance": true, "maintenance_reason": "gave up", "last_error": "gave up", "fault": "power failure"})
		must(t, c.Delete(t.Context(), "u", "muster:7"))
		if got := f.written(); !slices.Equal(got, writes) {
			t.Errorf("%s: %v", state, got)
		}
	}
	f, c := writer(t, "deploy failed", nil)
	must(t, c.Delete(t.Context(), "u", "muster:7"))
	if got := f.written(); !slices.Equal(got, []string{"PUT maintenance", "DELETE"}) {
		t.Errorf("%v", got)
	}
}

func TestWhatAVersionLacksIsRefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", bound())
	c.cap = 55
	plain := newNode
	plain.Lessee = ""
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		"a lessee":        {errOf(c.Create(t.Context(), newNode)), "1.65"},
		"a config drive":  {errOf(c.Deploy(t.Context(), "u", ours)), "1.56"},
		"no uuid":         {errOf(c.Create(t.Context(), NewNode{Name: "a", Driver: "redfish"})), "uuid"},
		"a uuid as name":  {errOf(c.Create(t.Context(), NewNode{UUID: newNode.UUID, Name: instanceID, Driver: "redfish"})), "name"},
		"an odd name":     {errOf(c.Create(t.Context(), NewNode{UUID: newNode.UUID, Name: "a/b", Driver: "redfish"})), "name"},
		"no interface":    {errOf(c.Create(t.Context(), NewNode{UUID: newNode.UUID, Name: "a", Driver: "redfish", Interfaces: map[string]string{"driver": "x"}})), "interface"},
		"no image":        {errOf(c.Bind(t.Context(), "u", Deployment{Job: "7", Instance: instanceID})), "image"},
		"no instance":     {errOf(c.Bind(t.Context(), "u", Deployment{Job: "7", Instance: "x", Source: "y"})), "uuid"},
		"a job of others": {errOf(c.Bind(t.Context(), "u", Deployment{Job: "a:b", Instance: instanceID, Source: "y"})), "job"},
		"no mark":         {c.Delete(t.Context(), "u", "7"), "mark"},
	} {
		if test.err == nil || sources.KindOf(test.err) != sources.KindRefused || !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%s: %v", name, test.err)
		}
	}
	if len(f.written()) != 0 {
		t.Errorf("written %v", f.written())
	}
	must(t, errOf(c.Create(t.Context(), plain)))
	_, err := c.Inventory(t.Context(), "u")
	if !errors.Is(err, sources.ErrGone) {
		t.Errorf("an inventory before 1.81: %v", err)
	}
}

// The config drive holds what the image needs and nothing of the site.
func TestTheConfigDriveOfADeployment(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", bound())
	d := ours
	d.Hostname = "tray-1"
	must(t, errOf(c.Deploy(t.Context(), "u", d)))
	drive := f.find("u").doc["instance_info"].(map[string]any)["configdrive"]
	equal(t, drive, any(map[string]any{"meta_data": map[string]any{
		"uuid": instanceID, "hostname": "tray-1", "name": "tray-1", "public_keys": map[string]any{"muster-0": "ssh-ed25519 AAAA me"},
	}}))
}
