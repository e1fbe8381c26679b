package e2e

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// journal is what the rack's BMCs themselves tell of what they were asked.
type journal struct{ file string }

// asked is one request, and what was answered.
type asked struct {
	Began, Ended moment
	BMC, Path    string
	Method       string
	Status       int
	Reset, Power string
	Agent        string
}

// moment is in seconds since 1970.
type moment float64

func (m moment) minus(o moment) time.Duration {
	return time.Duration(float64(m-o) * float64(time.Second))
}

func momentOf(t time.Time) moment { return moment(float64(t.UnixNano()) / 1e9) }

// machine says whose BMC was asked.
func (a *asked) machine() string {
	number, err := strconv.Atoi(strings.TrimPrefix(a.BMC, rackNet+"."))
	if err != nil || number < 1 || number > len(racked) {
		return a.BMC
	}
	return racked[number-1]
}

// told is the power that an answer gives of a machine itself, "" if none.
func (a *asked) told() string {
	of := "/Systems/"
	if kindOf(a.machine()) == "powershelf" {
		of = "/Chassis/"
	}
	if _, id, ok := strings.Cut(a.Path, of); !ok || strings.Contains(id, "/") {
		return ""
	}
	return a.Power
}

// all gives what was asked so far.
func (j *journal) all(t *testing.T) []asked {
	t.Helper()
	text, err := os.ReadFile(j.file)
	if err != nil {
		t.Fatal(err)
	}
	var all []asked
	for line := range bytes.Lines(text) {
		var one asked
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatalf("the journal holds %s: %v", line, err)
		}
		all = append(all, one)
	}
	return all
}

func (j *journal) mark(t *testing.T) int {
	t.Helper()
	return len(j.all(t))
}

// deed is a reset that a BMC was sent.
type deed struct {
	machine, reset string
	agent          string // the program that sent it
	status         int
	sent           moment
	seen           moment // when its BMC first answered that it is done; 0: never
}

var leads = map[string]string{"On": "On", "ForceOn": "On", "GracefulShutdown": "Off", "ForceOff": "Off"}

// deeds gives the resets since a mark, in the order in which they came.
func (j *journal) deeds(t *testing.T, mark int) []deed {
	t.Helper()
	all := j.all(t)[mark:]
	var found []deed
	for i := range all {
		if all[i].Method != "POST" || all[i].Reset == "" {
			continue
		}
		d := deed{machine: all[i].machine(), reset: all[i].Reset, agent: all[i].Agent, status: all[i].Status, sent: all[i].Began}
		for j := range all {
			if a := &all[j]; a.BMC == all[i].BMC && a.Began > all[i].Began && a.told() == leads[d.reset] && (d.seen == 0 || a.Ended < d.seen) {
				d.seen = a.Ended
			}
		}
		found = append(found, d)
	}
	slices.SortStableFunc(found, func(a, b deed) int {
		if a.sent < b.sent {
			return -1
		}
		return 1
	})
	return found
}

// wereSent checks that these machines, and no others, were sent one reset each.
func wereSent(t *testing.T, did []deed, reset string, machines ...string) {
	t.Helper()
	count := map[string]int{}
	for i := range did {
		if did[i].reset != reset || did[i].status >= 300 {
			t.Errorf("%s was sent %s and answers %d", did[i].machine, did[i].reset, did[i].status)
		}
		count[did[i].machine]++
	}
	want := map[string]int{}
	for _, name := range machines {
		want[name] = 1
	}
	if !maps.Equal(count, want) {
		t.Errorf("%s was sent, by machine, %v, want %v", reset, count, want)
	}
}

// wereInTurn checks that no machine of a type was sent anything before all of the
// types before it were seen to be done, and gives when each type began and was done.
func wereInTurn(t *testing.T, did []deed, order ...string) (began, done map[string]moment) {
	t.Helper()
	began, done = map[string]moment{}, map[string]moment{}
	for i := range did {
		d, kind := &did[i], kindOf(did[i].machine)
		if d.seen == 0 {
			t.Errorf("%s was sent %s, and nobody saw it done", d.machine, d.reset)
		}
		if began[kind] == 0 {
			began[kind] = d.sent
		}
		done[kind] = max(done[kind], d.seen)
	}
	for i := 1; i < len(order); i++ {
		if before, after := order[i-1], order[i]; began[after] != 0 && began[after] <= done[before] {
			t.Errorf("the first %s was sent its reset %s before the last %s was seen to be done", after, done[before].minus(began[after]), before)
		}
	}
	return began, done
}

// inFlight gives how many machines of each type were at most between their command
// and the answer that showed it done, and fails where they were too many.
func inFlight(t *testing.T, did []deed) map[string]int {
	t.Helper()
	most := map[string]int{}
	for i := range did {
		kind, n := kindOf(did[i].machine), 0
		for j := range did {
			if o := &did[j]; kindOf(o.machine) == kind && o.sent <= did[i].sent && (o.seen == 0 || o.seen > did[i].sent) {
				n++
			}
		}
		most[kind] = max(most[kind], n)
	}
	for kind, n := range most {
		if n > atOnce[kind] {
			t.Errorf("%d %s were in flight at once, the rule allows %d", n, kind, atOnce[kind])
		}
	}
	return most
}

// powers gives the machines that their BMCs say are so, asked past muster and past
// the wire.
func (r *rackSite) powers(t *testing.T, state string) (names []string) {
	t.Helper()
	client := &http.Client{Timeout: settle, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	user, password, _ := strings.Cut(r.bmcs.login, ":")
	for i, name := range racked {
		path := fmt.Sprintf("/redfish/v1/Systems/5ed00000-0000-4000-8000-%012d", i+1)
		if kindOf(name) == "powershelf" {
			path = fmt.Sprintf("/redfish/v1/Chassis/c4a50000-0000-4000-8000-%012d", i+1)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.bmcs.at(r.bmcs.addresses[i])+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.SetBasicAuth(user, password)
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var is struct{ PowerState string }
		if err := json.NewDecoder(response.Body).Decode(&is); err != nil || is.PowerState == "" {
			t.Fatalf("%s answers %s: %v", name, response.Status, err)
		}
		_ = response.Body.Close()
		if is.PowerState == state {
			names = append(names, name)
		}
	}
	return names
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
