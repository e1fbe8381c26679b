package recorded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// decodeFacts sets the record's family. A fact that cannot be read is null and
// named in unreadable; the others keep their values.
func decodeFacts(record *sources.Record, family string, body json.RawMessage) error {
	var unreadable map[string]string
	var err error
	switch family {
	case "ironic":
		record.Ironic, unreadable, err = tolerant[facts.Ironic](body)
		if err == nil {
			record.Ironic.Listed = listed(record.Ironic.Listed)
			record.Ironic.Unreadable = merged(record.Ironic.Unreadable, unreadable)
		}
	case "placement":
		record.Placement, _, err = tolerant[facts.Placement](body)
	case "slurm":
		record.Slurm, unreadable, err = tolerant[facts.Slurm](body)
		if err == nil {
			record.Slurm.Listed = listed(record.Slurm.Listed)
			record.Slurm.Unreadable = merged(record.Slurm.Unreadable, unreadable)
		}
	case "netbox":
		record.Netbox, unreadable, err = tolerant[facts.Netbox](body)
		if err == nil {
			record.Netbox.Listed = listed(record.Netbox.Listed)
			record.Netbox.Unreadable = merged(record.Netbox.Unreadable, unreadable)
		}
	case "bmc":
		record.BMC, unreadable, err = tolerant[facts.BMC](body)
		if err == nil {
			record.BMC.Unreadable = merged(record.BMC.Unreadable, unreadable)
		}
	}
	return err
}

// notListed reports that the file itself says the source has the thing no more.
func notListed(r *sources.Record) bool {
	return r.Ironic != nil && r.Ironic.Listed == facts.False || r.Slurm != nil && r.Slurm.Listed == facts.False ||
		r.Netbox != nil && r.Netbox.Listed == facts.False
}

func listed(written facts.Bool) facts.Bool {
	if written == facts.False {
		return facts.False
	}
	return facts.True
}

func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	if a == nil {
		a = map[string]string{}
	}
	for fact, reason := range b {
		a[fact] = reason
	}
	return a
}

// tolerant decodes a family, field by field where the whole cannot be read.
func tolerant[F any](body json.RawMessage) (*F, map[string]string, error) {
	whole := new(F)
	if strict(body, whole) == nil {
		return whole, nil, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, nil, fmt.Errorf("facts: %w", err)
	}
	family, unreadable := new(F), map[string]string{}
	for name, value := range fields {
		one, err := json.Marshal(map[string]json.RawMessage{name: value})
		if err != nil || strict(one, new(F)) != nil {
			unreadable[sources.CleanText(name, textLimit)] = sources.ReasonDecodeFailed
			continue
		}
		if err := json.Unmarshal(one, family); err != nil {
			return nil, nil, fmt.Errorf("facts: %w", err)
		}
	}
	return family, unreadable, nil
}

func strict(body json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// clean takes NUL and invalid UTF-8 out of every text of an element.
func clean(element json.RawMessage) json.RawMessage {
	if utf8.Valid(element) && !bytes.Contains(element, []byte(`\u0000`)) {
		return element
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(element))
	decoder.UseNumber()
	if decoder.Decode(&value) != nil {
		return element
	}
	cleaned, err := json.Marshal(cleanValue(value))
	if err != nil {
		return element
	}
	return cleaned
}

func cleanValue(value any) any {
	switch v := value.(type) {
	case string:
		return sources.CleanText(v, 0)
	case []any:
		for i := range v {
			v[i] = cleanValue(v[i])
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = cleanValue(inner)
		}
	}
	return value
}
