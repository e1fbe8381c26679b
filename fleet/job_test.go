package fleet_test

import (
	"testing"

	"github.com/musterhq/muster/fleet"
)

func TestAJobIsWhatItsDevicesAre(t *testing.T) {
	t.Parallel()
	type devices = map[fleet.JobDeviceStatus]int
	for name, c := range map[string]struct {
		devices devices
		cancel  bool
		want    fleet.JobStatus
	}{
		"nothing started":                            {devices{"": 3}, false, fleet.JobPending},
		"nothing started, cancel asked":              {devices{"": 3}, true, fleet.JobCancellationRequested},
		"one runs":                                   {devices{"": 2, "running": 1}, false, fleet.JobRunning},
		"one ended, the others wait":                 {devices{"": 2, "failed": 1}, false, fleet.JobRunning},
		"one runs, cancel asked":                     {devices{"running": 1, "succeeded": 4}, true, fleet.JobCancellationRequested},
		"some cancelled, one still runs":             {devices{"running": 1, "cancelled": 4}, true, fleet.JobCancellationRequested},
		"all succeeded":                              {devices{"succeeded": 4}, false, fleet.JobSucceeded},
		"all succeeded although a cancel was asked":  {devices{"succeeded": 4}, true, fleet.JobSucceeded},
		"all failed":                                 {devices{"failed": 4}, false, fleet.JobFailed},
		"all timed out":                              {devices{"timed_out": 1}, false, fleet.JobTimedOut},
		"all terminated":                             {devices{"terminated": 2}, false, fleet.JobTerminated},
		"all cancelled":                              {devices{"cancelled": 2}, true, fleet.JobCancelled},
		"all cancelled by Temporal's own hand":       {devices{"cancelled": 2}, false, fleet.JobCancelled},
		"cancelled after some succeeded":             {devices{"cancelled": 2, "succeeded": 1}, true, fleet.JobCancelled},
		"cancelled after one failed":                 {devices{"cancelled": 2, "failed": 1}, true, fleet.JobCancelled},
		"cancel asked, none cancelled":               {devices{"succeeded": 2, "failed": 1}, true, fleet.JobPartiallyFailed},
		"some succeeded":                             {devices{"succeeded": 1, "failed": 3}, false, fleet.JobPartiallyFailed},
		"some succeeded, one was cancelled, unasked": {devices{"succeeded": 1, "cancelled": 3}, false, fleet.JobPartiallyFailed},
		"none succeeded, for several reasons":        {devices{"failed": 1, "timed_out": 1}, false, fleet.JobFailed},
		"zero counts say nothing":                    {devices{"": 0, "running": 0, "failed": 0, "succeeded": 2}, false, fleet.JobSucceeded},
		"no devices":                                 {devices{}, false, fleet.JobFailed},
	} {
		if got := fleet.AggregateJob(c.devices, c.cancel); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestAJobHasEndedWhenAllOfItsDevicesHave(t *testing.T) {
	t.Parallel()
	all := []fleet.JobDeviceStatus{
		fleet.DeviceWaiting, fleet.DeviceRunning, fleet.DeviceSucceeded, fleet.DeviceFailed, fleet.DeviceTimedOut, fleet.DeviceCancelled, fleet.DeviceTerminated,
	}
	for _, a := range all {
		for _, b := range all {
			for _, cancel := range []bool{false, true} {
				counts := map[fleet.JobDeviceStatus]int{a: 1}
				counts[b] += 2
				if got := fleet.AggregateJob(counts, cancel); got.Ended() != (a.Ended() && b.Ended()) {
					t.Errorf("%q and %q, cancel %v: %s", a, b, cancel, got)
				}
			}
		}
	}
}
