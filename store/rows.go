package store

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
)

// orNull writes a zero instant as null.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// orZero reads null as a zero instant.
func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// idOrNull writes the id 0 as null.
func idOrNull(id int64) *int64 {
	if id == 0 {
		return nil
	}
	return &id
}

// Clean makes a text that PostgreSQL takes, as it is stored everywhere.
func Clean(s string) string { return text(s) }

// text makes a text that PostgreSQL takes: without NUL, valid UTF-8. The edge
// has cleaned it already; one device must not stop a batch all the same.
func text(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// CleanJSON gives JSON that PostgreSQL takes: no text in it has a NUL.
func CleanJSON(body []byte) ([]byte, error) {
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return body, nil
	}
	var loose any
	if err := json.Unmarshal(body, &loose); err != nil {
		return nil, err
	}
	return json.Marshal(withoutNUL(loose))
}

func withoutNUL(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "")
	case []any:
		for i := range v {
			v[i] = withoutNUL(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for key, value := range v {
			clean[strings.ReplaceAll(key, "\x00", "")] = withoutNUL(value)
		}
		return clean
	}
	return v
}

// A stored value that this build does not know, of an older or a newer one,
// reads as unknown.

func operationalOf(s string) facts.OperationalStatus {
	if v, ok := facts.ParseOperationalStatus(s); ok {
		return v
	}
	return facts.OperationalStatusUnknown
}

func healthOf(s string) facts.HealthStatus {
	if v, ok := facts.ParseHealthStatus(s); ok {
		return v
	}
	return facts.HealthStatusUnknown
}

func inventoryOf(s string) facts.InventoryStatus {
	if v, ok := facts.ParseInventoryStatus(s); ok {
		return v
	}
	return facts.InventoryStatusUnknown
}

func classOf(s string) facts.DeviceClass {
	if v, ok := facts.ParseDeviceClass(s); ok {
		return v
	}
	return facts.DeviceClassOther
}

func slurmStatesOf(tokens []string) facts.SlurmStates {
	var set facts.SlurmStates
	for _, token := range tokens {
		one, _ := facts.SlurmToken(token)
		set |= one
	}
	return set
}

func triOf(s string) fleet.Tri {
	switch t := fleet.Tri(s); t {
	case fleet.True, fleet.False:
		return t
	}
	return fleet.Unknown
}
