package netbox

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// peerVariable names the environment file of a real NetBox.
const peerVariable = "MUSTER_PEER_NETBOX"

// endpoint describes a NetBox that the suite is run against. What it leaves
// empty it does not have: the items that need it are skipped, and say so.
type endpoint struct {
	url             string
	token           string // may read and write everything
	v2              string // the same, of the second kind
	readOnly        string
	limited         string // may change the devices of site only
	none            string // of a user without permissions
	site, other     string
	devices, others int    // in site and other
	tag             string // one that NetBox has and the devices have not
	number          string // custom fields: an integer,
	choice          field  // one of several,
	choices         field  // and several of several
	odd             bool   // what netbox-seed.py makes odd on purpose
	used            *int   // devices that items have written to
}

type field struct {
	name   string
	values []string
}

// suite is what every NetBox must bear out, the fakes as well as a real one.
var suite = []struct {
	name  string
	needs func(endpoint) string // what the endpoint lacks, "" for nothing
	run   func(*testing.T, endpoint)
}{
	{"lists every device of the site once, in small pages", nil, listsAll},
	{"gives no device of other sites, and counts them", needOther, filtersSites},
	{"takes several sites as one", needOther, severalSites},
	{"an unknown site fails the listing by its name", nil, unknownSite},
	{"reads one device as it is listed", nil, readsOne},
	{"an unknown id is gone", nil, unknownID},
	{"a device of another site is gone", needOther, elsewhere},
	{"a refused token fails the listing", nil, refusedToken},
	{"a missing permission is told from a refused token", need(func(e endpoint) bool { return e.none != "" }, "a user without permissions"), noPermission},
	{"a token of the second kind", need(func(e endpoint) bool { return e.v2 != "" }, "v2 tokens"), secondToken},
	{"a renewed token file is taken up", nil, renewedToken},
	{"what is no NetBox says nothing of its devices", nil, notNetBox},
	{"who may only read is told so when writing", need(func(e endpoint) bool { return e.readOnly != "" }, "a read-only token"), readOnlyToken},
	{"who may not change a device is told so, not that it is gone", need(func(e endpoint) bool { return e.limited != "" && e.other != "" }, "a limited token"), limitedToken},
	{"sets a status, and does not write what is so", nil, writesStatus},
	{"adds and removes tags beside those of others", needTag, writesTags},
	{"sets and clears custom fields", needFields, writesFields},
	{"what NetBox does not take is refused and changes nothing", needFields, refusedValue},
	{"what NetBox does not have is refused", needTag, unknownNames},
	{"a change that rests on an old reading is refused", needTag, oldReading},
	{"a faulty way never shortens a listing", nil, faultyWay},
	{"odd values", need(func(e endpoint) bool { return e.odd }, "odd values"), oddValues},
}

func need(has func(endpoint) bool, what string) func(endpoint) string {
	return func(e endpoint) string {
		if has(e) {
			return ""
		}
		return what
	}
}

var (
	needOther  = need(func(e endpoint) bool { return e.other != "" }, "a second site")
	needTag    = need(func(e endpoint) bool { return e.tag != "" }, "a tag to add")
	needFields = need(func(e endpoint) bool { return e.number != "" && e.choice.name != "" && e.choices.name != "" }, "custom fields of three kinds")
)

func runSuite(t *testing.T, e endpoint) {
	e.used = new(int)
	for _, item := range suite {
		t.Run(item.name, func(t *testing.T) {
			if item.needs != nil {
				if lacks := item.needs(e); lacks != "" {
					t.Skipf("this NetBox lacks %s", lacks)
				}
			}
			item.run(t, e)
		})
	}
}

func TestConformanceOfTheFake(t *testing.T) {
	t.Parallel()
	for _, generation := range []int{37, 40, 44, 46, 47} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) {
			t.Parallel()
			e := endpoint{
				url: newFake(t, generation).server.URL, token: "good", readOnly: "reader", limited: "limited", none: "nobody",
				site: "site-a", other: "site-b", devices: 24, others: 6, tag: "pilot", number: "slot",
				choice: field{"stage", fakeChoices["stage"]}, choices: field{"features", fakeChoices["features"]}, odd: true,
			}
			if generation >= 45 {
				e.v2 = "nbt_key.good"
			}
			runSuite(t, e)
		})
	}
}

