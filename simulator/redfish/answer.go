package redfish

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type object = map[string]any

// answer is what a request gets.
type answer struct {
	status int
	body   any // object, []byte of another type, or nil
	header http.Header
	allow  string
}

// tell is an answer with a body.
func tell(status int, body object) *answer { return &answer{status: status, body: body} }

// with adds a header.
func (a *answer) with(name, value string) *answer {
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set(name, value)
	return a
}

// answer writes an answer with the headers that every one has.
func (v *view) answer(rw http.ResponseWriter, a *answer) {
	h := rw.Header()
	for name, values := range a.header {
		h[name] = values
	}
	h.Set("OData-Version", "4.0")
	h.Set("Cache-Control", "no-store")
	if a.allow != "" && (v.reads() || a.status == http.StatusMethodNotAllowed) {
		h.Set("Allow", a.allow)
	}
	var body []byte
	switch b := a.body.(type) {
	case nil:
	case []byte:
		body = b
	case object:
		var etag string
		body, etag = v.encode(b)
		if etag != "" && a.status < 300 && a.status != http.StatusAccepted {
			h.Set("ETag", etag)
			if v.r.Method == http.MethodGet && v.r.Header.Get("If-None-Match") == etag {
				a.status, body = http.StatusNotModified, nil
			}
		}
		if a.status < 300 {
			if name, ok := strings.CutPrefix(fmt.Sprint(b["@odata.type"]), "#"); ok {
				h.Set("Link", "<"+schemaOf(name)+">; rel=describedby")
			}
		}
		h.Set("Content-Type", "application/json")
	}
	if a.status != http.StatusNoContent && a.status != http.StatusNotModified {
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	rw.WriteHeader(a.status)
	if v.r.Method != http.MethodHead && len(body) > 0 {
		_, _ = rw.Write(body) // a client that has gone wants no answer
	}
}

// reads tells whether the request only reads.
func (v *view) reads() bool { return v.r.Method == http.MethodGet || v.r.Method == http.MethodHead }

// schemaOf is where a type's JSON schema is published: type is such as
// Chassis.v1_22_0.Chassis.
func schemaOf(name string) string {
	return "http://redfish.dmtf.org/schemas/v1/" + name[:max(strings.LastIndexByte(name, '.'), 0)] + ".json"
}

// encode gives a resource's JSON with its ETag, which leaves out what changes
// by itself. Errors and a lenient BMC have none.
func (v *view) encode(b object) (body []byte, etag string) {
	id, isResource := b["@odata.id"].(string)
	if v.lenient() || !isResource {
		return marshal(b), ""
	}
	body = marshal(b)
	if passing(b) {
		etag = etagOf(id, b)
	} else {
		etag = digest(id, body)
	}
	return append([]byte(`{"@odata.etag":`+strconv.Quote(etag)+`,`), body[1:]...), etag
}

// notOfResources is what a body may have that makes no other ETag: the clock,
// and what is said of a change.
var notOfResources = []string{"DateTime", "@Message.ExtendedInfo"}

func passing(b object) bool {
	return slices.ContainsFunc(notOfResources, func(name string) bool { _, has := b[name]; return has })
}

// etagOf gives a resource's ETag.
func etagOf(id string, b object) string {
	if passing(b) {
		b = maps.Clone(b)
		for _, name := range notOfResources {
			delete(b, name)
		}
	}
	return digest(id, marshal(b))
}

func digest(id string, body []byte) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	_, _ = h.Write(body)
	return fmt.Sprintf(`"%016x"`, h.Sum64())
}

func marshal(b object) []byte {
	body, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("a rendered resource is no JSON: %v", err)) // only our own maps come here
	}
	return body
}

// message is an entry of the Base registry.
type message struct {
	status   int
	text     string // {0}, {1}: arguments
	severity string
	remedy   string
}

const registry = "Base.1.18."

