package placement

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/keystone"
)

// answered gives an answer of Placement its meaning.
func (c *Client) answered(op string, answer gophercloud.ErrUnexpectedResponseCode) *sources.Error {
	text, code, own := message(answer.Body)
	advice := keystone.Advice(&answer, "placement", "read and change Placement")
	if answer.Actual == http.StatusNotFound && !own {
		advice = "; check the url: no Placement answers there"
	}
	return &sources.Error{
		Kind:       meaning(answer.Actual, code, text, own),
		Op:         op,
		Message:    fmt.Sprintf("HTTP %d: %s", answer.Actual, text) + advice,
		RetryAfter: sources.RetryAfter(answer.ResponseHeader, c.clock()),
		Err:        keystone.Bare(answer),
	}
}

// meaning classifies an answer; own says that Placement itself spoke, not a
// proxy before it.
func meaning(status int, code, text string, own bool) sources.Kind {
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return sources.KindForbidden
	case status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout:
		return sources.KindTransient
	case status >= 300 && status < 400:
		return sources.KindRefused
	case !own:
		return sources.KindTransient
	case status == http.StatusNotFound && (strings.Contains(text, "No resource provider with uuid") || strings.Contains(text, "No allocations for consumer")):
		return sources.KindMissing
	case status == http.StatusConflict && code == "placement.concurrent_update":
		return sources.KindLocked
	case status == http.StatusConflict:
		return sources.KindConflict
	}
	return sources.KindRefused
}

// message finds the text and the code of an error body.
func message(body []byte) (text, code string, own bool) {
	var answer struct {
		Errors []struct {
			Title  string `json:"title"`
			Detail string `json:"detail"`
			Code   string `json:"code"`
		} `json:"errors"`
		Message string `json:"message"` // of what refuses a request before Placement sees it
	}
	if json.Unmarshal(body, &answer) != nil {
		return keystone.Excerpt("Placement", body), "", false
	}
	for _, e := range answer.Errors {
		// The first line is what the status means anywhere.
		_, own, _ := strings.Cut(e.Detail, "\n\n")
		for _, text := range []string{own, e.Detail, e.Title} {
			if text = strings.TrimSpace(text); text != "" {
				return sources.CleanText(text, 500), e.Code, true
			}
		}
	}
	if answer.Message != "" {
		return sources.CleanText(strings.TrimSpace(strings.ReplaceAll(answer.Message, "<br />", "")), 500), "", true
	}
	return keystone.Excerpt("Placement", body), "", false
}

// foreign is the error of a body with status 200 that is not what was asked for.
func foreign(op string, body []byte) *sources.Error {
	text, _, own := message(body)
	if own {
		text = "an error with status 200: " + text
	}
	return &sources.Error{Kind: sources.KindTransient, Op: op, Message: text}
}

func refused(kind sources.Kind, op, format string, args ...any) error {
	return &sources.Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...)}
}
