package slurm

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// nodeMembers are what differs from node to node; the rest is the shape's.
var nodeMembers = []string{
	"name", "address", "hostname", "state", "state_flags", "reason", "reason_changed_at", "reason_set_by_user", "extra", "comment",
	"boot_time", "slurmd_start_time", "last_busy", "partitions", "features", "active_features", "alloc_cpus", "alloc_idle_cpus", "idle_cpus",
	"tres_used", "tres_weighted", "gres_used", "version", "slurmd_version",
}

// What a node has, as the shapes say.
const (
	cpus     = 144
	tresUsed = "cpu=144"
	gresFree = "gpu:gb200:0(IDX:N/A)"
	gresUsed = "gpu:gb200:4(IDX:0-3)"
)

// view is how nodes are seen at an instant.
type view struct {
	now     time.Time
	unknown bool // slurmctld has just started and does not know of live nodes yet
}

func (x *exchange) view(s *world.State) view {
	return view{now: s.Now, unknown: s.SlurmClusterOf(x.site).Unknown.After(s.Now)}
}

func (x *exchange) listNodes(string) {
	if x.unchanged() || !x.reach("Failure to query nodes", "_dump_nodes", x.emptyIfOld("nodes")...) {
		return
	}
	var nodes []*world.SlurmNode
	var seen view
	x.world.Read(func(s *world.State) {
		seen = x.view(s)
		for _, n := range s.SlurmNodes.Of(x.site) {
			nodes = append(nodes, n)
		}
	})
	d := &document{body: make([]byte, 0, 2048*len(nodes)+256)}
	x.writeNodes(d, seen, nodes)
	x.answer(d)
}

// unchanged answers a question for what is newer than an instant that is still
// to come. Everything else counts as changed.
func (x *exchange) unchanged() bool {
	since, err := strconv.ParseInt(x.r.URL.Query().Get("update_time"), 10, 64)
	if err != nil || since <= x.world.Now().Unix() {
		return false
	}
	x.w.WriteHeader(http.StatusNotModified)
	return true
}

// emptyIfOld names a list that only old versions show in a failure.
func (x *exchange) emptyIfOld(name string) []string {
	if x.v.old() {
		return []string{name}
	}
	return nil
}

func (x *exchange) writeNodes(d *document, seen view, nodes []*world.SlurmNode) {
	d.set("nodes", func(b []byte) []byte {
		b = append(b, '[')
		for i, n := range nodes {
			if i > 0 {
				b = append(b, ',')
			}
			b = x.v.node.write(b, func(b []byte, name string) []byte { return x.nodeMember(b, seen, n, name) })
		}
		return append(b, ']')
	})
	if !x.v.old() {
		d.set("last_update", func(b []byte) []byte { return x.v.instant(b, seen.now) })
	}
}

// getNode reads one node, whose absence each release tells in its way.
func (x *exchange) getNode(name string) {
	about := "Failure to query node " + name
	if !x.reach(about, "_dump_nodes", x.emptyIfOld("nodes")...) {
		return
	}
	var n *world.SlurmNode
	var seen view
	x.world.Read(func(s *world.State) {
		seen = x.view(s)
		n = s.SlurmNodes.Get(world.Key(x.site, name))
	})
	d := &document{}
	switch {
	case n != nil:
		x.writeNodes(d, seen, []*world.SlurmNode{n})
	case x.v.old():
		d.status = http.StatusInternalServerError
		d.failShort("errno", noNode)
		x.empty(d, "nodes")
	default:
		d.fail(fault{about: about, text: "No error", source: "_dump_nodes"})
	}
	x.answer(d)
}

// nodeMember appends what differs from node to node.
func (x *exchange) nodeMember(b []byte, seen view, n *world.SlurmNode, name string) []byte {
	busy := n.Job != 0
	switch name {
	case "name":
		return wire.Quote(b, n.Name)
	case "address", "hostname":
		return wire.Quote(b, n.Name)
	case "state", "state_flags":
		return x.state(b, seen, n, name)
	case "reason", "reason_changed_at", "reason_set_by_user":
		return x.reason(b, n, name)
	case "extra":
		return wire.Quote(b, n.Extra)
	case "comment":
		return wire.Quote(b, n.Comment)
	case "boot_time":
		return x.v.instant(b, n.Boot)
	case "slurmd_start_time":
		return x.v.instant(b, n.Boot)
	case "last_busy":
		return x.v.instant(b, n.LastBusy())
	case "partitions":
		return wire.QuoteAll(b, n.Partitions)
	case "features", "active_features":
		return x.v.list(b, n.Features)
	case "alloc_cpus":
		return strconv.AppendInt(b, int64(pick(busy, cpus, 0)), 10)
	case "alloc_idle_cpus", "idle_cpus":
		return strconv.AppendInt(b, int64(pick(busy, 0, cpus)), 10)
	case "tres_used":
		if x.v.old() && !busy {
			return append(b, "null"...)
		}
		return wire.Quote(b, pick(busy, tresUsed, ""))
	case "tres_weighted":
		return append(b, pick(busy, "144.0", "0.0")...)
	case "gres_used":
		return wire.Quote(b, pick(busy, gresUsed, gresFree))
	}
	// version and slurmd_version are told by the slurmd.
	if n.Boot.IsZero() {
		return wire.Quote(b, "")
	}
	return wire.Quote(b, x.v.release.name)
}

