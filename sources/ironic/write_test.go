package ironic

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// writer gives a fake with one node and a client that does not wait.
func writer(t *testing.T, state string, more map[string]any) (*fake, *Client) {
	t.Helper()
	f := newFake(t)
	f.add("u", state, more)
	return f, (&peer{config: Config{URL: f.URL}}).client(t, quick)
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// writes runs every kind of write.
var writes = map[string]func(ctx context.Context, c *Client) (*sources.Record, error){
	"maintenance": func(ctx context.Context, c *Client) (*sources.Record, error) {
		return c.SetMaintenance(ctx, "u", "muster:7", "swap")
	},
	"provision": func(ctx context.Context, c *Client) (*sources.Record, error) {
		return c.Provision(ctx, "u", nodes.ProvisionStateOpts{Target: nodes.TargetProvide}, time.Minute)
	},
	"lessee": func(ctx context.Context, c *Client) (*sources.Record, error) {
		return c.SetLessee(ctx, "u", "", "slurm")
	},
	"trait": func(ctx context.Context, c *Client) (*sources.Record, error) {
		return c.AddTrait(ctx, "u", "CUSTOM_READY")
	},
	"power": func(ctx context.Context, c *Client) (*sources.Record, error) {
		return c.SetPower(ctx, "u", nodes.PowerOn, time.Minute, nil)
	},
}

func TestAnAnswerThatIsLostAfterTheWriteIsFoundByReading(t *testing.T) {
	t.Parallel()
	for name, write := range writes {
		f, c := writer(t, "manageable", nil)
		f.after = cut
		if _, err := write(t.Context(), c); err != nil || len(f.written()) != 1 {
			t.Errorf("%s: %v after the writes %v", name, err, f.written())
		}
	}
}

func TestARequestThatIsLostIsNotRepeatedBlindly(t *testing.T) {
	t.Parallel()
	for name, write := range writes {
		f, c := writer(t, "manageable", nil)
		var sent atomic.Int64
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodGet {
				sent.Add(1)
				cut(w, r)
			}
			return false
		}
		_, err := write(t.Context(), c)
		if err == nil || sources.KindOf(err) != sources.KindTransient || sent.Load() != 1 {
			t.Errorf("%s: %v after %d requests", name, err, sent.Load())
		}
	}
}

// A lost reboot leaves no trace when it never came: it is not said to be done
// because the node is on.
func TestALostRebootIsNotTakenForDone(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "manageable", map[string]any{"power_state": "power on"})
	f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			cut(w, r)
		}
		return false
	}
	_, err := c.SetPower(t.Context(), "u", nodes.Rebooting, time.Minute, nil)
	wantKind(t, err, sources.KindTransient)
}

func TestWhatIsAsWantedIsNotWritten(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", map[string]any{
		"maintenance": true, "maintenance_reason": "muster:7 swap", "lessee": "slurm", "traits": []any{"CUSTOM_READY"}, "power_state": "power on",
	})
	for name, write := range writes {
		if _, err := write(t.Context(), c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.written()) != 0 {
		t.Errorf("written: %v", f.written())
	}
}

func TestWhatCannotBeReadIsNotWritten(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "manageable", map[string]any{
		"maintenance": nil, "lessee": 7, "traits": nil, "provision_state": "firmware hold",
	})
	for name, write := range writes {
		if name == "power" {
			continue
		}
		if _, err := write(t.Context(), c); err == nil || sources.KindOf(err) != sources.KindTransient {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(f.written()) != 0 {
		t.Errorf("written: %v", f.written())
	}
}

// Maintenance of anybody else is neither cleared nor overwritten, whatever it
// looks like, and each write decides by a read of its own.
func TestForeignMaintenanceIsNeverTouched(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]map[string]any{
		"an operator's":                {"maintenance_reason": "do not touch"},
		"without a reason":             {"maintenance_reason": nil},
		"another job's":                {"maintenance_reason": "muster:70 swap"},
		"our mark within it":           {"maintenance_reason": "see muster:7"},
		"after a power failure":        {"maintenance_reason": "gave up", "last_error": "gave up", "fault": "power failure"},
		"held after a failed clean":    {"maintenance_reason": "do not touch", "last_error": "clean step failed", "fault": "clean failure"},
		"an unreadable reason":         {"maintenance_reason": 7},
		"with an unreadable fault too": {"maintenance_reason": "do not touch", "fault": 7},
	} {
		node["maintenance"] = true
		f, c := writer(t, "manageable", node)
		_, err := c.ClearMaintenance(t.Context(), "u", "muster:7", Repair{CleanFailure: true})
		wantForeign(t, err)
		_, err = c.SetMaintenance(t.Context(), "u", "muster:7", "swap")
		wantForeign(t, err)
		if len(f.written()) != 0 {
			t.Errorf("%s: written %v", name, f.written())
		}
	}
	// Held between two writes of ours.
	f, c := writer(t, "manageable", nil)
	must(t, errOf(c.SetMaintenance(t.Context(), "u", "muster:7", "")))
	f.set("u", map[string]any{"maintenance_reason": "do not touch"})
	_, err := c.ClearMaintenance(t.Context(), "u", "muster:7", Repair{})
	wantForeign(t, err)
	for _, mark := range []string{"", "muster:", "muster:a b", "job-7", "muster:" + strings.Repeat("a", 300)} {
		_, err := c.SetMaintenance(t.Context(), "u", mark, "")
		wantKind(t, err, sources.KindRefused)
	}
}

