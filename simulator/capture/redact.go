package capture

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Redact gives a tree in which every string that is not known to be harmless has
// a pseudonym in its place: equal strings the same one, of the same shape, made
// with a key of at least 16 bytes. What was left as it is, is reported.
//
// Left are: numbers, booleans, null, property names; types, enumerated words,
// ids of messages; models, makers and versions; and in paths and ids the names
// that the schemas and makers of hardware give, with numbers up to three digits.
func Redact(t Tree, key []byte) (Tree, *Report, error) {
	if len(key) < 16 {
		return nil, nil, errors.New("redact a captured BMC: the key must have 16 bytes or more")
	}
	r := &redactor{
		pseudonyms: pseudonyms{key: key}, names: map[string]bool{}, secret: map[string]bool{}, segments: map[string]bool{}, report: newReport(),
		telling: map[string]bool{}, holding: map[string]bool{}, done: map[string]string{}, given: map[string]string{}, taken: map[string]bool{},
	}
	for path, a := range t {
		for segment := range strings.SplitSeq(path, "/") {
			r.segments[segment] = true
		}
		r.learn("", a.Body)
	}
	out := make(Tree, len(t))
	for _, path := range slices.Sorted(maps.Keys(t)) { // in an order, so that the same key gives the same file
		a, to := t[path], r.path(path)
		if _, taken := out[to]; taken {
			return nil, nil, fmt.Errorf("redact a captured BMC: two paths get the pseudonym %s: use another key", to)
		}
		out[to] = Answer{Status: a.Status, Headers: r.headers(a.Headers), Body: r.value("", a.Body)}
	}
	return out, r.report, nil
}

// redactor is one redaction.
type redactor struct {
	pseudonyms
	names    map[string]bool // of properties: they are told anyway
	segments map[string]bool // of the paths of the tree
	secret   map[string]bool // values of properties that tell who or where
	report   *Report

	telling map[string]bool   // by property, what tells found
	holding map[string]bool   // by text, what holdsSecret found
	done    map[string]string // by segment, what it became
	given   map[string]string // by text, its pseudonym
	taken   map[string]bool   // pseudonyms
}

// telling are the names of properties whose values tell who or where a machine
// is: whatever such a value is, it is taken away wherever it occurs.
var telling = regexp.MustCompile(`(?i)serial|uuid|guid|wwn|wwid|mac_?addr|address|asset|host|fqdn|domain|user|account|password|passphrase|secret|token|credential|community|gateway|nameserver|servicetag|sku|location|contact|owner|subscri|destination|certificate|signature|licen[sc]e|email`)

// tellingNot are names that look so and hold words of the schemas.
var tellingNot = map[string]bool{
	"LocationType": true, "LocationIndicatorActive": true, "AddressOrigin": true, "AddressState": true, "AccountTypes": true, "PartLocationContext": true,
	"HostingRoles": true, "ServiceLabel": true,
}

func (r *redactor) tells(property string) bool {
	is, known := r.telling[property]
	if !known {
		is = telling.MatchString(property) && !tellingNot[property] && !strings.Contains(property, "@Redfish.AllowableValues")
		r.telling[property] = is
	}
	return is
}

// learn gathers what must be known before anything is decided.
func (r *redactor) learn(property string, value any) {
	switch at := value.(type) {
	case map[string]any:
		for name, inner := range at {
			r.names[name] = true
			r.learn(name, inner)
		}
	case []any:
		for i := range at {
			r.learn(property, at[i])
		}
	case string:
		if r.tells(property) && len(at) >= 4 && !words[at] && !strings.HasPrefix(at, "/redfish") && !isPart(at) {
			r.secret[at] = true
		}
	}
}

func (r *redactor) value(property string, value any) any {
	switch at := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(at))
		for _, name := range slices.Sorted(maps.Keys(at)) {
			out[name] = r.value(name, at[name])
		}
		return out
	case []any:
		out := make([]any, len(at))
		for i := range at {
			out[i] = r.value(property, at[i])
		}
		return out
	case string:
		return r.text(property, at)
	}
	return value
}

