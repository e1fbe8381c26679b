package netbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

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
	{"gives a device's interfaces with their MACs and cables", nil, readsInterfaces},
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

// makeOdd gives a NetBox without them the values that the last item wants, over
// its API.
func (e endpoint) makeOdd(t *testing.T) {
	t.Helper()
	var d struct {
		Site, Location, Rack struct {
			ID   int
			Name string
		}
	}
	l := listAll(t, e.connect(t, nil))
	if l.err != nil || len(l.order) < 4 {
		t.Fatalf("%d devices, %v", len(l.order), l.err)
	}
	of := func(i int) string { return "devices/" + l.order[i] + "/" }
	e.rest(t, "GET", of(0), nil, &d)
	var hall, rack struct{ ID int }
	e.rest(t, "POST", "locations/", map[string]any{"name": "Another hall", "slug": "another-hall", "site": d.Site.ID, "status": "active"}, &hall)
	e.rest(t, "POST", "racks/", map[string]any{"name": d.Rack.Name, "site": d.Site.ID, "location": hall.ID, "status": "active"}, &rack)
	for i, change := range []map[string]any{
		{"name": nil}, {"serial": "Not Specified"}, {"oob_ip": nil}, {"location": hall.ID, "rack": rack.ID, "position": nil, "face": ""},
	} {
		e.rest(t, "PATCH", of(i), change, nil)
	}
}

// rest makes one request as somebody else does.
func (e endpoint) rest(t *testing.T, method, path string, body, into any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, e.url+"/api/dcim/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", authorization(e.token))
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s %v", method, path, resp.StatusCode, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}
