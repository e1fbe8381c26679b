package keystone

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// Failure gives an error of a call to a service its meaning. answered judges an
// answer of the service itself; what Keystone said while a token was replaced is
// judged here.
func Failure(op string, err error, answered func(gophercloud.ErrUnexpectedResponseCode) *sources.Error) *sources.Error {
	var failed *gophercloud.ErrUnableToReauthenticate
	if errors.As(err, &failed) {
		return sources.Failure(op, failed.ErrReauth)
	}
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) {
		return answered(answer)
	}
	return sources.Failure(op, err)
}

// Bare keeps the status of an answer and drops its body, which may be large and
// foreign.
func Bare(answer gophercloud.ErrUnexpectedResponseCode) error {
	answer.Body = nil
	return answer
}

// Advice says what a status asks of the operator whichever service gave it; ""
// for nothing.
func Advice(answer *gophercloud.ErrUnexpectedResponseCode, source, role string) string {
	switch status := answer.Actual; {
	case status == http.StatusUnauthorized:
		return "; check the credentials of this site's " + source + " source"
	case status == http.StatusForbidden:
		return "; the user needs a role that may " + role
	case status >= 300 && status < 400:
		return "; it redirects to " + sources.CleanText(answer.ResponseHeader.Get("Location"), 200) + ": configure the address that answers itself"
	}
	return ""
}

// refused gives an error of Keystone its meaning. Whatever Keystone does not
// find, a user, a project or an application credential, it says of our
// credentials and never of a thing that a service has.
func (l *Login) refused(err error) *sources.Error {
	var answer gophercloud.ErrUnexpectedResponseCode
	if !errors.As(err, &answer) {
		return sources.Failure(loginOp, err)
	}
	text, own := message(answer.Body)
	out := &sources.Error{
		Kind: sources.KindTransient, Op: loginOp, Err: Bare(answer),
		Message:    fmt.Sprintf("Keystone answers HTTP %d: %s", answer.Actual, text),
		RetryAfter: sources.RetryAfter(answer.ResponseHeader, l.clock()),
	}
	switch status := answer.Actual; {
	case status >= 300 && status < 400:
		out.Kind = sources.KindRefused
		out.Message += Advice(&answer, "", "")
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500:
	case own, status == http.StatusUnauthorized, status == http.StatusForbidden:
		out.Kind = sources.KindForbidden
		out.Message += "; check the user, the password and the project that this site names"
	}
	return out
}

// message finds the text of an error body of Keystone; own says that it is one.
func message(body []byte) (text string, own bool) {
	var answer struct {
		Error struct {
			Message string `json:"message"`
			Title   string `json:"title"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &answer) == nil {
		for _, text := range []string{answer.Error.Message, answer.Error.Title} {
			if text != "" {
				return sources.CleanText(text, 500), true
			}
		}
	}
	return Excerpt("Keystone", body), false
}

// Excerpt shows the beginning of a body that is not the service's.
func Excerpt(service string, body []byte) string {
	text := strings.Join(strings.Fields(sources.CleanText(string(body), 300)), " ")
	if text == "" {
		return "an empty answer"
	}
	return "not " + service + "'s answer: " + text
}