var (
	typeForm    = regexp.MustCompile(`^#?[A-Za-z0-9]+(\.v\d+_\d+_\d+)?(\.[A-Za-z0-9]+)?$`)
	contextForm = regexp.MustCompile(`^/redfish/v1/\$metadata(#[A-Za-z0-9._/$#]+)?$`)
	messageForm = regexp.MustCompile(`^[A-Za-z]+(\.\d+){1,3}\.[A-Za-z0-9]+$`)
	addressForm = regexp.MustCompile(`(?i)^([0-9a-f]{2,4}[:-]){3,7}[0-9a-f]{2,4}$`)
	madeForm    = regexp.MustCompile(`^[\w .,:;/()+&@#*-]{1,96}$`)
)

// made are the properties that tell what a part is, not which one.
var made = map[string]bool{
	"Model": true, "Manufacturer": true, "Vendor": true, "Product": true, "SoftwareId": true, "PCIeType": true, "ProcessorArchitecture": true,
	"InstructionSet": true, "VendorId": true, "DeviceId": true, "MaxPCIeType": true, "Family": true,
}

// text redacts one string.
func (r *redactor) text(property, text string) string {
	kept := func(kind string) string {
		r.report.keep(kind, property, text)
		return text
	}
	switch {
	case text == "":
		return text
	case (property == "@odata.type" && typeForm.MatchString(text) || property == "@odata.context" && contextForm.MatchString(text)) && !r.holdsSecret(text):
		return kept("type")
	case property == "@odata.etag":
		return r.etag(text)
	case strings.HasPrefix(text, "/redfish"):
		return r.path(text)
	case strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://"):
		return r.url(text)
	case r.tells(property):
		return r.pseudonym(text)
	case words[text]:
		return kept("word")
	case (property == "MessageId" || property == "code") && messageForm.MatchString(text) && !r.holdsSecret(text):
		return kept("message")
	case (made[property] || strings.HasSuffix(property, "Version") || strings.HasSuffix(property, "FirmwareRevision")) && madeForm.MatchString(text) && !r.holdsSecret(text):
		if addressForm.MatchString(text) {
			return kept("version that looks like an address: see that it is none")
		}
		return kept("model or version")
	case property == "Id" || property == "MemberId" || r.segments[text]:
		return r.segment(text)
	}
	return r.pseudonym(text)
}

func (r *redactor) pseudonym(text string) string {
	r.report.Pseudonyms++
	return r.only(text, r.of(text))
}

// spread is how often another pseudonym is looked for where one is another
// text's already. There may be none: there are ten of one digit.
const spread = 64

// only gives a text the pseudonym that was found for it, or another one if a
// different text has it.
func (r *redactor) only(text, pseudonym string) string {
	if given, known := r.given[text]; known {
		return given
	}
	for i := 1; i <= spread && r.taken[pseudonym]; i++ {
		pseudonym = r.letters(text, fmt.Sprintf("%s\x00%d", text, i))
	}
	r.given[text], r.taken[pseudonym] = pseudonym, true
	return pseudonym
}

// holdsSecret tells whether a value has in it what another property tells of
// this machine alone.
func (r *redactor) holdsSecret(text string) bool {
	if holds, known := r.holding[text]; known {
		return holds
	}
	holds := r.secret[text]
	for secret := range r.secret {
		holds = holds || strings.Contains(text, secret)
	}
	r.holding[text] = holds
	return holds
}

func (r *redactor) etag(text string) string {
	if strong, weak := strings.CutPrefix(text, "W/"); weak {
		return "W/" + r.pseudonym(strong)
	}
	return r.pseudonym(text)
}

func (r *redactor) headers(headers map[string]string) map[string]string {
	if len(headers) == 0 {
		return nil
	}
	out := make(map[string]string, len(headers))
	for name, value := range headers {
		switch name {
		case "ETag":
			out[name] = r.etag(value)
		case "Location":
			out[name] = r.text("@odata.id", value)
		case "Retry-After":
			out[name] = r.text(name, value)
			if len(value) <= 4 {
				out[name] = value
			}
		default:
			out[name] = value
			if !madeForm.MatchString(value) || r.holdsSecret(value) {
				out[name] = r.pseudonym(value)
			}
		}
	}
	return out
}

