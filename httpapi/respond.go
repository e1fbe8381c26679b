package httpapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// reply is what a handler answers.
type reply struct {
	status   int // 0: 200
	body     any // encoded as JSON
	etag     bool
	location string // of what was made; "" for nothing
}

func ok(body any) *reply { return &reply{body: body} }

// nothing is the answer of what has nothing to show.
func nothing() *reply { return &reply{status: http.StatusNoContent} }

// tagged is a single resource: who has it already may ask whether it changed.
func tagged(body any) *reply { return &reply{body: body, etag: true} }

// list is one page. Next is the address of the one behind it.
type list[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
}

func (a *reply) write(w http.ResponseWriter, r *http.Request) error {
	if a.status == http.StatusNoContent {
		w.WriteHeader(a.status)
		return nil
	}
	var buf bytes.Buffer
	encoder := json.NewEncoder(&buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(a.body); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	head := w.Header()
	head.Set("Content-Type", "application/json")
	head.Set("Cache-Control", "no-cache")
	if a.etag {
		sum := sha256.Sum256(buf.Bytes())
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		head.Set("ETag", tag)
		if matches(r.Header.Get("If-None-Match"), tag) {
			w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if a.location != "" {
		head.Set("Location", a.location)
	}
	head.Set("Content-Length", strconv.Itoa(buf.Len()))
	status := a.status
	if status == 0 {
		status = http.StatusOK
	}
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the caller may be gone
	return nil
}

// matches compares tags weakly, as If-None-Match does.
func matches(header, tag string) bool {
	for one := range strings.SplitSeq(header, ",") {
		if one = strings.TrimPrefix(strings.TrimSpace(one), "W/"); one == tag || one == "*" {
			return true
		}
	}
	return false
}

// orNil shows an empty text as null.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// instant shows a zero instant as null.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// listed shows no members as an empty list.
func listed[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
