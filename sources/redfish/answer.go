package redfish

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// Class is what a refusal of a BMC means, told by its message ids, whatever the
// version of their registry, and only then by the status.
type Class string

// What a BMC can refuse for.
const (
	ClassCredential Class = "credential"      // the login, or what it may do
	ClassSessions   Class = "sessions_full"   // no slot for one more session
	ClassNotReady   Class = "not_ready"       // starting, busy, or the part's own controller is down: try later
	ClassAlready    Class = "already"         // the machine is in the state that was asked for, or one that forbids it: look again
	ClassStale      Class = "precondition"    // the resource changed since it was read
	ClassMissing    Class = "missing"         // no such resource
	ClassUnable     Class = "not_implemented" // the BMC has no such function
	ClassFault      Class = "fault"           // it failed inside
	ClassRefused    Class = "refused"         // the request is wrong for this BMC
	ClassForeign    Class = "foreign"         // no Redfish service answered
)

// Refused is an answer of a BMC that is no success.
type Refused struct {
	Class  Class
	Status int
	IDs    []string // message ids without registry and version
	Text   string
}

func (r *Refused) Error() string {
	text := fmt.Sprintf("HTTP %d", r.Status)
	if len(r.IDs) > 0 {
		text += " " + strings.Join(r.IDs, ", ")
	}
	if r.Text != "" {
		text += ": " + r.Text
	}
	return text
}

// ClassOf gives the class of a BMC's refusal, "" for any other error.
func ClassOf(err error) Class {
	var r *Refused
	if errors.As(err, &r) {
		return r.Class
	}
	return ""
}

var classes = []struct {
	class Class
	ids   []string // the last part of a message id
	texts []string // in lower case, of the message
}{
	{ClassSessions, []string{"RAC0218", "SessionLimitExceeded", "CreateLimitReachedForResource"}, []string{"maximum number of user sessions", "number of simultaneous sessions"}},
	{ClassNotReady, []string{"SWC0700", "ServiceTemporarilyUnavailable", "ServiceShuttingDown", "ServiceInUnknownState", "ResourceInUse", "ResourceInStandby",
		"HMCCommuicationFailed", "HMCCommunicationFailed", "ResourceExhaustion", "OperationTimeout"}, []string{"not ready", "lifecycle controller in use", "try again later"}},
	{ClassAlready, []string{"InvalidOperationForSystemState", "NoOperation", "ResourceInSameState"}, []string{"already", "unnecessary operation"}},
	{ClassCredential, []string{"InsufficientPrivilege", "NoValidSession", "ResourceAtUriUnauthorized", "AccessDenied", "PasswordChangeRequired"}, nil},
	{ClassStale, []string{"PreconditionFailed", "PreconditionRequired"}, nil},
}

// classify gives a refusal its class. A status that says who is meant (401, 403,
// 412) outranks the text.
func classify(status int, ids []string, text string, own bool) Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ClassCredential
	case http.StatusPreconditionFailed, http.StatusPreconditionRequired:
		return ClassStale
	}
	lower := strings.ToLower(text)
	for _, c := range classes {
		if slices.ContainsFunc(c.ids, func(id string) bool { return slices.Contains(ids, id) }) {
			return c.class
		}
	}
	for _, c := range classes {
		if slices.ContainsFunc(c.texts, func(part string) bool { return strings.Contains(lower, part) }) {
			return c.class
		}
	}
	switch {
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable || status == http.StatusRequestTimeout:
		return ClassNotReady
	case status == http.StatusNotFound || status == http.StatusGone:
		return ClassMissing
	case status == http.StatusNotImplemented || status == http.StatusMethodNotAllowed:
		return ClassUnable
	case status >= 500:
		return ClassFault
	case status < 400 || !own:
		return ClassForeign
	}
	return ClassRefused
}

// kind gives the meaning that callers of every source decide on.
func (c Class) kind() sources.Kind {
	switch c {
	case ClassCredential:
		return sources.KindForbidden
	case ClassAlready, ClassStale:
		return sources.KindConflict
	case ClassMissing:
		return sources.KindMissing
	case ClassUnable, ClassRefused:
		return sources.KindRefused
	}
	return sources.KindTransient
}

// answer is what came back of one request.
type answer struct {
	at     time.Time // before the request
	status int
	header http.Header
	body   []byte
	doc    document // nil when the body is no JSON object
}

// refusal judges an answer; nil is a success. wantDoc says that a success
// without an object is none.
func (a *answer) refusal(wantDoc bool) *Refused {
	if a.status >= 200 && a.status < 300 {
		if !wantDoc || a.doc != nil && a.doc.object("error") == nil {
			return nil
		}
		if a.doc == nil {
			return &Refused{Class: ClassForeign, Status: a.status, Text: "not Redfish's answer: " + excerpt(a.body)}
		}
	}
	ids, text, own := messages(a.doc)
	if !own {
		text = excerpt(a.body)
	}
	if a.status >= 300 && a.status < 400 {
		text = "it redirects to " + sources.CleanText(a.header.Get("Location"), 200)
	}
	return &Refused{Class: classify(a.status, ids, text, own), Status: a.status, IDs: ids, Text: text}
}

// messages reads the error of an answer: the ids of its messages without
// registry and version, and a text.
func messages(d document) (ids []string, text string, own bool) {
	e := d.object("error")
	if e == nil {
		return nil, "", false
	}
	add := func(full string) {
		if short := full[strings.LastIndexByte(full, '.')+1:]; short != "" && !slices.Contains(ids, short) && short != "GeneralError" && len(ids) < 8 {
			ids = append(ids, sources.CleanText(short, 64))
		}
	}
	for _, m := range e.objects("@Message.ExtendedInfo") {
		add(m.text("MessageId"))
		if text == "" {
			text = m.text("Message")
		}
	}
	add(e.text("code"))
	if text == "" {
		text = e.text("message")
	}
	return ids, text, true
}

// failure gives an error of a call its meaning.
func (c *Client) failure(op string, a *answer, err error) *sources.Error {
	var refused *Refused
	if !errors.As(err, &refused) {
		return sources.Failure(op, err)
	}
	f := &sources.Error{Kind: refused.Class.kind(), Op: op, Message: refused.Error(), Err: refused}
	if a != nil {
		f.RetryAfter = sources.RetryAfter(a.header, c.clock())
	}
	if refused.Class == ClassCredential {
		f.Message += "; check the site's bmc.credentials and what the account may do"
	}
	return f
}

func excerpt(body []byte) string {
	text := strings.Join(strings.Fields(sources.CleanText(string(body[:min(len(body), 400)]), 200)), " ")
	if text == "" {
		return "an empty answer"
	}
	if bytes.HasPrefix(bytes.ToLower(bytes.TrimSpace(body)), []byte("<")) {
		return "a page: " + text
	}
	return text
}