func (r *redactor) url(text string) string {
	scheme, rest, _ := strings.Cut(text, "://")
	host, path, hasPath := strings.Cut(rest, "/")
	name, port, hasPort := strings.Cut(host, ":")
	out := scheme + "://" + r.pseudonym(name)
	if hasPort {
		out += ":" + port
	}
	if hasPath {
		out += r.path("/" + path)
	}
	return out
}

// path redacts a path, segment by segment.
func (r *redactor) path(path string) string {
	path, query, hasQuery := strings.Cut(path, "?")
	path, fragment, hasFragment := strings.Cut(path, "#")
	out := r.segmentsOf(path)
	if hasFragment {
		out += "#" + r.segmentsOf(fragment)
	}
	if hasQuery {
		pairs := strings.Split(query, "&")
		for i, pair := range pairs {
			if name, value, ok := strings.Cut(pair, "="); ok && !(strings.HasPrefix(name, "$") && len(value) <= 6 && strings.Trim(value, "0123456789") == "") {
				pairs[i] = name + "=" + r.pseudonym(value)
			}
		}
		out += "?" + strings.Join(pairs, "&")
	}
	return out
}

func (r *redactor) segmentsOf(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = r.segment(parts[i])
	}
	return strings.Join(parts, "/")
}

// segment redacts one part of a path, or an id: the names of the schemas stay,
// and of what makers call their parts the words and small numbers.
func (r *redactor) segment(text string) string {
	out, known := r.done[text]
	if !known {
		out = r.redactSegment(text)
		r.done[text] = out
	}
	return out
}

func (r *redactor) redactSegment(text string) string {
	if text == "" || schemaWords[text] || !r.secret[text] && (r.names[text] || r.names["#"+text] || actionInfoForm.MatchString(text)) {
		return text
	}
	pieces := pieceForm.FindAllString(text, -1)
	known := slices.ContainsFunc(pieces, func(piece string) bool { return hasLetters(piece) && r.harmless(piece) })
	if !known && !(indexForm.MatchString(text) && !r.secret[text]) {
		return r.pseudonym(text)
	}
	changed := false
	out := pieceForm.ReplaceAllStringFunc(text, func(piece string) string {
		if r.harmless(piece) {
			return piece
		}
		changed = true
		return r.only(piece, r.letters(piece, piece))
	})
	if changed {
		r.report.Pseudonyms++
	} else {
		r.report.keep("name of a part", "path or Id", text)
	}
	return out
}

var (
	pieceForm      = regexp.MustCompile(`[\pL\pN]+`)
	runForm        = regexp.MustCompile(`[A-Za-z]+|[0-9]+|[^A-Za-z0-9]+`)
	camelForm      = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)
	indexForm      = regexp.MustCompile(`^\d{1,3}([-_]\d{1,3}){0,2}$`)
	actionInfoForm = regexp.MustCompile(`^[A-Z][A-Za-z]{2,40}ActionInfo$`)
)

func hasLetters(piece string) bool { return strings.Trim(piece, "0123456789") != "" }

// harmless tells whether a piece of an id is made of known words, single letters
// and numbers of up to three digits, and is nothing that tells of this machine.
func (r *redactor) harmless(piece string) bool { return !r.secret[piece] && isPart(piece) }

// isPart tells whether a text could be what a maker calls a part.
func isPart(text string) bool {
	for _, run := range runForm.FindAllString(text, -1) {
		switch first := run[0]; {
		case first >= '0' && first <= '9':
			if len(run) > 3 {
				return false
			}
		case !isLetter(first):
			return false
		case len(run) == 1 || parts[strings.ToLower(run)]:
		default:
			for _, word := range camelForm.FindAllString(run, -1) {
				if !parts[strings.ToLower(word)] {
					return false
				}
			}
		}
	}
	return true
}

func isLetter(b byte) bool { return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' }
