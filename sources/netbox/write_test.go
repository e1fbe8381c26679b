package netbox

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/sources"
)

// bench is a fake with a client that may do everything.
func bench(t *testing.T, generation int) (*fake, *Client) {
	t.Helper()
	f := newFake(t, generation)
	return f, endpoint{url: f.server.URL, token: "good", site: "site-a"}.connect(t, nil)
}

// on runs do before the first request of a method is served.
func (f *fake) on(method string, do func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = func(f *fake, r *http.Request) {
		if r.Method == method {
			f.before = nil
			do(f)
		}
	}
}

func (f *fake) bodies(t *testing.T) (all []map[string]any) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, text := range f.writes {
		var body map[string]any
		if err := json.Unmarshal([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		all = append(all, body)
	}
	return all
}

func TestAWriteNamesOnlyWhatItChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change Change
		body   string // "" for no write
	}{
		"nothing":                     {Change{}, ""},
		"a status":                    {Change{Status: "staged"}, `{"status":"staged"}`},
		"a status that is so":         {Change{Status: "active", Note: "n"}, ""},
		"a tag beside the others":     {Change{AddTags: []string{"pilot"}}, `{"tags":[{"slug":"gpu"},{"slug":"pilot"}]}`},
		"the last tag away":           {Change{RemoveTags: []string{"gpu"}}, `{"tags":[]}`},
		"a tag that is there":         {Change{AddTags: []string{"gpu"}, RemoveTags: []string{"pilot"}}, ""},
		"a field cleared":             {Change{CustomFields: map[string]Value{"slot": Clear()}}, `{"custom_fields":{"slot":null}}`},
		"a field that is clear":       {Change{CustomFields: map[string]Value{"blob": Clear()}}, ""},
		"a choice as 4.7 reads it":    {Change{CustomFields: map[string]Value{"stage": Set(map[string]any{"value": "burn_in", "label": "Burn-in"})}}, `{"custom_fields":{"stage":"burn_in"}}`},
		"choices as 4.7 reads them":   {Change{CustomFields: map[string]Value{"features": Set([]any{map[string]any{"value": "roce", "label": "RoCE"}})}}, `{"custom_fields":{"features":["roce"]}}`},
		"choices in another order":    {Change{CustomFields: map[string]Value{"features": Set([]string{"nvme", "ib"})}}, ""},
		"a related object as read":    {Change{CustomFields: map[string]Value{"spare_site": Set(map[string]any{"id": 2, "name": "Site B", "slug": "site-b"})}}, `{"custom_fields":{"spare_site":2}}`},
		"what is so, beside the rest": {Change{Status: "staged", CustomFields: map[string]Value{"stage": Set("new"), "slot": Set(7)}, Note: "muster:1"}, `{"changelog_message":"muster:1","custom_fields":{"slot":7},"status":"staged"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, client := bench(t, 47)
			if _, err := client.Update(t.Context(), "9", c.change); err != nil {
				t.Fatal(err)
			}
			if len(f.writes) != min(len(c.body), 1) || c.body != "" && f.writes[0] != c.body {
				t.Errorf("wrote %v, want %s", f.writes, c.body)
			}
		})
	}
}

func TestAChangeBetweenReadingAndWritingIsNotOverwritten(t *testing.T) {
	t.Parallel()
	f, c := bench(t, 46)
	f.on("PATCH", func(f *fake) { f.devices[9].tags = append(f.devices[9].tags, "do-not-touch"); f.touch(f.devices[9]) })
	_, err := c.Update(t.Context(), "9", Change{AddTags: []string{"pilot"}})
	if sources.KindOf(err) != sources.KindConflict || !errors.Is(err, ErrChanged) || len(f.bodies(t)) != 0 {
		t.Fatalf("%v, wrote %v", err, f.writes)
	}
	got, err := c.Update(t.Context(), "9", Change{AddTags: []string{"pilot"}})
	if err != nil || !slices.Equal(got.Netbox.Tags, []string{"do-not-touch", "gpu", "pilot"}) {
		t.Errorf("again: %+v %v", got, err)
	}
}

func TestAWriteThatDidNotStickFails(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]Change{
		"a status": {Status: "staged"}, "a tag": {AddTags: []string{"pilot"}}, "a tag to go": {RemoveTags: []string{"gpu"}},
		"a field": {CustomFields: map[string]Value{"slot": Set(1)}}, "a field to clear": {CustomFields: map[string]Value{"slot": Clear()}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, c := bench(t, 44)
			f.mu.Lock()
			f.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == "PATCH" {
					f.show(w, r, f.devices[9])
				}
				return r.Method == "PATCH"
			}
			f.mu.Unlock()
			if _, err := c.Update(t.Context(), "9", change); sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "does not show it") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestALostAnswerIsReadAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stored bool
		kind   sources.Kind // "" for success
	}{"the write took effect": {true, ""}, "it did not": {false, sources.KindTransient}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, client := bench(t, 47)
			f.mu.Lock()
			f.instead = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != "PATCH" {
					return false
				}
				if c.stored {
					f.patch(httptest.NewRecorder(), r, f.devices[9])
				}
				panic(http.ErrAbortHandler) // the connection ends without an answer
			}
			f.mu.Unlock()
			got, err := client.Update(t.Context(), "9", Change{Status: "staged"})
			if c.kind == "" && (err != nil || got.Netbox.Status.Value != "staged") || c.kind != "" && (err == nil || sources.KindOf(err) != c.kind) {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
}

func TestTagsThatCannotBeReadAreNotWritten(t *testing.T) {
	t.Parallel()
	f, c := bench(t, 40)
	f.mu.Lock()
	f.instead = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != "GET" || !strings.HasSuffix(r.URL.Path, "/9/") {
			return false
		}
		wire := f.wire(f.devices[9])
		wire["tags"] = []any{map[string]any{"id": 1}}
		reply(w, 200, wire)
		return true
	}
	f.mu.Unlock()
	if _, err := c.Update(t.Context(), "9", Change{AddTags: []string{"pilot"}}); sources.KindOf(err) != sources.KindRefused || len(f.bodies(t)) != 0 {
		t.Errorf("%v", err)
	}
	if _, err := c.Update(t.Context(), "9", Change{AddTags: []string{"pilot"}, RemoveTags: []string{"pilot"}}); sources.KindOf(err) != sources.KindRefused {
		t.Errorf("a tag to add and to remove: %v", err)
	}
	if _, err := c.Update(t.Context(), "9", Change{Status: "staged"}); err != nil {
		t.Errorf("what needs no tags: %v", err)
	}
}

func TestADeviceThatWasDeletedMeanwhileIsNotWritten(t *testing.T) {
	t.Parallel()
	f, c := bench(t, 47)
	f.on("PATCH", func(f *fake) { delete(f.devices, 9) })
	if _, err := c.Update(t.Context(), "9", Change{Status: "staged"}); sources.KindOf(err) != sources.KindForbidden || !strings.Contains(err.Error(), "deleted") {
		t.Errorf("%v", err)
	}
	if _, err := c.Update(t.Context(), "9", Change{Status: "staged"}); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("again: %v", err)
	}
}

func TestValuesAreComparedByWhatTheyMean(t *testing.T) {
	t.Parallel()
	site := map[string]any{"id": 2.0, "name": "Site B", "slug": "site-b"}
	for name, c := range map[string]struct {
		want, now any
		same      bool
	}{
		"texts":                 {"a", "a", true},
		"other texts":           {"a", "b", false},
		"a number":              {4, 4.0, true},
		"a number and a text":   {"4", 4.0, false},
		"a truth":               {true, true, true},
		"nothing":               {nil, nil, true},
		"nothing against false": {nil, false, false},
		"instants":              {"2026-01-02T03:04:05+00:00", "2026-01-02T03:04:05Z", true},
		"other instants":        {"2026-01-02T03:04:06+00:00", "2026-01-02T03:04:05Z", false},
		"lists":                 {[]string{"b", "a"}, []any{"a", "b"}, true},
		"lists with doubles":    {[]string{"a", "a"}, []any{"a", "b"}, false},
		"a list and a text":     {"a", []any{"a"}, false},
		"a text and a list":     {[]string{"a"}, "a", false},
		"a list and nothing":    {[]string{}, nil, false},
		"an object by id":       {2, site, true},
		"an object by {id}":     {map[string]int{"id": 2}, site, true},
		"an object by slug":     {map[string]string{"slug": "site-b"}, site, true},
		"another object":        {3, site, false},
		"another slug":          {map[string]string{"slug": "site-a"}, site, false},
		"objects":               {[]int{2}, []any{site}, true},
		"JSON":                  {map[string]any{"a": []any{1}}, map[string]any{"a": []any{1.0}}, true},
		"other JSON":            {map[string]any{"a": 1}, map[string]any{"a": 1.0, "b": nil}, false},
	} {
		if same(c.want, c.now) != c.same {
			t.Errorf("%s: %v against %v", name, c.want, c.now)
		}
	}
}
