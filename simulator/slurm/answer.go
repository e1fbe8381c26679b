package slurm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/musterhq/muster/simulator/wire"
)

// exchange is one request and its answer in the making.
type exchange struct {
	*face
	v    *version
	w    http.ResponseWriter
	r    *http.Request
	from caller
}

// document is an answer; Body are its members before meta, each with its comma.
type document struct {
	status   int
	body     []byte
	errors   []string // as JSON
	warnings []string // as JSON
}

// set adds a member, whose value add appends.
func (d *document) set(name string, add func(b []byte) []byte) {
	d.body = append(wire.Quote(d.body, name), ':')
	d.body = append(add(d.body), ',')
}

func (d *document) raw(name, value string) {
	d.set(name, func(b []byte) []byte { return append(b, value...) })
}

// fail adds an error in the form that most answers of the version have.
func (d *document) fail(e fault) {
	d.errors = append(d.errors, fmt.Sprintf(`{"description":%s,"error_number":%d,"error":%s,"source":%s}`,
		wire.Quote(nil, e.about), e.number, wire.Quote(nil, e.text), wire.Quote(nil, e.source)))
}

// failShort adds an error in one of the short forms of the old versions.
func (d *document) failShort(member string, e fault) {
	d.errors = append(d.errors, fmt.Sprintf(`{"error":%s,%q:%d}`, wire.Quote(nil, e.text), member, e.number))
}

func (d *document) warn(about, source string) {
	d.warnings = append(d.warnings, fmt.Sprintf(`{"description":%s,"source":%s}`, wire.Quote(nil, about), wire.Quote(nil, source)))
}

// answer writes the document.
func (x *exchange) answer(d *document) {
	status := d.status
	if status == 0 {
		status = http.StatusOK
	}
	b := make([]byte, 0, len(d.body)+1024)
	b = append(b, '{')
	b = append(b, d.body...)
	b = append(b, `"meta":`...)
	b = x.meta(b)
	b = append(b, `,"errors":[`...)
	b = append(b, strings.Join(d.errors, ",")...)
	b = append(b, ']')
	if !x.v.old() {
		b = append(b, `,"warnings":[`...)
		b = append(b, strings.Join(d.warnings, ",")...)
		b = append(b, ']')
	}
	b = append(b, '}')
	x.w.Header().Set("Content-Type", "application/json")
	x.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(b) // the caller may have left
}

// meta appends who answers.
func (x *exchange) meta(b []byte) []byte {
	part := strings.Split(x.v.release.name, ".") // major, minor, micro as the release names them
	if x.v.old() {
		return fmt.Appendf(b, `{"plugin":{"type":"openapi/%s","name":"Slurm OpenAPI %s"},"Slurm":{"version":{"major":%s,"micro":%s,"minor":%s},"release":%q}}`,
			x.v.name, x.v.name, part[0], part[2], strings.TrimLeft(part[1], "0"), x.v.release.name)
	}
	user := x.from.user
	if user == "" {
		user = "root"
	}
	return fmt.Appendf(b, `{"plugin":{"type":"openapi/slurmctld","name":"Slurm OpenAPI slurmctld","data_parser":"data_parser/%s","accounting_storage":""},`+
		`"client":{"source":%s,"user":%s,"group":%s},"command":[],"slurm":{"version":{"major":%q,"micro":%q,"minor":%q},"release":%q,"cluster":%s}}`,
		x.v.name, wire.Quote(nil, x.r.RemoteAddr+"(fd:9)"), wire.Quote(nil, user), wire.Quote(nil, user), part[0], part[2], part[1], x.v.release.name, wire.Quote(nil, x.site))
}

// plain is how slurmrestd answers what it does not pass on.
func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// bodyLimit bounds a request's body.
const bodyLimit = 4 << 20

// object reads the body as a JSON object; nil after an answer that refuses it.
func (x *exchange) object() map[string]json.RawMessage {
	body, err := io.ReadAll(io.LimitReader(x.r.Body, bodyLimit))
	if err == nil && len(bytes.TrimSpace(body)) == 0 {
		return map[string]json.RawMessage{}
	}
	var o map[string]json.RawMessage
	switch {
	case err != nil || !json.Valid(body):
		plain(x.w, http.StatusBadRequest, x.v.noParse)
		return nil
	case json.Unmarshal(body, &o) != nil || o == nil:
		d := &document{status: http.StatusInternalServerError}
		d.fail(fault{"Rejecting " + typeOf(body) + " when dictionary expected", 9209, "Data parser expected a dictionary or object", "#/"})
		x.answer(d)
		return nil
	}
	return o
}