func pick[T any](yes bool, a, b T) T {
	if yes {
		return a
	}
	return b
}

// state appends a node's state: one word in small letters with the flags beside
// it, or all tokens in one list, the base first.
func (x *exchange) state(b []byte, seen view, n *world.SlurmNode, member string) []byte {
	base := n.Base
	if seen.unknown && base != world.SlurmDown && n.Silent.IsZero() {
		base = "UNKNOWN"
	}
	switch {
	case member == "state_flags":
		return wire.QuoteAll(b, n.Flags)
	case x.v.old():
		return wire.Quote(b, strings.ToLower(base))
	}
	return wire.QuoteAll(b, append([]string{base}, n.Flags...))
}

// reason appends why a node is as it is.
func (x *exchange) reason(b []byte, n *world.SlurmNode, member string) []byte {
	shown := n.Reason != ""
	switch {
	case member == "reason":
		return wire.Quote(b, pick(shown, n.Reason, ""))
	case member == "reason_changed_at" && shown:
		return x.v.instant(b, n.ReasonAt)
	case member == "reason_changed_at":
		return x.v.integer(b, 0)
	case shown:
		return wire.Quote(b, n.ReasonUser)
	case x.v.old():
		return append(b, "null"...)
	}
	return wire.Quote(b, pick(x.v.generation == 42, "root", ""))
}

var partitionMembers = []string{"name", "nodes", "cpus", "tres", "flags", "total_cpus", "total_nodes"}

func (x *exchange) listPartitions(string) { x.partitions(world.SlurmPartitions()) }

func (x *exchange) getPartition(name string) {
	if slices.Contains(world.SlurmPartitions(), name) {
		x.partitions([]string{name})
		return
	}
	about := "Unable to find partition " + name
	if !x.reach(about, "_dump_part", x.emptyIfOld("partitions")...) {
		return
	}
	d := &document{}
	switch x.v.generation {
	case 38:
		d.status = http.StatusInternalServerError
		x.empty(d, "partitions")
		d.failShort("errno", fault{number: 2000, text: "Invalid partition name specified"})
	case 42:
		d.status = http.StatusUnprocessableEntity
		d.fail(fault{about, 9000, "Query empty or not RFC7320 compliant", "op_handler_partition"})
	default:
		d.warn(about, "_partition_get")
	}
	x.answer(d)
}

func (x *exchange) partitions(names []string) {
	if !x.reach("Failure to query partitions", "_dump_part", x.emptyIfOld("partitions")...) {
		return
	}
	members := map[string][]string{}
	var now time.Time
	x.world.Read(func(s *world.State) {
		now = s.Now
		for _, n := range s.SlurmNodes.Of(x.site) {
			for _, name := range n.Partitions {
				members[name] = append(members[name], n.Name)
			}
		}
	})
	d := &document{}
	d.set("partitions", func(b []byte) []byte {
		b = append(b, '[')
		for i, name := range names {
			if i > 0 {
				b = append(b, ',')
			}
			b = x.v.part.write(b, func(b []byte, member string) []byte { return x.partitionMember(b, name, members[name], member) })
		}
		return append(b, ']')
	})
	if !x.v.old() {
		d.set("last_update", func(b []byte) []byte { return x.v.instant(b, now) })
		d.warn("Slurm accounting storage is disabled. Could not query the following: [TRES].", "")
	}
	x.answer(d)
}

func (x *exchange) partitionMember(b []byte, name string, nodes []string, member string) []byte {
	total, list := int64(len(nodes)), wire.Quote(nil, strings.Join(nodes, ","))
	tres := wire.Quote(nil, "cpu="+strconv.FormatInt(total*cpus, 10)+",node="+strconv.FormatInt(total, 10))
	first := name == world.SlurmPartitions()[0]
	switch member {
	case "name":
		return wire.Quote(b, name)
	case "nodes":
		if x.v.old() {
			return append(b, list...)
		}
		b = append(append(b, `{"allowed_allocation":"","configured":`...), list...)
		return append(strconv.AppendInt(append(b, `,"total":`...), total, 10), '}')
	case "cpus":
		b = append(append(b, `{"task_binding":`...), pick(x.v.number >= 45, "[]", "0")...)
		return append(strconv.AppendInt(append(b, `,"total":`...), total*cpus, 10), '}')
	case "tres":
		if x.v.old() {
			return append(b, tres...)
		}
		return append(append(append(b, `{"billing_weights":"","configured":`...), tres...), '}')
	case "flags":
		return wire.QuoteAll(b, pick(first, []string{pick(x.v.old(), "default", "DEFAULT")}, nil))
	case "total_cpus":
		return strconv.AppendInt(b, total*cpus, 10)
	}
	return strconv.AppendInt(b, total, 10)
}

// listReservations: nobody has reserved anything.
func (x *exchange) listReservations(string) {
	if !x.reach("Failure to query reservations", "_dump_res", x.emptyIfOld("reservations")...) {
		return
	}
	d := &document{}
	d.raw("reservations", "[]")
	if !x.v.old() {
		d.raw("last_update", `{"set":true,"infinite":false,"number":0}`)
	}
	x.answer(d)
}