func TestConformanceOfARealNetBox(t *testing.T) {
	file := os.Getenv(peerVariable)
	if file == "" {
		t.Skipf("no real NetBox: %s does not name the netbox.env of one that testdata/peers/netbox-up.sh started", peerVariable)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			env[k] = v
		}
	}
	devices, _ := strconv.Atoi(env["NETBOX_DEVICES"])
	others, _ := strconv.Atoi(env["NETBOX_OTHER_DEVICES"])
	runSuite(t, endpoint{
		url: env["NETBOX_URL"], token: env["NETBOX_TOKEN"], v2: env["NETBOX_TOKEN_V2"], readOnly: env["NETBOX_TOKEN_READ_ONLY"],
		limited: env["NETBOX_TOKEN_LIMITED"], none: env["NETBOX_TOKEN_NONE"], site: env["NETBOX_SITE"], other: env["NETBOX_OTHER_SITE"],
		devices: devices, others: others, tag: "pilot", number: "slot", odd: true,
		choice: field{"stage", []string{"new", "burn_in", "production"}}, choices: field{"features", []string{"ib", "roce", "nvme"}},
	})
}

func (e endpoint) connect(t *testing.T, change func(*Config)) *Client {
	t.Helper()
	config := Config{URL: e.url, Token: e.token, Sites: []string{e.site}, HTTP: sources.Options{Retries: -1, BreakerFailures: -1}}
	if change != nil {
		change(&config)
	}
	c, err := New(config, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (e endpoint) as(t *testing.T, token string) *Client {
	return e.connect(t, func(c *Config) { c.Token = token })
}

// fresh reads a device that no other item writes to: an ordinary one from the
// list's end.
func (e endpoint) fresh(t *testing.T, c *Client) *Device {
	t.Helper()
	l := listAll(t, c)
	if l.err != nil {
		t.Fatal(l.err)
	}
	for i, skip := len(l.order)-1, *e.used; i >= 0; i-- {
		r := l.records[l.order[i]]
		if r.Name == "" || r.Netbox.Status.Value != "active" || slices.Contains(r.Netbox.Tags, e.tag) {
			continue
		}
		if skip--; skip < 0 {
			*e.used++
			d, err := c.Read(t.Context(), r.Ref)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatal("there is no device left to write to")
	return nil
}

type listed struct {
	records map[string]sources.Record
	order   []string
	pages   int
	end     sources.End
	err     error
}

func listAll(t *testing.T, c *Client) listed {
	t.Helper()
	l := listed{records: map[string]sources.Record{}}
	l.end, l.err = c.List(t.Context(), func(page []sources.Record) error {
		l.pages++
		for _, r := range page {
			if _, twice := l.records[r.Ref]; twice {
				t.Errorf("device %s is given twice", r.Ref)
			}
			l.records[r.Ref], l.order = r, append(l.order, r.Ref)
		}
		return nil
	})
	return l
}

func listsAll(t *testing.T, e endpoint) {
	before := time.Now()
	l := listAll(t, e.connect(t, func(c *Config) { c.PageSize = 7 }))
	if l.err != nil || !l.end.Complete || l.end.Dropped != 0 || len(l.records) != e.devices || l.end.Records != e.devices || l.pages != (e.devices+6)/7 {
		t.Fatalf("%d records in %d pages, %+v, %v", len(l.records), l.pages, l.end, l.err)
	}
	for ref, r := range l.records {
		f := r.Netbox
		if f == nil || len(f.Unreadable) > 0 || f.Listed != facts.True || f.Status.Value == "" || f.Role.Value == "" || f.Site.Value != e.site || !f.Serial.Known ||
			!f.Tenant.Known || !f.Rack.Known || !f.OobIP.Known || f.Tags == nil || f.CustomFields == nil || r.Undecodable != "" || r.Name != f.Name.Value ||
			r.At.Before(before) || r.At.After(time.Now()) || r.At.Before(l.end.At) {
			t.Errorf("%s: %+v %+v", ref, r, f)
		}
	}
}

func filtersSites(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.other} }))
	if l.err != nil || len(l.records) != e.others || l.end.Elsewhere != e.devices {
		t.Errorf("%d records, %+v, %v; want %d and %d elsewhere", len(l.records), l.end, l.err, e.others, e.devices)
	}
}

