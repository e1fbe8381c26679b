package main

import (
	"encoding/json"
	"testing"
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