// A lock that nobody lets go ends the write after its budget, as locked.
func TestALockThatStaysEndsTheWrite(t *testing.T) {
	t.Parallel()
	for name, write := range writes {
		f, c := writer(t, "manageable", map[string]any{"reservation": "cond-1"})
		_, err := write(t.Context(), c)
		if err == nil || sources.KindOf(err) != sources.KindLocked || !strings.Contains(err.Error(), "cond-1") {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(f.written()); n < 2 || n > 400 {
			t.Errorf("%s: %d tries", name, n)
		}
	}
}

// While a write waits for the lock, the node is read anew before each try.
func TestAWaitForTheLockSeesWhatChangedMeanwhile(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "manageable", map[string]any{"reservation": "cond-1"})
	c.config.HTTP.Wait = func(context.Context, time.Duration) error {
		f.set("u", map[string]any{"reservation": nil, "lessee": "customer", "maintenance": true, "maintenance_reason": "do not touch"})
		return nil
	}
	_, err := c.SetLessee(t.Context(), "u", "", "slurm")
	wantKind(t, err, sources.KindConflict)
	f.set("u", map[string]any{"reservation": "cond-1", "maintenance": false})
	_, err = c.SetMaintenance(t.Context(), "u", "muster:7", "")
	wantForeign(t, err)
	if got := f.written(); len(got) != 2 {
		t.Errorf("written: %v", got)
	}
}

func TestAFailedCleanIsReportedOnce(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "manageable", nil)
	verb := nodes.ProvisionStateOpts{Target: nodes.TargetClean, CleanSteps: []nodes.CleanStep{{
		Interface: nodes.InterfaceBIOS, Step: "apply_configuration", Args: map[string]any{"settings": []any{map[string]any{"bogus": 1}}},
	}}}
	r, err := c.Provision(t.Context(), "u", verb, time.Minute)
	wantKind(t, err, sources.KindConflict)
	if r.Ironic.ProvisionState != facts.ProvisionStateCleanFailed || !strings.Contains(err.Error(), "the clean step failed") || len(f.written()) != 1 {
		t.Errorf("%v, %+v, written %v", err, r.Ironic, f.written())
	}
}

func TestAVerbOnItsWayIsNotRepeated(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "deploying", map[string]any{"target_provision_state": "active", "reservation": "cond-1"})
	must(t, errOf(c.SetProvision(t.Context(), "u", nodes.ProvisionStateOpts{Target: nodes.TargetActive})))
	if len(f.written()) != 0 {
		t.Errorf("written: %v", f.written())
	}
}