func severalSites(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites, c.PageSize = []string{e.other, e.site}, 10 }))
	if l.err != nil || len(l.records) != e.devices+e.others || l.end.Elsewhere != 0 {
		t.Errorf("%d records, %+v, %v", len(l.records), l.end, l.err)
	}
}

func unknownSite(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.site, "nosuchsite"} }))
	if sources.KindOf(l.err) != sources.KindRefused || !strings.Contains(l.err.Error(), "nosuchsite") || l.end.Complete {
		t.Errorf("%+v %v", l.end, l.err)
	}
}

func readsOne(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	l := listAll(t, c)
	for _, ref := range []string{l.order[0], l.order[len(l.order)/2], l.order[len(l.order)-1]} {
		// Asked of a client that has listed nothing, too.
		for _, c := range []*Client{c, e.connect(t, nil)} {
			r, err := c.Get(t.Context(), ref)
			if err != nil || r.Ref != ref || r.Serial != l.records[ref].Serial || !reflect.DeepEqual(r.Netbox, l.records[ref].Netbox) {
				t.Errorf("%+v %v, listed as %+v", r, err, l.records[ref])
			}
		}
	}
}

func unknownID(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	if r, err := c.Get(t.Context(), "999999999"); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
		t.Errorf("%+v %v", r, err)
	}
	for _, id := range []string{"", "0", "-1", "007", "1/../2", "?limit=0", "n01"} {
		if _, err := c.Get(t.Context(), id); sources.KindOf(err) != sources.KindRefused || errors.Is(err, sources.ErrGone) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func (e endpoint) foreign(t *testing.T) string {
	t.Helper()
	l := listAll(t, e.connect(t, func(c *Config) { c.Sites = []string{e.other} }))
	if l.err != nil || len(l.order) == 0 {
		t.Fatalf("site %s: %v", e.other, l.err)
	}
	return l.order[len(l.order)-1]
}

func elsewhere(t *testing.T, e endpoint) {
	_, err := e.connect(t, nil).Get(t.Context(), e.foreign(t))
	if !errors.Is(err, sources.ErrGone) || !strings.Contains(err.Error(), e.other) {
		t.Errorf("%v", err)
	}
}

func refusedToken(t *testing.T, e endpoint) {
	for _, token := range []string{strings.Repeat("0", 40), "nbt_aaaaaaaaaaaa." + strings.Repeat("0", 40)} {
		c := e.as(t, token)
		l := listAll(t, c)
		if sources.KindOf(l.err) != sources.KindForbidden || !errors.Is(l.err, ErrToken) || l.end.Complete || len(l.records) > 0 || strings.Contains(l.err.Error(), token) {
			t.Errorf("list: %+v", l)
		}
		if _, err := c.Get(t.Context(), "1"); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, sources.ErrGone) {
			t.Errorf("get: %v", err)
		}
	}
}

func noPermission(t *testing.T, e endpoint) {
	c := e.as(t, e.none)
	l := listAll(t, c)
	_, err := c.Get(t.Context(), "1")
	for _, err := range []error{l.err, err} {
		if sources.KindOf(err) != sources.KindForbidden || errors.Is(err, ErrToken) || errors.Is(err, sources.ErrGone) {
			t.Errorf("%v", err)
		}
	}
}

func secondToken(t *testing.T, e endpoint) {
	if l := listAll(t, e.as(t, e.v2)); l.err != nil || len(l.records) != e.devices {
		t.Errorf("%d records, %v", len(l.records), l.err)
	}
}

func renewedToken(t *testing.T, e endpoint) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("0", len(e.token)))
	c := e.connect(t, func(c *Config) { c.Token, c.TokenFile = "", file })
	if l := listAll(t, c); !errors.Is(l.err, ErrToken) {
		t.Fatalf("a wrong token: %v", l.err)
	}
	write(e.token)
	if l := listAll(t, c); l.err != nil {
		t.Errorf("after the renewal: %v", l.err)
	}
}

