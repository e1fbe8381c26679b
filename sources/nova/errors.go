package nova

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// answered gives an answer of Nova its meaning.
func (c *Client) answered(op string, answer gophercloud.ErrUnexpectedResponseCode) *sources.Error {
	text, own := message(answer.Body)
	advice := keystone.Advice(&answer, "nova", "see and delete the servers of all projects, and to say where one is created")
	if answer.Actual == http.StatusNotFound && !own {
		advice = "; check the url: no Nova answers there"
	}
	return &sources.Error{
		Kind:       meaning(answer.Actual, text, own),
		Op:         op,
		Message:    fmt.Sprintf("HTTP %d: %s", answer.Actual, text) + advice,
		RetryAfter: sources.RetryAfter(answer.ResponseHeader, c.clock()),
		Err:        keystone.Bare(answer),
	}
}

// meaning classifies an answer; own says that Nova itself spoke, not a proxy
// before it. A 413 is Nova's old way of saying "too many requests".
func meaning(status int, text string, own bool) sources.Kind {
	switch {
	case status == http.StatusForbidden && own && strings.Contains(text, "Quota exceeded"):
		return sources.KindConflict
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return sources.KindForbidden
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status == http.StatusRequestEntityTooLarge:
		return sources.KindTransient
	case status >= 300 && status < 400:
		return sources.KindRefused
	case !own:
		return sources.KindTransient
	case status == http.StatusNotFound && strings.Contains(text, "Instance ") && strings.Contains(text, "could not be found"):
		return sources.KindMissing
	case status == http.StatusConflict:
		return sources.KindConflict
	}
	return sources.KindRefused
}

// message finds the text of an error body: one object under a name that says
// the status, such as itemNotFound or conflictingRequest.
func message(body []byte) (text string, own bool) {
	var answer map[string]json.RawMessage
	if json.Unmarshal(body, &answer) == nil && len(answer) == 1 {
		for _, fault := range answer {
			var inner struct {
				Message string `json:"message"`
			}
			if json.Unmarshal(fault, &inner) == nil && inner.Message != "" {
				return sources.CleanText(inner.Message, 500), true
			}
		}
	}
	return keystone.Excerpt("Nova", body), false
}

// foreign is the error of a body with status 200 that is not what was asked for.
func foreign(op string, body []byte) *sources.Error {
	text, own := message(body)
	if own {
		text = "an error with status 200: " + text
	}
	return &sources.Error{Kind: sources.KindTransient, Op: op, Message: text}
}

func refused(kind sources.Kind, op, format string, args ...any) error {
	return &sources.Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...)}
}
