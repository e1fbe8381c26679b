package capture

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// Answer is what a BMC answered to a GET.
type Answer struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // of keptHeaders
	Body    any               `json:"body,omitempty"`    // nil where it was no JSON
}

// Tree is what a BMC answered, by path, without a slash at the end.
type Tree map[string]Answer

// keptHeaders are the headers of an answer that are kept.
var keptHeaders = []string{"ETag", "Allow", "Location", "Retry-After", "Content-Type"}

// treeLimit bounds a file that is read.
const treeLimit = 512 << 20

// Path gives the form in which a tree has a path: without host and fragment,
// without a slash at its end.
func Path(uri string) string {
	uri, _, _ = strings.Cut(uri, "#")
	if at, query, found := strings.Cut(uri, "?"); found {
		return strings.TrimRight(at, "/") + "?" + query
	}
	return strings.TrimRight(uri, "/")
}

// ReadFile reads a tree, gzipped or not, in either of its forms: path → answer,
// or path → body.
func ReadFile(path string) (Tree, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	t, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read the captured BMC %s: %w", path, err)
	}
	return t, nil
}

// Read is ReadFile of what is open already.
func Read(r io.Reader) (Tree, error) {
	body, err := io.ReadAll(io.LimitReader(r, treeLimit))
	if err == nil && bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
		body, err = unzip(body)
	}
	if err != nil {
		return nil, err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(body, &raw); err != nil {
		return nil, fmt.Errorf("it must be a JSON object of paths: %w", err)
	}
	t := make(Tree, len(raw))
	for path, value := range raw {
		if !strings.HasPrefix(path, "/redfish") {
			return nil, fmt.Errorf("%q is no path of a Redfish service", path)
		}
		a, err := answerOf(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		t[Path(path)] = a
	}
	if len(t) == 0 {
		return nil, errors.New("it holds no answer")
	}
	return t, nil
}

func unzip(body []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(z, treeLimit))
}

// answerOf reads an answer, or a body alone. A body has properties that an
// answer has not.
func answerOf(raw json.RawMessage) (Answer, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	decoder.UseNumber()
	var a Answer
	if decoder.Decode(&a) == nil && a.Status >= 100 && a.Status <= 999 {
		return a, nil
	}
	body, err := decode(raw)
	return Answer{Status: http.StatusOK, Body: body}, err
}

// decode reads JSON with its numbers as they are written.
func decode(raw []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one JSON value")
	}
	return value, nil
}

// Write writes a tree, the paths in their order.
func (t Tree) Write(w io.Writer) error {
	body, err := json.MarshalIndent(t, "", " ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(body, '\n'))
	return err
}

// WriteFile writes a tree into a file that is not there yet, gzipped if its name
// ends so.
func (t Tree) WriteFile(path string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(path, ".gz") {
		return t.Write(file)
	}
	z := gzip.NewWriter(file)
	if err := t.Write(z); err != nil {
		return err
	}
	return z.Close()
}
