package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"
)

// An operator who made two mistakes mends both before the next try.
func TestLoadTellsEveryMistakeOfAFile(t *testing.T) {
	t.Parallel()
	const status = "policies/status/status.cue"
	bundle := miniFiles(t)
	text := string(bundle[status].Data)
	text = strings.Replace(text, `conditions: Failed: "True"`, `conditions: Faild: "True"`, 1)
	text = strings.Replace(text, `conditions: Maintenance: "True"`, `conditions: Maintenence: "True"`, 1)
	bundle[status] = &fstest.MapFile{Data: []byte(text)}
	_, _, err := Load(bundle, Options{})
	var vet *VetError
	if !errors.As(err, &vet) {
		t.Fatalf("error %v, want findings", err)
	}
	for _, want := range []string{"Faild", "Maintenence"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the mistake %s is not told:\n%v", want, err)
		}
	}
}
