package slurm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// Options say how a cluster's slurmrestd is.
type Options struct {
	Generation int           // 38 (SLURM 22.05), 42 (24.11; the default) or 45 (26.05)
	Key        []byte        // that signs tokens, see Token
	Patience   time.Duration // until a controller that is down or hung is given up; default 9 s
	Clock      func() time.Time
}

// face is a site's slurmrestd.
type face struct {
	world    *world.World
	site     string
	o        Options
	release  *release
	versions map[string]*version
}

// New gives the slurmrestd of a site. Its paths begin with /slurm/ and /openapi.
func New(w *world.World, site string, o Options) (http.Handler, error) {
	if o.Generation == 0 {
		o.Generation = 42
	}
	if o.Patience == 0 {
		o.Patience = 9 * time.Second
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	f := &face{world: w, site: site, o: o, release: releases[o.Generation], versions: map[string]*version{}}
	if f.release == nil {
		return nil, fmt.Errorf("simulate SLURM: there is no generation %d: choose 38, 42 or 45", o.Generation)
	}
	for _, number := range f.release.serves {
		v, err := openVersion(f.release, number)
		if err != nil {
			return nil, fmt.Errorf("simulate SLURM: %w", err)
		}
		f.versions[v.name] = v
	}
	err := w.Do(world.Effect{Face: world.FaceWorld, Site: site, Op: "run SLURM " + f.release.name}, func(s *world.State) error {
		s.SlurmGeneration(site, o.Generation)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("simulate SLURM: %w", err)
	}
	return f, nil
}

func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	from := f.callerOf(r)
	v := f.versionOf(parts)
	switch {
	case !from.named:
		plain(w, http.StatusUnauthorized, "Authentication failure")
	case parts[0] == "openapi":
		f.openapi(w)
	case strings.ContainsRune(r.URL.Path, ','):
		plain(w, f.release.badPathStatus, f.release.badPath)
	case v == nil:
		plain(w, http.StatusNotFound, f.release.noPath)
	default:
		(&exchange{face: f, v: v, w: w, r: r, from: from}).serve(parts[2:])
	}
}

// serve answers what asks for something of a version.
func (x *exchange) serve(parts []string) {
	route, name := x.v.route(parts)
	switch {
	case route == nil, route.methods[x.r.Method] == nil && !x.v.old():
		plain(x.w, http.StatusNotFound, x.release.noPath)
	case route.methods[x.r.Method] == nil:
		plain(x.w, http.StatusMethodNotAllowed, "Requested REST method is not defined at URL. Please view /openapi/v3 for API reference.")
	default:
		route.methods[x.r.Method](x, name)
	}
}

func (f *face) versionOf(parts []string) *version {
	if len(parts) < 3 || parts[0] != "slurm" {
		return nil
	}
	return f.versions[parts[1]]
}

// route is one path of the API.
type route struct {
	path    string // {} is a name
	methods methods
}

// route finds what a path asks for, nil if the version has no such path.
func (v *version) route(parts []string) (*route, string) {
	for i := range routes {
		name, ok := routes[i].match(parts)
		if !ok {
			continue
		}
		r := routes[i]
		if r.path == "new/node" && v.number < firstCreate {
			return nil, ""
		}
		if v.old() && (strings.HasPrefix(r.path, "node")) {
			r.methods = methods{http.MethodGet: r.methods[http.MethodGet]}
		}
		return &r, name
	}
	return nil, ""
}

func (r *route) match(parts []string) (name string, ok bool) {
	want := strings.Split(r.path, "/")
	if len(want) != len(parts) {
		return "", false
	}
	for i := range want {
		if want[i] == "{}" && parts[i] != "" {
			name = parts[i]
		} else if want[i] != parts[i] {
			return "", false
		}
	}
	return name, true
}

var routes = []route{
	{"ping", methods{"GET": (*exchange).ping}},
	{"nodes", methods{"GET": (*exchange).listNodes, "POST": (*exchange).updateNodes}},
	{"node/{}", methods{"GET": (*exchange).getNode, "POST": (*exchange).updateNode, "DELETE": (*exchange).deleteNode}},
	{"new/node", methods{"POST": (*exchange).createNode}},
	{"jobs", methods{"GET": (*exchange).listJobs}},
	{"job/submit", methods{"POST": (*exchange).submitJob}},
	{"job/{}", methods{"GET": (*exchange).getJob, "DELETE": (*exchange).cancelJob}},
	{"partitions", methods{"GET": (*exchange).listPartitions}},
	{"partition/{}", methods{"GET": (*exchange).getPartition}},
	{"reservations", methods{"GET": (*exchange).listReservations}},
}

// methods are what can be done at a path.
type methods map[string]func(x *exchange, name string)

// openapi tells no more than which versions and paths there are.
func (f *face) openapi(w http.ResponseWriter) {
	b := fmt.Appendf(nil, `{"openapi":"3.0.3","info":{"title":"Slurm REST API","version":%q},"paths":{`, f.release.name)
	first := true
	for _, number := range f.release.serves {
		for _, r := range routes {
			if r.path == "new/node" && number < firstCreate {
				continue
			}
			if !first {
				b = append(b, ',')
			}
			first = false
			b = append(wire.Quote(b, fmt.Sprintf("/slurm/v0.0.%d/%s", number, strings.ReplaceAll(r.path, "{}", "{name}"))), ":{}"...)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(b, "}}"...))
}

// controller is what a request finds of slurmctld.
type controller int

const (
	ctlUp controller = iota
	ctlDown
	ctlHung
)

func (x *exchange) controller() (c controller) {
	x.world.Read(func(s *world.State) {
		switch row := s.SlurmClusterOf(x.site); {
		case row.Down:
			c = ctlDown
		case row.Hung:
			c = ctlHung
		}
	})
	return c
}

// The ways that slurmctld cannot be asked.
var (
	unreachable = fault{number: 1800, text: "Unable to contact slurm controller (connect failure)"}
	silent      = fault{number: 5004, text: "Socket timed out on send/recv operation"}
	distrusted  = fault{number: 1007, text: "Protocol authentication error"}
)

// reach asks slurmctld as often as slurmrestd does. It answers itself, and gives
// false, when the controller does not, or does not believe the token. about and
// source say in whose name it fails, empty is a member that is there though empty.
func (x *exchange) reach(about, source string, empty ...string) bool {
	status, e := 0, fault{}
	switch c := x.controller(); {
	case c == ctlDown && x.wait():
		status, e = http.StatusBadGateway, unreachable
	case c == ctlHung && x.wait():
		status, e = http.StatusGatewayTimeout, silent
	case c != ctlUp:
		return false // nobody waits for the answer
	case !x.from.trusted:
		status, e = http.StatusNetworkAuthenticationRequired, distrusted
	default:
		return true
	}
	d := &document{status: status}
	for _, name := range empty {
		x.empty(d, name)
	}
	if e.about, e.source = about, source; x.v.old() {
		// 22.05 does not tell why.
		d.status, e.number, e.text = http.StatusInternalServerError, -1, "Unspecified error"
		x.failOld(d, e)
	} else {
		d.fail(e)
	}
	x.answer(d)
	return false
}

// failOld adds an error of 22.05: of nodes it tells the number alone.
func (x *exchange) failOld(d *document, e fault) {
	if slices.Contains([]string{"_dump_nodes", "_update_node"}, e.source) {
		d.failShort("errno", e)
		return
	}
	d.fail(e)
}

// empty adds a list that has nothing, and what goes with it.
func (x *exchange) empty(d *document, name string) {
	d.raw(name, "[]")
	if !x.v.old() && name == "jobs" {
		d.raw("last_backfill", `{"set":true,"infinite":false,"number":0}`)
		d.raw("last_update", `{"set":true,"infinite":false,"number":0}`)
	}
}

// wait lasts as long as slurmrestd tries; false when the caller has left.
func (x *exchange) wait() bool {
	timer := time.NewTimer(x.o.Patience)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-x.r.Context().Done():
		return false
	}
}

var pingMembers = []string{"ping", "pinged", "responding", "status"}

// ping answers 200 whatever slurmctld does, but in 22.05.
func (x *exchange) ping(string) {
	c := x.controller()
	if c == ctlHung && !x.wait() {
		return
	}
	up := c == ctlUp && x.from.trusted
	if x.v.old() && !up {
		if c == ctlDown && !x.wait() {
			return
		}
		d := &document{status: http.StatusInternalServerError}
		d.fail(fault{"slurmctld config is unable to load", -1, "Unspecified error", "slurm_load_ctl_conf"})
		x.answer(d)
		return
	}
	d := &document{}
	d.set("pings", func(b []byte) []byte {
		b = x.v.ping.write(append(b, '['), func(b []byte, name string) []byte { return x.pingMember(b, name, up, c) })
		return append(b, ']')
	})
	x.answer(d)
}

func (x *exchange) pingMember(b []byte, name string, up bool, c controller) []byte {
	switch {
	case name == "responding":
		return strconv.AppendBool(b, up)
	case name == "status" && x.v.old():
		return append(b, '0')
	case name == "status" && up:
		return wire.Quote(b, "No error")
	case name == "status" && c == ctlDown:
		return wire.Quote(b, unreachable.text)
	case name == "status" && c == ctlHung:
		return wire.Quote(b, silent.text)
	case name == "status":
		return wire.Quote(b, distrusted.text)
	case up:
		return wire.Quote(b, "UP")
	}
	return wire.Quote(b, "DOWN")
}