func notNetBox(t *testing.T, e endpoint) {
	c := e.connect(t, func(c *Config) { c.URL = e.url + "/api/nosuch" })
	if l := listAll(t, c); l.err == nil || l.end.Complete {
		t.Errorf("list: %+v", l)
	}
	if _, err := c.Get(t.Context(), "1"); err == nil || errors.Is(err, sources.ErrGone) {
		t.Errorf("get: %v", err)
	}
}

func readOnlyToken(t *testing.T, e endpoint) {
	c := e.as(t, e.readOnly)
	d := e.fresh(t, c)
	if _, err := c.Update(t.Context(), d.Ref, Change{Status: "staged"}); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, ErrToken) {
		t.Errorf("%v", err)
	}
}

func limitedToken(t *testing.T, e endpoint) {
	id := e.foreign(t)
	c := e.connect(t, func(c *Config) { c.Token, c.Sites = e.limited, []string{e.other} })
	d, err := c.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	status := "staged"
	if d.Netbox.Status.Value == status {
		status = "planned"
	}
	if _, err := c.Update(t.Context(), id, Change{Status: status}); sources.KindOf(err) != sources.KindForbidden || errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func writesStatus(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	sent := time.Now()
	got, err := c.Update(t.Context(), d.Ref, Change{Status: "staged", If: d.Version, Note: "muster:42"})
	if err != nil || got.Netbox.Status.Value != "staged" || got.Version == d.Version || got.At.Before(sent) {
		t.Fatalf("%+v %v", got, err)
	}
	again, err := c.Update(t.Context(), d.Ref, Change{Status: "staged"})
	if err != nil || again.Version != got.Version {
		t.Errorf("what is so already was written: %+v %v", again, err)
	}
	if back, err := c.Update(t.Context(), d.Ref, Change{Status: "active"}); err != nil || !reflect.DeepEqual(back.Netbox, d.Netbox) {
		t.Errorf("back: %+v %v, was %+v", back, err, d.Netbox)
	}
	if _, err := c.Update(t.Context(), "999999999", Change{Status: "active"}); !errors.Is(err, sources.ErrGone) {
		t.Errorf("an unknown device: %v", err)
	}
}

func writesTags(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	got, err := c.Update(t.Context(), d.Ref, Change{AddTags: []string{e.tag}})
	if err != nil || !slices.Contains(got.Netbox.Tags, e.tag) || len(got.Netbox.Tags) != len(d.Netbox.Tags)+1 {
		t.Fatalf("%+v %v", got, err)
	}
	if again, err := c.Update(t.Context(), d.Ref, Change{AddTags: []string{e.tag}, RemoveTags: []string{"never-there"}}); err != nil || again.Version != got.Version {
		t.Errorf("what is so already was written: %v", err)
	}
	if back, err := c.Update(t.Context(), d.Ref, Change{RemoveTags: []string{e.tag}}); err != nil || !reflect.DeepEqual(back.Netbox, d.Netbox) {
		t.Errorf("back: %+v %v, was %+v", back, err, d.Netbox)
	}
}

func writesFields(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	got, err := c.Update(t.Context(), d.Ref, Change{CustomFields: map[string]Value{
		e.choice.name: Set(e.choice.values[1]), e.choices.name: Set(e.choices.values), e.number: Set(4711),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{e.choice.name: e.choice.values[1], e.number: float64(4711)}
	for name, value := range want {
		if got.Netbox.CustomFields[name] != value {
			t.Errorf("%s is %v, want %v", name, got.Netbox.CustomFields[name], value)
		}
	}
	if list, _ := got.Netbox.CustomFields[e.choices.name].([]any); len(list) != len(e.choices.values) {
		t.Errorf("%s is %v", e.choices.name, got.Netbox.CustomFields[e.choices.name])
	}
	// What was read goes back as it was read.
	back := map[string]Value{e.number: Clear()}
	for _, name := range []string{e.choice.name, e.choices.name} {
		back[name] = Set(d.Netbox.CustomFields[name])
	}
	after, err := c.Update(t.Context(), d.Ref, Change{CustomFields: back})
	if err != nil {
		t.Fatal(err)
	}
	if value, has := after.Netbox.CustomFields[e.number]; value != nil || !has {
		t.Errorf("the cleared field is %v", value)
	}
	for _, name := range []string{e.choice.name, e.choices.name} {
		if !reflect.DeepEqual(after.Netbox.CustomFields[name], d.Netbox.CustomFields[name]) {
			t.Errorf("%s is %v, was %v", name, after.Netbox.CustomFields[name], d.Netbox.CustomFields[name])
		}
	}
	for name, was := range d.Netbox.CustomFields {
		if name != e.number && !reflect.DeepEqual(after.Netbox.CustomFields[name], was) {
			t.Errorf("%s was not to be changed: %v, was %v", name, after.Netbox.CustomFields[name], was)
		}
	}
}

func refusedValue(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	for name, change := range map[string]Change{
		"a status": {Status: "bogus"},
		"a choice": {Status: "staged", CustomFields: map[string]Value{e.choice.name: Set("bogus")}},
	} {
		if _, err := c.Update(t.Context(), d.Ref, change); sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "bogus") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after, err := c.Read(t.Context(), d.Ref); err != nil || after.Version != d.Version {
		t.Errorf("it was changed: %+v %v", after, err)
	}
}

func unknownNames(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	for name, change := range map[string]Change{
		"a tag":          {AddTags: []string{"nosuchthing"}},
		"a custom field": {CustomFields: map[string]Value{"nosuchthing": Set("x")}},
		"neither":        {CustomFields: map[string]Value{"nosuchthing": {}}},
	} {
		if _, err := c.Update(t.Context(), d.Ref, change); sources.KindOf(err) != sources.KindRefused || !strings.Contains(err.Error(), "nosuchthing") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func oldReading(t *testing.T, e endpoint) {
	c := e.connect(t, nil)
	d := e.fresh(t, c)
	// Somebody else: a request of another client.
	req, err := http.NewRequestWithContext(t.Context(), "PATCH", e.url+"/api/dcim/devices/"+d.Ref+"/", bytes.NewBufferString(`{"tags":[{"slug":"`+e.tag+`"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization(e.token))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v %v", resp, err)
	}
	_ = resp.Body.Close()
	_, err = c.Update(t.Context(), d.Ref, Change{If: d.Version, Status: "staged"})
	if sources.KindOf(err) != sources.KindConflict || !errors.Is(err, ErrChanged) {
		t.Errorf("%v", err)
	}
	if after, err := c.Read(t.Context(), d.Ref); err != nil || after.Netbox.Status.Value != "active" {
		t.Errorf("it was written: %+v %v", after, err)
	}
	if _, err := c.Update(t.Context(), d.Ref, Change{RemoveTags: []string{e.tag}}); err != nil {
		t.Errorf("without a reading: %v", err)
	}
}

func oddValues(t *testing.T, e endpoint) {
	l := listAll(t, e.connect(t, nil))
	var nameless, placeholder, noAddress int
	racks := map[string]bool{}
	for _, r := range l.records {
		f := r.Netbox
		if f.Name.Value == "" && f.Name.Known && r.Name == "" {
			nameless++
		}
		if r.Serial == "" && f.Serial.Value == "Not Specified" {
			placeholder++
		}
		if f.OobIP.Value == "" {
			noAddress++
		} else if strings.Contains(f.OobIP.Value, "/") {
			t.Errorf("%s: the address %q has a prefix", r.Ref, f.OobIP.Value)
		}
		racks[f.Rack.Value] = true
	}
	if nameless == 0 || placeholder == 0 || noAddress == 0 {
		t.Errorf("%d nameless, %d without a serial, %d without an address of a BMC", nameless, placeholder, noAddress)
	}
	for _, want := range []string{"R01 (Hall 1)", "R01 (Hall 2)", "R02"} {
		if !racks[want] {
			t.Errorf("rack %q is not among %v", want, racks)
		}
	}
}