func TestANodeThatNeverSettlesIsTold(t *testing.T) {
	t.Parallel()
	for name, node := range map[string]map[string]any{
		"a lock of hours":       {"provision_state": "deleting", "reservation": "cond-1"},
		"a stable state locked": {"provision_state": "available", "reservation": "cond-1"},
		"an unread lock":        {"provision_state": "available", "reservation": 7},
		"an unmodelled state":   {"provision_state": "firmware hold"},
	} {
		_, c := writer(t, "manageable", node)
		_, err := c.Settle(t.Context(), "u", time.Minute)
		if err == nil || sources.KindOf(err) != sources.KindTransient || node["reservation"] == "cond-1" && !strings.Contains(err.Error(), "cond-1") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPowerIsNotAskedForTwice(t *testing.T) {
	t.Parallel()
	// A soft power-off of minutes is under way: it is waited for.
	f, c := writer(t, "active", map[string]any{"power_state": "power on", "target_power_state": "power off", "reservation": "cond-1"})
	looks := 0
	c.config.HTTP.Wait = func(context.Context, time.Duration) error {
		if looks++; looks == 20 {
			f.set("u", map[string]any{"power_state": "power off", "target_power_state": nil, "reservation": nil})
		}
		return nil
	}
	r, err := c.SetPower(t.Context(), "u", nodes.SoftPowerOff, 5*time.Minute, nil)
	must(t, err)
	if r.Ironic.PowerState.Value != "power off" || len(f.written()) != 0 {
		t.Errorf("%+v, written %v", r.Ironic, f.written())
	}

	// Accepted, then given up by Ironic: told at once, with its error.
	f, c = writer(t, "active", map[string]any{"power_state": "power on", "broken": true})
	_, err = c.SetPower(t.Context(), "u", nodes.PowerOff, time.Hour, nil)
	wantKind(t, err, sources.KindTransient)
	if !strings.Contains(err.Error(), "the BMC did not answer") || !slices.Equal(f.written(), []string{"PUT states/power"}) {
		t.Errorf("%v, written %v", err, f.written())
	}
}

// A request that Ironic's lock held back rests on what is so when it goes out.
func TestPowerThatWaitedForTheLockIsAskedAboutAgain(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "available", map[string]any{"power_state": "power on", "reservation": "cond-1"})
	c.config.HTTP.Wait = func(context.Context, time.Duration) error {
		f.set("u", map[string]any{"instance_uuid": "99999999-2222-4333-8444-555555555555", "provision_state": "active", "reservation": nil})
		return nil
	}
	taken := errors.New("it is somebody's now")
	_, err := c.SetPower(t.Context(), "u", nodes.PowerOff, time.Minute, func(n *facts.Ironic) error {
		if n.InstanceBound == facts.True {
			return taken
		}
		return nil
	})
	if !errors.Is(err, taken) || len(f.written()) != 1 { // the one that was refused by the lock
		t.Errorf("%v, written %v", err, f.written())
	}
}

// A forced power-off behind a soft one that does not end is told as not sent.
func TestPowerBehindAnotherRequestIsToldAsNotSent(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "active", map[string]any{"power_state": "power on", "target_power_state": "power off", "reservation": "cond-1"})
	c.config.HTTP.Wait = func(context.Context, time.Duration) error { return nil }
	_, err := c.SetPower(t.Context(), "u", nodes.PowerOff, 2*time.Minute, nil)
	if !errors.Is(err, ErrUnsent) || !strings.Contains(err.Error(), "another power request") || sources.KindOf(err) != sources.KindTransient || len(f.written()) != 0 {
		t.Errorf("%v, written %v", err, f.written())
	}
}

func TestAnAbortIsThroughWhenTheNodeRests(t *testing.T) {
	t.Parallel()
	f, c := writer(t, "clean wait", map[string]any{"target_provision_state": "available"})
	for range 2 {
		r, err := c.Provision(t.Context(), "u", nodes.ProvisionStateOpts{Target: nodes.TargetAbort}, time.Minute)
		must(t, err)
		if r.Ironic.ProvisionState != facts.ProvisionStateCleanFailed {
			t.Errorf("%+v", r.Ironic)
		}
	}
	if len(f.written()) != 1 {
		t.Errorf("written: %v", f.written())
	}
	_, err := c.SetProvision(t.Context(), "u", nodes.ProvisionStateOpts{Target: "bogus"})
	wantKind(t, err, sources.KindRefused)
}

func TestAWriteEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, c := writer(t, "manageable", map[string]any{"reservation": "cond-1"})
	ctx, cancel := context.WithCancel(t.Context())
	c.config.HTTP.Wait = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if _, err := c.AddTrait(ctx, "u", "CUSTOM_A"); err == nil {
		t.Error("it went on")
	}
}

// A conductor without a free worker is that node's matter: the endpoint's
// breaker stays closed. An Ironic that fails opens it.
func TestABusyConductorIsNotADeadIronic(t *testing.T) {
	t.Parallel()
	for text, kind := range map[string]sources.Kind{
		"Requested action cannot be performed due to lack of free conductor workers.": sources.KindTransient,
		"the database is gone": sources.KindOpen,
	} {
		f := newFake(t)
		f.add("u", "manageable", nil)
		c := (&peer{config: Config{URL: f.URL}}).client(t, quick, func(c *Config) { c.HTTP.BreakerFailures = 3 })
		must(t, errOf(c.Get(t.Context(), "u")))
		f.intercept = func(w http.ResponseWriter, r *http.Request) bool {
			f.refuse(w, http.StatusServiceUnavailable, "%s", text)
			return true
		}
		var err error
		for range 5 {
			_, err = c.Get(t.Context(), "u")
		}
		wantKind(t, err, kind)
	}
}
