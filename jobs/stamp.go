package jobs

import (
	"strings"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
)

// stamp notes what the server writes into a job of a device and its site.
func (a *admission) stamp(c *devices.Candidate) {
	for _, s := range a.workflow.Stamped {
		value := factOf(&c.Facts, s.Fact)
		if strings.HasPrefix(s.Fact, "site.") {
			a.siteIs[s.Name] = value
			continue
		}
		if a.stamps[c.Device.ID] == nil {
			a.stamps[c.Device.ID] = map[string]any{}
		}
		a.stamps[c.Device.ID][s.Name] = value
	}
}

// factOf gives a fact as JSON has it: null, a bool or a text.
func factOf(f *facts.Facts, path string) any {
	field, ok := facts.FieldOf(path)
	if !ok {
		return nil
	}
	if field.Kind == facts.KindText {
		if t := field.Text(f); t.Known {
			return t.Value
		}
		return nil
	}
	switch text := f.Value(path); {
	case text == "null":
		return nil
	case field.Kind == facts.KindBool:
		return text == "true"
	default:
		return text
	}
}
