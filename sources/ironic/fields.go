package ironic

import (
	"bytes"
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// Bounds of texts, in bytes: names and identities, and what people and
// machines write as reasons.
const (
	shortText = 255
	longText  = 1024
)

// reader reads the fields of one node. A field that cannot be read costs only
// its fact, which unreadable then names with the reason.
type reader struct {
	unreadable map[string]string
}

func (r *reader) lose(fact, reason string) {
	if r.unreadable == nil {
		r.unreadable = map[string]string{}
	}
	r.unreadable[fact] = reason
}

// absent is a field that was not in the body or is null.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// redacted is what Ironic writes where the permission to see a value lacks.
func redacted(s string) bool {
	return strings.HasPrefix(s, "** ") && strings.Contains(strings.ToLower(s), "redacted")
}

// text reads a text; null and empty are null facts.
func (r *reader) text(raw json.RawMessage, fact string, max int) facts.Text {
	if absent(raw) {
		return facts.Text{}
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		r.lose(fact, sources.ReasonDecodeFailed)
		return facts.Text{}
	}
	if redacted(s) {
		r.lose(fact, sources.ReasonFieldNotServed)
		return facts.Text{}
	}
	if s = sources.CleanText(s, max); s == "" {
		return facts.Text{}
	}
	return facts.TextOf(s)
}

// textOrNone is text for a field whose null says that there is none: "" then.
func (r *reader) textOrNone(raw json.RawMessage, fact string) facts.Text {
	if s := strings.TrimSpace(string(raw)); s == "null" || s == `""` {
		return facts.TextOf("")
	}
	return r.text(raw, fact, shortText)
}

func (r *reader) flag(raw json.RawMessage, fact string) facts.Bool {
	if absent(raw) {
		return facts.Null
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		r.lose(fact, sources.ReasonDecodeFailed)
		return facts.Null
	}
	return facts.BoolOf(b)
}

func (r *reader) instant(raw json.RawMessage, fact string) time.Time {
	at, err := sources.ParseTime(r.text(raw, fact, shortText).Value)
	if err != nil {
		r.lose(fact, sources.ReasonDecodeFailed)
		return time.Time{}
	}
	return at
}

// traits reads the list whole or not at all: a list with one missing would say
// that a node lacks it. Sorted, so that an order of no meaning is no change.
func (r *reader) traits(raw json.RawMessage) []string {
	if absent(raw) {
		return nil
	}
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		r.lose("traits", sources.ReasonDecodeFailed)
		return nil
	}
	traits := make([]string, 0, len(list))
	for _, trait := range list {
		if trait == nil {
			r.lose("traits", sources.ReasonDecodeFailed)
			return nil
		}
		traits = append(traits, sources.CleanText(*trait, shortText))
	}
	slices.Sort(traits)
	return slices.Compact(traits)
}

// object reads a JSON object; nil where there is none or it is redacted.
func (r *reader) object(raw json.RawMessage, fact string) map[string]json.RawMessage {
	if absent(raw) {
		return nil
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil {
		r.lose(fact, sources.ReasonDecodeFailed)
		return nil
	}
	if content, only := o["content"]; only && len(o) == 1 {
		var s string
		if json.Unmarshal(content, &s) == nil && redacted(s) {
			r.lose(fact, sources.ReasonFieldNotServed)
			return nil
		}
	}
	return o
}

var addressKeys = []string{"redfish_address", "ipmi_address", "ilo_address", "drac_address", "irmc_address"}

// bmcAddress finds the host of the node's BMC, the driver's own key first.
func (r *reader) bmcAddress(raw json.RawMessage, driver string) facts.Text {
	info := r.object(raw, "bmc_address")
	keys := slices.Clone(addressKeys)
	slices.SortStableFunc(keys, func(a, b string) int {
		return int(rank(driver, a) - rank(driver, b))
	})
	for _, key := range keys {
		if absent(info[key]) {
			continue
		}
		address := r.text(info[key], "bmc_address", shortText)
		if !address.Known {
			continue
		}
		host, ok := hostOf(address.Value)
		if !ok {
			r.lose("bmc_address", sources.ReasonDecodeFailed)
			return facts.Text{}
		}
		return facts.TextOf(host)
	}
	return facts.Text{}
}

func rank(driver, key string) int8 {
	prefix, _, _ := strings.Cut(key, "_")
	if strings.HasPrefix(driver, prefix) {
		return 0
	}
	return 1
}

// hostOf takes the host out of https://host:port/path, host:port or host.
func hostOf(address string) (string, bool) {
	address = strings.TrimSpace(address)
	host := address
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil {
			return "", false
		}
		host = u.Hostname()
	} else if h, _, err := net.SplitHostPort(address); err == nil {
		host = h
	} else {
		host = strings.Trim(address, "[]")
	}
	plain := !strings.ContainsAny(host, " /?#@\t\r\n") && (!strings.Contains(host, ":") || net.ParseIP(host) != nil)
	return host, host != "" && plain
}

// serial finds the machine's serial number for joins, "" where there is none
// that names one machine.
func serial(objects ...map[string]json.RawMessage) string {
	for _, o := range objects {
		for _, key := range []string{"serial_number", "serial"} {
			var value any
			decoder := json.NewDecoder(bytes.NewReader(o[key]))
			decoder.UseNumber()
			if decoder.Decode(&value) != nil {
				continue
			}
			var s string
			switch v := value.(type) {
			case string:
				s = strings.TrimSpace(sources.CleanText(v, shortText))
			case json.Number:
				s = v.String()
			}
			if !sources.PlaceholderSerial(s) {
				return s
			}
		}
	}
	return ""
}

var numeric = map[string]bool{"cpus": true, "memory_mb": true, "local_gb": true, "root_gb": true}

// maxProperties bounds what is kept of an object that anybody may fill.
const maxProperties = 256

// properties cleans the properties and writes their numbers alike.
func (r *reader) properties(raw map[string]json.RawMessage) map[string]any {
	if raw == nil {
		return nil
	}
	if len(raw) > maxProperties {
		r.lose("properties", sources.ReasonDecodeFailed)
		return nil
	}
	out := make(map[string]any, len(raw))
	for key, element := range raw {
		var value any
		if json.Unmarshal(element, &value) != nil {
			continue
		}
		if s, quoted := value.(string); quoted && numeric[key] {
			if n, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && n-n == 0 {
				value = n
			}
		}
		out[sources.CleanText(key, shortText)] = clean(value, 8)
	}
	return out
}

// clean bounds the texts and the depth of a decoded value.
func clean(value any, depth int) any {
	switch v := value.(type) {
	case string:
		return sources.CleanText(v, longText)
	case []any:
		if depth == 0 {
			return nil
		}
		for i := range v {
			v[i] = clean(v[i], depth-1)
		}
		return v
	case map[string]any:
		if depth == 0 {
			return nil
		}
		cleaned := make(map[string]any, len(v))
		for key, one := range v {
			cleaned[sources.CleanText(key, shortText)] = clean(one, depth-1)
		}
		return cleaned
	}
	return value
}
