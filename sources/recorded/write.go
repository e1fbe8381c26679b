package recorded

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// Write stores a listing under DIR/<site>/<source>.json, one record a line,
// ascending by ref. The file is replaced whole or not at all. Records that could
// not be read are left out.
func Write(dir, site, source string, at time.Time, records []sources.Record) error {
	if _, known := families[source]; !known || site == "" || strings.ContainsAny(site, `/\`) || site[0] == '.' {
		return fmt.Errorf("write the recording of %q at site %q: there is no such source or site", source, site)
	}
	path := Path(dir, site, source)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write the recording of %s: %w", source, err)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "."+source+"-*.json")
	if err != nil {
		return fmt.Errorf("write the recording of %s: %w", source, err)
	}
	defer func() { _ = os.Remove(temp.Name()) }() // after the rename there is none
	err = encode(temp, source, at, records)
	if err == nil {
		err = temp.Chmod(0o644)
	}
	if closing := temp.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the recording of %s to %s: %w", source, path, err)
	}
	return nil
}

func encode(handle *os.File, source string, at time.Time, records []sources.Record) error {
	out := bufio.NewWriter(handle)
	stamp, err := json.Marshal(at.UTC())
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "{\"source\": %q, \"at\": %s, \"records\": [", source, stamp)
	sorted := slices.SortedFunc(slices.Values(records), func(a, b sources.Record) int { return cmp.Compare(a.Ref, b.Ref) })
	separator := "\n"
	for i := range sorted {
		body := family(&sorted[i])
		if body == nil {
			continue
		}
		line, err := json.Marshal(struct {
			Ref    string `json:"ref"`
			Name   string `json:"name,omitempty"`
			Serial string `json:"serial,omitempty"`
			Facts  any    `json:"facts"`
		}{sorted[i].Ref, sorted[i].Name, sorted[i].Serial, body})
		if err != nil {
			return fmt.Errorf("record %s: %w", sorted[i].Ref, err)
		}
		fmt.Fprintf(out, "%s  %s", separator, line)
		separator = ",\n"
	}
	fmt.Fprint(out, "\n]}\n")
	return out.Flush()
}

func family(r *sources.Record) any {
	switch {
	case r.Ironic != nil:
		return r.Ironic
	case r.Placement != nil:
		return r.Placement
	case r.Slurm != nil:
		return r.Slurm
	case r.Netbox != nil:
		return r.Netbox
	case r.BMC != nil:
		return r.BMC
	}
	return nil
}
