package recorded

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// families are the sources that a file may hold, by the family of facts that
// its records carry. The source "file" is an inventory of one's own, in the
// form of NetBox's facts.
var families = map[string]string{
	"ironic": "ironic", "placement": "placement", "slurm": "slurm", "netbox": "netbox", "file": "netbox", "bmc": "bmc",
}

const (
	fileLimit = 1 << 30 // bytes
	textLimit = 1024    // of a ref, a name, a serial
)

// Path is where a folder of recordings keeps one source of one site.
func Path(dir, site, source string) string { return filepath.Join(dir, site, source+".json") }

// file is the form of a recording.
type file struct {
	Source  string            `json:"source"`
	At      time.Time         `json:"at"` // when it was recorded; a listing of it is as of now
	Records []json.RawMessage `json:"records"`
}

type entry struct {
	Ref    string          `json:"ref"`
	Name   string          `json:"name"`
	Serial string          `json:"serial"`
	Facts  json.RawMessage `json:"facts"`
}

// read gives the elements of a file; the error names file and line.
func read(path, source string) (*file, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var f file
	if err := decoder.Decode(&f); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, lineOf(data, err, decoder.InputOffset()), err)
	}
	if rest := bytes.TrimSpace(data[decoder.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("%s:%d: there is more behind the listing", path, line(data, int64(len(data)-len(rest))))
	}
	if f.Source != source {
		return nil, fmt.Errorf("%s:1: it holds the source %q, not %q", path, f.Source, source)
	}
	if f.Records == nil {
		return nil, fmt.Errorf("%s:1: it has no records: an empty listing is written \"records\": []", path)
	}
	return &f, nil
}

func readBounded(path string) ([]byte, error) {
	handle, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = handle.Close() }()
	data, err := io.ReadAll(io.LimitReader(handle, fileLimit+1))
	if err == nil && len(data) > fileLimit {
		err = fmt.Errorf("%s: %w of %d bytes", path, sources.ErrTooLarge, fileLimit)
	}
	return data, err
}

func lineOf(data []byte, err error, read int64) int {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		read = syntax.Offset
	case errors.As(err, &kind):
		read = kind.Offset
	case errors.Is(err, io.ErrUnexpectedEOF):
		read = int64(len(data))
	}
	return line(data, read)
}

func line(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte("\n"))
}

// decode gives one record; ok is false where it has no readable identity.
func decode(element json.RawMessage, source string, at time.Time) (record sources.Record, ok bool) {
	var e entry
	if err := json.Unmarshal(clean(element), &e); err != nil {
		var identity struct {
			Ref string `json:"ref"`
		}
		if json.Unmarshal(clean(element), &identity) != nil || identity.Ref == "" {
			return record, false
		}
		return sources.Record{Ref: text(identity.Ref), At: at, Undecodable: err.Error()}, true
	}
	record = sources.Record{Ref: text(e.Ref), Name: text(e.Name), Serial: text(e.Serial), At: at}
	if sources.PlaceholderSerial(record.Serial) {
		record.Serial = ""
	}
	if record.Ref == "" {
		return record, false
	}
	if len(e.Facts) == 0 || string(e.Facts) == "null" {
		record.Undecodable = "it has no facts"
		return record, true
	}
	if err := decodeFacts(&record, families[source], e.Facts); err != nil {
		record.Undecodable = err.Error()
	}
	return record, true
}

func text(s string) string { return sources.CleanText(strings.TrimSpace(s), textLimit) }
