package ironic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// ErrForeign says that what was to be changed was set by somebody else.
var ErrForeign = errors.New("set by somebody else")

// classify gives an error of a call its meaning.
func (c *Client) classify(op string, err error) *sources.Error {
	return keystone.Failure(op, err, func(answer gophercloud.ErrUnexpectedResponseCode) *sources.Error { return c.answered(op, answer) })
}

func (c *Client) answered(op string, answer gophercloud.ErrUnexpectedResponseCode) *sources.Error {
	text, own := message(answer.Body)
	return &sources.Error{
		Kind:       meaning(answer.Actual, text, own),
		Op:         op,
		Message:    fmt.Sprintf("HTTP %d: %s", answer.Actual, text) + advice(&answer),
		RetryAfter: sources.RetryAfter(answer.ResponseHeader, c.clock()),
		Err:        keystone.Bare(answer),
	}
}

// Ironic gives one status for several meanings: the text tells them apart.
var (
	busyTexts = []string{"is locked by host", "presently locked", "retry after the current operation", "while a state transition is in progress", "not to be locked on release"}
	goneTexts = []string{"could not be found", "doesn't have a trait"}
	// refused for what the node is doing or holding, not for the request's form
	stateTexts = []string{"can not be performed", "cannot be performed", "can't be performed", "is associated with", "already associated", "maintenance mode"}
	laterTexts = []string{"no conductor service registered", "no valid host"}
)

func says(text string, phrases []string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(text, phrase) })
}

// meaning classifies an answer; own says that Ironic itself spoke, not a proxy
// before it.
func meaning(status int, text string, own bool) sources.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return sources.KindForbidden
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return sources.KindTransient
	case status == http.StatusNotAcceptable: // the version was lost with the session: it is agreed on anew
		return sources.KindTransient
	case status >= 300 && status < 400:
		return sources.KindRefused
	case !own:
		return sources.KindTransient
	case says(text, busyTexts):
		return sources.KindLocked
	case says(text, laterTexts):
		return sources.KindTransient
	case status == http.StatusNotFound && says(text, goneTexts):
		return sources.KindMissing
	case status == http.StatusConflict || says(text, stateTexts):
		return sources.KindConflict
	}
	return sources.KindRefused
}

func advice(answer *gophercloud.ErrUnexpectedResponseCode) string {
	if answer.Actual == http.StatusNotFound && answer.ResponseHeader.Get(headerMax) == "" {
		return "; check the url: no Ironic answers there"
	}
	return keystone.Advice(answer, "ironic", "read all nodes")
}

// message finds the text of an error body. Ironic writes JSON inside a JSON
// string, its routing, its basic authentication and Keystone other shapes.
func message(body []byte) (text string, own bool) {
	var outer struct {
		ErrorMessage json.RawMessage `json:"error_message"`
		Error        json.RawMessage `json:"error"`
	}
	if json.Unmarshal(body, &outer) == nil {
		for _, part := range []json.RawMessage{outer.ErrorMessage, outer.Error, body} {
			if text := inner(part); text != "" {
				return text, true
			}
		}
	}
	return keystone.Excerpt("Ironic", body), false
}

// inner reads one level: a text, a text that is JSON again, or an object.
func inner(raw json.RawMessage) string {
	var quoted string
	if json.Unmarshal(raw, &quoted) == nil {
		if text := object([]byte(quoted)); text != "" {
			return text
		}
		return sources.CleanText(strings.TrimSpace(quoted), 500)
	}
	return object(raw)
}

func object(raw []byte) string {
	var o struct {
		Fault       string `json:"faultstring"`
		Description string `json:"description"`
		Message     string `json:"message"`
		Title       string `json:"title"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return ""
	}
	for _, text := range []string{o.Fault, o.Description, o.Message, o.Title} {
		if text != "" {
			return sources.CleanText(text, 500)
		}
	}
	return ""
}

// foreign is the error of a body with status 200 that is not what was asked for.
func foreign(op string, body []byte) *sources.Error {
	text, own := message(body)
	if own {
		text = "an error with status 200: " + text
	}
	return &sources.Error{Kind: sources.KindTransient, Op: op, Message: text}
}

// lostSession says that the next call must connect anew: no answer came, or
// the version was not accepted.
func lostSession(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var answer gophercloud.ErrUnexpectedResponseCode
	if errors.As(err, &answer) {
		return answer.Actual == http.StatusNotAcceptable
	}
	var classified *sources.Error
	return errors.As(err, &classified) && classified.Kind == sources.KindTransient && classified.Err != nil
}
