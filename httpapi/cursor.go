package httpapi

import (
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// cursor names a place in a list by the keys of the last item before it. It is
// opaque to callers.
func cursor(keys ...string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.Join(keys, "\x00")))
}

// after reads the keys of a cursor parameter, n of them; nil where there is
// none. The first key is a number wherever the list is one of numbered rows.
func (r *request) after(n int) ([]string, error) {
	text := r.query.Get("cursor")
	if text == "" {
		return nil, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	keys := strings.Split(string(raw), "\x00")
	if err != nil || len(keys) != n {
		return nil, badCursor()
	}
	return keys, nil
}

// afterID is after for lists of rows with an id; 0 where there is none.
func (r *request) afterID() (int64, error) {
	keys, err := r.after(1)
	if err != nil || keys == nil {
		return 0, err
	}
	return keyID(keys[0])
}

func keyID(key string) (int64, error) {
	id, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return 0, badCursor()
	}
	return id, nil
}

func badCursor() *problem {
	return refuse(http.StatusBadRequest, "request_invalid", "the request does not fit the API's description").
		with(fault{Parameter: "cursor", Detail: "not a cursor that this list gave: start without one"})
}

// limit is how many items the caller wants; the document bounds it.
func (r *request) limit() int {
	if n, err := strconv.Atoi(r.query.Get("limit")); err == nil && n > 0 {
		return min(n, maxLimit)
	}
	return defaultLimit
}

// next is the address of the page behind the given keys.
func (r *request) next(keys ...string) *string {
	query := r.URL.Query()
	query.Set("cursor", cursor(keys...))
	address := r.URL.Path + "?" + query.Encode()
	return &address
}

// key spells a number as a key of a cursor.
func key(id int64) string { return strconv.FormatInt(id, 10) }

// paged cuts the page that a request asks for from a whole list, in the order of
// its keys by bytes: a database may order names otherwise.
func paged[T any](r *request, items []T, keyOf func(T) string) (list[T], error) {
	keys, err := r.after(1)
	if err != nil {
		return list[T]{}, err
	}
	slices.SortFunc(items, func(a, b T) int { return strings.Compare(keyOf(a), keyOf(b)) })
	page := list[T]{Items: []T{}}
	for _, item := range items {
		if keys != nil && keyOf(item) <= keys[0] {
			continue
		}
		if len(page.Items) == r.limit() {
			page.Next = r.next(keyOf(page.Items[len(page.Items)-1]))
			break
		}
		page.Items = append(page.Items, item)
	}
	return page, nil
}
