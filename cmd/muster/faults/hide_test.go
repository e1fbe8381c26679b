package faults

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
)

const devicesPath = "/api/dcim/devices/"

// hide keeps devices from muster's token as a constraint on NetBox's permissions
// does: they are in no listing and not counted, and asked for by id they are not
// found.
func (f *fleet) hide(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, of := strings.CutPrefix(r.URL.Path, devicesPath)
		f.mu.Lock()
		defer f.mu.Unlock()
		if !of || len(f.hidden) == 0 {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if id, err := strconv.Atoi(strings.TrimSuffix(rest, "/")); err == nil {
			if f.hidden[id] {
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.Write([]byte(`{"detail":"No Device matches the given query."}`))
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		whole := r.Clone(r.Context())
		query := whole.URL.Query()
		query.Set("limit", "1000")
		whole.URL.RawQuery = query.Encode()
		seen := httptest.NewRecorder()
		next.ServeHTTP(seen, whole)
		w.WriteHeader(seen.Code)
		_, _ = w.Write(f.without(seen.Body.Bytes()))
	})
}

// without takes the hidden from a listing of one page.
func (f *fleet) without(body []byte) []byte {
	var page map[string]any
	if json.Unmarshal(body, &page) != nil {
		return body
	}
	results, _ := page["results"].([]any)
	page["results"] = slices.DeleteFunc(results, func(one any) bool {
		id, _ := one.(map[string]any)["id"].(float64)
		return f.hidden[int(id)]
	})
	page["count"] = len(page["results"].([]any))
	out, err := json.Marshal(page)
	if err != nil {
		return body
	}
	return out
}
