package faultproxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"time"
)

// top takes a listing apart; nil where a body is none. One thing by itself is
// told from a listing by its own identity.
func top(body []byte) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return nil
	}
	for _, identity := range []string{"uuid", "id", "Id"} {
		if _, has := fields[identity]; has {
			return nil
		}
	}
	return fields
}

// isList tells a list of things from what an answer says of itself.
func isList(key string, value json.RawMessage) bool {
	text := bytes.TrimSpace(value)
	return key != "errors" && key != "warnings" && key != "meta" && len(text) > 0 && text[0] == '['
}

func encode(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(errors.Join(errors.New("faultproxy: what was decoded does not encode"), err))
	}
	return text
}

// emptied empties the lists of a listing, whichever system's it is: each list at
// its top, what counts them and what leads to more. Errors stay.
func emptied(body []byte) []byte {
	fields := top(body)
	if fields == nil {
		return body
	}
	for key, value := range fields {
		switch {
		case isList(key, value):
			fields[key] = json.RawMessage("[]")
		case key == "count" || key == "Members@odata.count":
			fields[key] = json.RawMessage("0")
		case key == "next":
			delete(fields, key)
		}
	}
	if _, netbox := fields["count"]; netbox {
		fields["next"] = json.RawMessage("null")
	}
	return encode(fields)
}

// withLists gives a listing the lists of another page of it.
func withLists(body, other []byte) []byte {
	fields := top(body)
	if fields == nil {
		return body
	}
	for key, value := range top(other) {
		if isList(key, value) {
			fields[key] = value
		}
	}
	return encode(fields)
}

// looped makes a listing's page lead to itself.
func looped(body []byte, here string) []byte {
	fields := top(body)
	if fields == nil {
		return body
	}
	if _, redfish := fields["Members"]; redfish {
		fields["Members@odata.nextLink"] = fields["@odata.id"]
		return encode(fields)
	}
	for key, value := range fields {
		if isList(key, value) {
			fields["next"] = encode(here)
			return encode(fields)
		}
	}
	return body
}

// How the systems write an instant: as a text of ISO 8601 with or without a
// zone, or as seconds since 1970.
var (
	written = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?"`)
	counted = regexp.MustCompile(`:\s?1[5-9]\d{8}\b`)
)

const withoutZone = "2006-01-02T15:04:05.999999999"

// skewed moves every instant of a body.
func skewed(body []byte, by time.Duration) []byte {
	body = written.ReplaceAllFunc(body, func(found []byte) []byte {
		text := string(found[1 : len(found)-1])
		for _, layout := range []string{time.RFC3339Nano, withoutZone} {
			if at, err := time.Parse(layout, text); err == nil {
				return []byte(`"` + at.Add(by).Format(layout) + `"`)
			}
		}
		return found
	})
	return counted.ReplaceAllFunc(body, func(found []byte) []byte {
		seconds, err := strconv.ParseInt(string(found[len(found)-10:]), 10, 64)
		if err != nil {
			return found
		}
		return strconv.AppendInt(found[:len(found)-10:len(found)-10], seconds+int64(by/time.Second), 10)
	})
}