var messages = map[string]message{
	"NoValidSession":                  {401, "No valid session: log in, or give the credentials of an account.", "Critical", "Log in and repeat the request."},
	"InsufficientPrivilege":           {403, "The account lacks the privilege for this.", "Critical", "Use an account that has it."},
	"ResourceMissingAtURI":            {404, "There is no resource at {0}.", "Critical", "Correct the URI."},
	"OperationNotAllowed":             {405, "The resource does not support this method.", "Critical", "Look at the Allow header."},
	"ActionNotSupported":              {400, "The action {0} is not supported by the resource.", "Critical", "Look at the resource's actions."},
	"MalformedJSON":                   {400, "The body is no JSON object.", "Critical", "Correct the body."},
	"UnrecognizedRequestBody":         {415, "The body is of a type that is not understood.", "Warning", "Send application/json."},
	"HeaderInvalid":                   {412, "The header {0} has an invalid value.", "Warning", "Correct the header."},
	"PreconditionFailed":              {412, "The ETag is not the resource's current one.", "Critical", "Read the resource again."},
	"PreconditionRequired":            {428, "A change needs an If-Match header.", "Critical", "Read the resource and give its ETag."},
	"QueryNotSupported":               {501, "The query parameter {0} is not supported.", "Warning", "Leave it out."},
	"QueryParameterValueTypeError":    {400, "The value {0} of the query parameter {1} is of another type.", "Warning", "Correct the value."},
	"NoOperation":                     {400, "The body holds nothing to change.", "Warning", "Name a property to change."},
	"PropertyUnknown":                 {400, "The property {0} is not known here.", "Warning", "Leave it out."},
	"PropertyMissing":                 {400, "The property {0} is required.", "Warning", "Add it."},
	"PropertyValueTypeError":          {400, "The value {0} of the property {1} is of another type.", "Warning", "Correct the value."},
	"PropertyValueNotInList":          {400, "The value {0} of the property {1} is not an acceptable one.", "Warning", "Choose from the list."},
	"PropertyValueFormatError":        {400, "The value {0} of the property {1} has another format.", "Warning", "Correct the value."},
	"ResourceAlreadyExists":           {400, "There is a {0} already whose {1} is {2}.", "Critical", "Choose another."},
	"CreateLimitReachedForResource":   {400, "No more can be created here.", "Critical", "Delete one first."},
	"ActionParameterMissing":          {400, "The action {0} needs the parameter {1}.", "Critical", "Add it."},
	"ActionParameterUnknown":          {400, "The action {0} has no parameter {1}.", "Warning", "Leave it out."},
	"ActionParameterValueTypeError":   {400, "The value {0} of the parameter {1} of {2} is of another type.", "Warning", "Correct the value."},
	"ActionParameterValueFormatError": {400, "The value {0} of the parameter {1} of {2} has another format.", "Warning", "Correct the value."},
	"ActionParameterValueNotInList":   {400, "The value {0} of the parameter {1} of {2} is not an acceptable one.", "Warning", "Choose from the list."},
	"ResourceInUse":                   {503, "An update is under way.", "Warning", "Wait for its end."},
	"SessionLimitExceeded":            {503, "All sessions are in use.", "Critical", "End another session first."},
	"ServiceTemporarilyUnavailable":   {503, "The service is not ready. Retry in {0} seconds.", "Critical", "Wait and repeat the request."},
	"InternalError":                   {500, "The request failed inside the service.", "Critical", "Repeat the request."},
	"InvalidOperationForSystemState":  {400, "This is not possible while the power is {0}.", "Warning", "None."},
	"ResourceInStandby":               {503, "The part is in standby while the host is off.", "Critical", "Switch the host on."},
	"AccountForSessionNoLongerExists": {401, "The account of this session is gone.", "OK", "Log in anew."},
}

// info renders one message.
func info(id string, property string, args ...string) object {
	m := messages[id]
	text, remedy := m.text, m.remedy
	for i, arg := range args {
		place := "{" + strconv.Itoa(i) + "}"
		text, remedy = strings.ReplaceAll(text, place, arg), strings.ReplaceAll(remedy, place, arg)
	}
	list := make([]any, len(args))
	for i := range args {
		list[i] = args[i]
	}
	o := object{
		"@odata.type": "#Message.v1_1_2.Message", "MessageId": registry + id, "Message": text,
		"MessageArgs": list, "MessageSeverity": m.severity, "Severity": m.severity, "Resolution": remedy,
	}
	if property != "" {
		o["RelatedProperties"] = []any{"#/" + property}
	}
	return o
}

// refuse is the answer of an error.
func refuse(id string, args ...string) *answer { return refuseAt(id, "", args...) }

// refuseAt is refuse that names the property at fault.
func refuseAt(id, property string, args ...string) *answer {
	return refuseAll(info(id, property, args...))
}

// refuseAll is the answer of several errors; the first gives the status.
func refuseAll(infos ...object) *answer {
	first := infos[0]
	id, _ := first["MessageId"].(string)
	list := make([]any, len(infos))
	for i := range infos {
		list[i] = infos[i]
	}
	a := tell(messages[strings.TrimPrefix(id, registry)].status, object{"error": object{
		"code": id, "message": first["Message"], "@Message.ExtendedInfo": list,
	}})
	switch a.status {
	case http.StatusUnauthorized:
		a.with("WWW-Authenticate", `Basic realm="Redfish"`)
	case http.StatusServiceUnavailable:
		a.with("Retry-After", "5")
	}
	return a
}
