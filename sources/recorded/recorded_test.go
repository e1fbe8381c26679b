package recorded_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/recorded"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path, source string) *recorded.Source {
	t.Helper()
	s, err := recorded.New(path, source, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func list(t *testing.T, s sources.Source) ([]sources.Record, sources.End, error) {
	t.Helper()
	var all []sources.Record
	end, err := s.List(context.Background(), func(page []sources.Record) error {
		all = append(all, page...)
		return nil
	})
	return all, end, err
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for source, record := range map[string]sources.Record{
		"ironic": {Ref: "u1", Name: "n1", Serial: "S1", Ironic: &facts.Ironic{
			Listed: facts.True, ProvisionState: facts.ProvisionStateCleanWait, Maintenance: facts.False, Traits: []string{"A"},
			Lessee: facts.TextOf(""), Unreadable: map[string]string{"fault": "DecodeFailed"},
		}},
		"placement": {Ref: "u1", Name: "u1", Placement: &facts.Placement{ProviderExists: facts.True, Allocated: facts.False}},
		"slurm":     {Ref: "n1", Name: "n1", Slurm: &facts.Slurm{Listed: facts.True, States: facts.SlurmIdle | facts.SlurmDrain}},
		"netbox":    {Ref: "7", Name: "n1", Netbox: &facts.Netbox{Listed: facts.True, Role: facts.TextOf("gpu"), Tags: []string{"x"}}},
		"file":      {Ref: "7", Name: "n1", Netbox: &facts.Netbox{Listed: facts.True, Status: facts.TextOf("active")}},
		"bmc":       {Ref: "192.0.2.1", BMC: &facts.BMC{ChassisHealth: facts.RedfishHealthWarning}},
	} {
		second := record
		second.Ref = "0-" + record.Ref
		if err := recorded.Write(dir, "s", source, now.Add(-time.Hour), []sources.Record{record, second}); err != nil {
			t.Fatal(err)
		}
		got, end, err := list(t, open(t, recorded.Path(dir, "s", source), source))
		if err != nil {
			t.Fatal(err)
		}
		record.At, second.At = now, now
		if diff := cmp.Diff([]sources.Record{second, record}, got); diff != "" {
			t.Errorf("%s (-written +read):\n%s", source, diff)
		}
		if want := (sources.End{At: now, Complete: true, Records: 2}); !cmp.Equal(want, end) {
			t.Errorf("%s ended with %+v", source, end)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "s"))
	if err != nil || len(left) != 6 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

func TestABrokenFileIsAFailedListingThatNamesFileAndLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"cut short":       {"{\"source\": \"slurm\",\n\"records\": [\n{\"ref\": \"a\"", "x.json:3: "},
		"a syntax error":  {"{\"source\": \"slurm\",\n\"records\": [\n{\"ref\": \"a\",}\n]}", "x.json:3: "},
		"another shape":   {"{\"source\": \"slurm\",\n\"records\": {}}", "x.json:2: "},
		"another source":  {`{"source": "ironic", "records": []}`, `it holds the source "ironic", not "slurm"`},
		"no records":      {`{"source": "slurm"}`, "it has no records"},
		"more behind":     {"{\"source\": \"slurm\", \"records\": []}\n\n{}", "x.json:3: there is more"},
		"empty":           {"", "x.json:1: "},
		"a doubled ref":   {`{"source": "slurm", "records": [{"ref": "a", "facts": {}}, {"ref": "a", "facts": {}}]}`, `the ref "a" is there twice`},
		"a misspelt word": {`{"source": "slurm", "record": []}`, `unknown field "record"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := list(t, open(t, write(t, c.text), "slurm"))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		if _, _, err := list(t, open(t, filepath.Join(t.TempDir(), "none.json"), "slurm")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	})
}

func TestOneBadRecordCostsThatRecordAndOneBadFactThatFact(t *testing.T) {
	t.Parallel()
	path := write(t, `{"source": "ironic", "records": [
		{"ref": "good", "name": " n1\u0000 ", "serial": "Not Specified", "facts": {"provision_state": "clean wait", "last_error": "a\u0000b\\u0000"}},
		{"ref": "bad fact", "facts": {"provision_state": "flying", "maintenance": true, "power_stat": "on"}},
		{"ref": "bad facts", "facts": 7},
		{"ref": "no facts"},
		{"ref": "bad name", "name": 7, "facts": {}},
		{"name": "nobody", "facts": {}},
		"rubbish",
		{"ref": "gone", "facts": {"listed": false}}
	]}`)
	got, end, err := list(t, open(t, path, "ironic"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].Undecodable != "" {
			got[i].Undecodable = "it says why"
		}
	}
	want := []sources.Record{
		{Ref: "good", Name: "n1", At: now, Ironic: &facts.Ironic{Listed: facts.True, ProvisionState: facts.ProvisionStateCleanWait, LastError: facts.TextOf(`ab\u0000`)}},
		{Ref: "bad fact", At: now, Ironic: &facts.Ironic{
			Listed: facts.True, Maintenance: facts.True, Unreadable: map[string]string{"provision_state": "DecodeFailed", "power_stat": "DecodeFailed"},
		}},
		{Ref: "bad facts", At: now, Undecodable: "it says why"},
		{Ref: "no facts", At: now, Undecodable: "it says why"},
		{Ref: "bad name", At: now, Undecodable: "it says why"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	if end.Dropped != 2 || !end.Complete {
		t.Errorf("the listing ended with %+v", end)
	}
}

func TestAListingComesInPagesAndAnErrorEndsIt(t *testing.T) {
	t.Parallel()
	var records []sources.Record
	for i := range 1201 {
		records = append(records, sources.Record{Ref: fmt.Sprintf("n%04d", i), Slurm: &facts.Slurm{}})
	}
	dir := t.TempDir()
	if err := recorded.Write(dir, "s", "slurm", now, records); err != nil {
		t.Fatal(err)
	}
	s := open(t, recorded.Path(dir, "s", "slurm"), "slurm")
	var pages []int
	if _, err := s.List(context.Background(), func(page []sources.Record) error {
		pages = append(pages, len(page))
		return nil
	}); err != nil || !cmp.Equal(pages, []int{500, 500, 201}) {
		t.Errorf("pages of %v, %v", pages, err)
	}
	stop, calls := errors.New("stop"), 0
	if _, err := s.List(context.Background(), func([]sources.Record) error { calls++; return stop }); !errors.Is(err, stop) || calls != 1 {
		t.Errorf("after %d calls: %v", calls, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := s.List(ctx, func([]sources.Record) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled listing ends with %v", err)
	}
}

func TestGetReadsOneRecord(t *testing.T) {
	t.Parallel()
	s := open(t, write(t, `{"source": "slurm", "records": [{"ref": "a", "facts": {"states": ["IDLE"]}}, {"ref": "b", "facts": {"listed": false}}]}`), "slurm")
	record, err := s.Get(context.Background(), "a")
	if err != nil || record.Slurm.States != facts.SlurmIdle {
		t.Errorf("got %+v, %v", record, err)
	}
	for _, ref := range []string{"b", "c"} {
		if _, err := s.Get(context.Background(), ref); !errors.Is(err, sources.ErrGone) {
			t.Errorf("%s: got %v", ref, err)
		}
	}
	broken := open(t, write(t, "{"), "slurm")
	if _, err := broken.Get(context.Background(), "c"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("of a broken file: %v", err)
	}
	unclear := open(t, write(t, `{"source": "slurm", "records": [{"facts": {}}]}`), "slurm")
	if _, err := unclear.Get(context.Background(), "c"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("of a file with a record of nobody: %v", err)
	}
}

func TestOnlyKnownSourcesHaveAForm(t *testing.T) {
	t.Parallel()
	if _, err := recorded.New("x", "weather", func() time.Time { return now }); err == nil {
		t.Error("a source without a form is accepted")
	}
	for _, site := range []string{"", "..", "a/b"} {
		if err := recorded.Write(t.TempDir(), site, "slurm", now, nil); err == nil {
			t.Errorf("the site %q is accepted", site)
		}
	}
}
