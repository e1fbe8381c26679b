package main

import (
	"encoding/json"
	"testing"
	"time"
)

func TestWhatAFindingSaysIsSpelledInWords(t *testing.T) {
	t.Parallel()
	for detail, want := range map[string]string{
		`{}`: "",
		`{"why":"SerialsDiffer","devices":[1,2],"name":"gpu-1"}`: `devices [1,2], name "gpu-1", why "SerialsDiffer"`,
		`{"serial":{"netbox":"S1","ironic":"S2"}}`:               `serial (ironic "S2", netbox "S1")`,
		`{"reason":"\u001b[31mred"}`:                             `reason "\x1b[31mred"`,
		`not json`:                                               "not json",
	} {
		if got := detailText(json.RawMessage(detail)); got != want {
			t.Errorf("%s is spelled %s, want %s", detail, got, want)
		}
	}
}

func TestTheStateOfASourceSaysWhatIsTrue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a := &app{now: func() time.Time { return now }}
	since, alert := now.Add(-time.Minute), "12 of 16 are missing"
	for want, s := range map[string]sourceItem{
		"good":                      {State: "good"},
		"stale":                     {State: "stale", Stale: true},
		"failing since 1m ago":      {State: "failing", FailingSince: &since},
		"waits for a person":        {State: "waiting"},
		"waits for a person, stale": {State: "waiting", Alert: &alert, Stale: true},
	} {
		if got := a.standing(&s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
