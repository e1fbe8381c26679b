package reconciler

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/registry"
	"github.com/musterhq/muster/store"
)

// inventory is two sites, lab and annex, whose devices are of one NetBox: its sites
// a1 and a2 are the lab, b1 is the annex, and c1 is nobody's.
type inventory struct {
	*world
	annex fleet.Site

	mu      sync.Mutex
	records map[string]sources.Record
}

func fromNetBox(slugs ...string) func(*fleet.SiteSpec) {
	return func(s *fleet.SiteSpec) {
		s.Inventory = facts.InventorySourceNetbox
		s.NetBox = &fleet.NetBoxSites{Instance: "nb", Sites: slugs}
		s.Sources.Recorded = map[string]string{"netbox": "x", "ironic": "x", "slurm": "x", "bmc": "x"}
	}
}

func newNetBox(t *testing.T) *inventory {
	t.Helper()
	n := &inventory{world: newWorld(t, fromNetBox("a1", "a2")), records: map[string]sources.Record{}}
	spec := n.site.Spec
	fromNetBox("b1")(&spec)
	spec.Name = "annex"
	must(t, n.db.Tx(t.Context(), func(tx pgx.Tx) (err error) {
		n.annex, err = store.PutSite(t.Context(), tx, fleet.Site{Spec: spec, AppliedBy: "test"})
		return err
	}))
	return n
}

// in is the record of a machine at one of NetBox's sites.
func in(slug, ref, name string, change ...func(*sources.Record)) sources.Record {
	return machine(ref, name, append(change, func(r *sources.Record) { r.Netbox.Site = facts.TextOf(slug) })...)
}

// puts changes what NetBox has.
func (n *inventory) puts(records ...sources.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range records {
		n.records[r.Ref] = r
	}
}

func (n *inventory) takes(ref string) { n.mu.Lock(); defer n.mu.Unlock(); delete(n.records, ref) }

func (n *inventory) all() []sources.Record {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []sources.Record
	for _, r := range n.records {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b sources.Record) int {
		return len(a.Ref)*1000 + int(a.Ref[0]) - len(b.Ref)*1000 - int(b.Ref[0])
	})
	return all
}

// view is NetBox as one site asks it: for its own sites, as the shipped client
// does.
type view struct {
	n     *inventory
	slugs []string
}

func (v view) List(_ context.Context, yield func([]sources.Record) error) (sources.End, error) {
	end := sources.End{At: v.n.db.Now(), Complete: true}
	for _, r := range v.n.all() {
		if !slices.Contains(v.slugs, r.Netbox.Site.Value) {
			end.Elsewhere++
			continue
		}
		r.At = v.n.db.Now()
		end.Records++
		if err := yield([]sources.Record{r}); err != nil {
			return end, err
		}
	}
	return end, nil
}

func (v view) Get(_ context.Context, ref string) (*sources.Record, error) {
	v.n.mu.Lock()
	defer v.n.mu.Unlock()
	r, there := v.n.records[ref]
	switch {
	case !there:
		return nil, sources.ErrGone
	case !slices.Contains(v.slugs, r.Netbox.Site.Value):
		return nil, fmt.Errorf("get %s: %w", ref, &sources.ElsewhereError{Site: r.Netbox.Site.Value})
	}
	r.At = v.n.db.Now()
	return &r, nil
}

func (view) Close() {}

// read sweeps NetBox for one of the sites, once, or other sources of it.
func (n *inventory) read(site *fleet.Site, others ...string) {
	n.t.Helper()
	if len(others) == 0 {
		others = []string{"netbox"}
	}
	for _, source := range others {
		n.readAs(n.t.Context(), site, source)
	}
}

func (n *inventory) readAs(ctx context.Context, site *fleet.Site, source string, change ...func(*Options)) {
	n.t.Helper()
	clients := registry.New(registry.Options{Clock: n.db.Now, Build: func(spec *fleet.SiteSpec, source string) (sources.Source, error) {
		if source != "netbox" {
			return n.source(source), nil
		}
		return view{n, spec.NetBox.Sites}, nil
	}})
	defer clients.Close()
	n.readWith(ctx, site, source, clients, change...)
}

func (n *inventory) readWith(ctx context.Context, site *fleet.Site, source string, clients Clients, change ...func(*Options)) {
	n.t.Helper()
	r := n.replica("reader of "+site.Spec.Name, append(change, func(o *Options) { o.Clients = clients })...)
	var lease store.SweepLease
	must(n.t, n.db.QueryRow(ctx, `update sweeps set owner = $3, epoch = epoch + 1, leased_until = clock_timestamp() + interval '1 minute', due_at = now()
		where site_id = $1 and source = $2 returning site_id, source, owner, epoch, due_at, leased_until`, site.ID, source, r.Owner).
		Scan(&lease.SiteID, &lease.Source, &lease.Owner, &lease.Epoch, &lease.Due, &lease.Until))
	r.sweep(ctx, lease)
}

// wantAt says which devices, by name, a site has and NetBox lists.
func (n *inventory) wantAt(site *fleet.Site, want ...string) {
	n.t.Helper()
	var names []string
	must(n.t, n.db.QueryRow(n.t.Context(), `select coalesce(array_agg(d.name order by d.name), '{}') from devices d join facts f on f.device_id = d.id and f.source = 'netbox'
		where d.site_id = $1 and f.site_id = $1 and not f.ref_gone and f.unread_reason = '' and d.retired_at is null and d.absent_since is null`, site.ID).Scan(&names))
	if !slices.Equal(names, want) {
		n.t.Errorf("site %s has %q, want %q", site.Spec.Name, names, want)
	}
}

func rack(name string) func(*sources.Record) {
	return func(r *sources.Record) { r.Netbox.Rack, r.Netbox.Position = facts.TextOf(name), facts.TextOf("7") }
}

func TestADeviceMovesWithItsRecord(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "n1", rack("r1"), at("192.0.2.1")), in("a2", "2", "n2"), in("b1", "3", "n3", rack("r1")), in("c1", "4", "n4"))
	n.read(&n.site)
	n.read(&n.annex)
	n.wantAt(&n.site, "n1", "n2")
	n.wantAt(&n.annex, "n3")
	if kinds := n.kinds("netbox"); !slices.Equal(kinds, []string{"unmapped_site"}) {
		t.Errorf("findings %v", kinds)
	}
	n.wantCount(1, "select count(*) from source_findings where site_id = $1 and kind = 'unmapped_site' and (detail ->> 'devices')::int = 1", n.annex.ID)

	n.ironic().says(node("u1", "n1"))
	n.source("bmc").says(bmc("192.0.2.1"))
	n.slurm().says(slurmNode("n1", facts.SlurmIdle))
	n.read(&n.site, "ironic", "slurm", "bmc")
	n.wantStatus("n1", "available")
	_, err := n.db.Exec(t.Context(), "update devices set enrollment_validated_ref = 'u1', enrollment_proof_source = 'enrolled' where name = 'n1'")
	must(t, err)
	id := n.device("n1").ID

	n.puts(in("b1", "1", "n1", rack("r1"), at("192.0.2.1")))
	n.read(&n.annex)
	d := n.device("n1")
	if d.ID != id || d.SiteID != n.annex.ID || d.InfrastructureRef != "" || d.SlurmStates != 0 || d.ChassisHealth != 0 || d.Proof.ValidatedRef != "" || d.Proof.Source != "none" || d.CustomerReady {
		t.Errorf("after the move it is %+v", d)
	}
	n.wantStatus("n1", "unknown")
	n.wantAt(&n.annex, "n1", "n3")
	n.wantCount(0, "select count(*) from facts where device_id = $1 and (site_id <> $2 or source <> 'netbox' and not ref_gone)", id, n.annex.ID)
	n.wantCount(1, "select count(*) from devices d join racks r on r.id = d.rack_id where d.id = $1 and r.site_id = $2 and r.name = 'r1'", id, n.annex.ID)
	n.wantCount(1, "select count(*) from lifecycle_events where device_id = $1 and kind = 'inventory' and cause ->> 'type' = 'move' and cause ->> 'note' = 'from site lab to annex'", id)
	n.wantCount(0, "select count(*) from sweeps where site_id = $1 and source = 'ironic' and due_at > clock_timestamp()", n.annex.ID)

	// Where it stood nothing is missing, and it comes back as it went.
	n.read(&n.site)
	n.wantAt(&n.site, "n2")
	n.puts(in("a2", "1", "n1", rack("r1")))
	n.read(&n.site)
	n.wantAt(&n.site, "n1", "n2")
	n.read(&n.annex)
	n.wantAt(&n.annex, "n3")
	n.wantCount(0, "select count(*) from source_findings where kind <> 'unmapped_site'")
	n.wantCount(3, "select count(*) from devices")
}

func TestADeviceThatIsShownElsewhereIsUnreadUntilItIsFetched(t *testing.T) {
	n := newNetBox(t)
	n.puts(in("a1", "1", "n1"), in("a1", "2", "n2"), in("b1", "3", "n3"))
	n.read(&n.site)
	n.read(&n.annex)
	_, err := n.db.Exec(t.Context(), "update sweeps set due_at = 'infinity'")
	must(t, err)
	n.puts(in("b1", "1", "n1"), in("c1", "2", "n2"))
	n.read(&n.site)
	n.wantCount(1, "select count(*) from facts where source = 'netbox' and ref = '1' and not ref_gone and unread_reason = 'SiteMovePending'")
	n.wantCount(1, "select count(*) from sweeps where site_id = $1 and source = 'netbox' and due_at < 'infinity'", n.annex.ID)
	if d := n.device("n1"); d.Inventory != facts.InventoryStatusActive || !d.AbsentSince.IsZero() {
		t.Errorf("what moves is %s since %v", d.Inventory, d.AbsentSince)
	}
	if d := n.device("n2"); d.Inventory != facts.InventoryStatusUnknown || d.AbsentSince.IsZero() {
		t.Errorf("what stands at nobody's site is %s since %v", d.Inventory, d.AbsentSince)
	}
	n.read(&n.annex)
	n.wantAt(&n.annex, "n1", "n3")
	n.puts(in("b1", "2", "n2")) // and what was absent is found
	n.read(&n.annex)
	n.wantAt(&n.annex, "n1", "n2", "n3")
	n.wantCount(3, "select count(*) from devices")
}

// held holds devices, as work would.
type held struct {
	mu      sync.Mutex
	devices map[int64]bool
}

func (h *held) Held(_ context.Context, _ pgx.Tx, ids []int64) (map[int64]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	found := map[int64]bool{}
	for _, id := range ids {
		found[id] = h.devices[id]
	}
	return found, nil
}

func (h *held) set(id int64, is bool) { h.mu.Lock(); defer h.mu.Unlock(); h.devices[id] = is }

func TestADeviceThatWorkHoldsStaysUnread(t *testing.T) {
	n := newNetBox(t)
	locks := &held{devices: map[int64]bool{}}
	n.svc.Respect(locks)
	n.puts(in("a1", "1", "n1"), in("b1", "3", "n3"))
	n.read(&n.site)
	n.read(&n.annex)
	id := n.device("n1").ID
	locks.set(id, true)
	n.puts(in("b1", "1", "n1"))
	pending := func() {
		t.Helper()
		if d := n.device("n1"); d.SiteID != n.site.ID || d.Inventory != facts.InventoryStatusActive {
			t.Errorf("the held device is at site %d and %s", d.SiteID, d.Inventory)
		}
		n.wantCount(1, "select count(*) from device_writers where device_id = $1 and writer = 'inventory' and unread -> 'inventory_status' ->> 'reason' = 'SiteMovePending'", id)
	}
	n.read(&n.annex)
	pending()
	n.wantCount(1, "select count(*) from source_findings where site_id = $1 and kind = 'moving' and ref = '1' and detail ->> 'site' = 'lab'", n.annex.ID)
	n.read(&n.site)
	pending()
	n.read(&n.annex)
	pending()
	locks.set(id, false)
	n.read(&n.annex)
	n.wantAt(&n.annex, "n1", "n3")
	n.wantCount(0, "select count(*) from source_findings where kind = 'moving'")
	n.wantCount(2, "select count(*) from devices")
}

// Any number of sweeps of two sites of one NetBox may run at a time while
// machines are moved between its sites, added and deleted: in the end each record
// is one device, at the site where it stands.
func TestTwoSitesOfOneNetBoxAreSweptAtATime(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			n := newNetBox(t)
			const machines = 24
			slugs := []string{"a1", "a2", "b1"}
			world := rand.New(rand.NewPCG(seed, 1))
			walk := &departures{begun: map[int64]int{n.site.ID: 0, n.annex.ID: 0}, ended: map[int64]int{}}
			most := n.bundle().Limits().MissingAtOnce
			where := map[int]string{} // machine to NetBox's site
			put := func(i int) {
				slug := slugs[world.IntN(len(slugs))]
				if was := where[i]; was != "" && (was == "b1") != (slug == "b1") && !walk.leave(most) {
					slug = was
				}
				where[i] = slug
				n.puts(in(slug, fmt.Sprint(i), fmt.Sprintf("n%02d", i), serial(fmt.Sprintf("S%02d", i)), rack(fmt.Sprintf("r%d", i%5))))
			}
			var failures sync.Map
			logs := func(o *Options) {
				o.Log = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: writes(func(line string) { failures.Store(line, true) })})
			}
			var readers sync.WaitGroup
			stop := make(chan struct{})
			var nodes []sources.Record // that either site's Ironic has
			for i := range machines {
				nodes = append(nodes, node(fmt.Sprintf("u%02d", i), fmt.Sprintf("n%02d", i)))
			}
			n.ironic().says(nodes...)
			for _, site := range []*fleet.Site{&n.site, &n.annex} {
				for _, source := range []string{"netbox", "ironic"} {
					readers.Go(func() {
						for {
							select {
							case <-stop:
								return
							default:
								read := func() { n.readAs(context.WithoutCancel(t.Context()), site, source, logs) }
								if source == "netbox" {
									walk.listing(site.ID, read)
								} else {
									read()
								}
							}
						}
					})
				}
			}
			tick := time.NewTicker(5 * time.Millisecond)
			for i := range 120 {
				<-tick.C
				put(i % machines) // the first time it is born
				put(world.IntN(min(i+1, machines)))
			}
			tick.Stop()
			eventually(t, "machines have moved", func() bool {
				put(world.IntN(machines))
				return n.count("select count(*) from lifecycle_events where cause ->> 'type' = 'move'") >= machines/2
			})
			close(stop)
			readers.Wait()
			failures.Range(func(line, _ any) bool { t.Errorf("a sweep failed: %s", line); return true })

			for range 2 { // the world holds still
				n.read(&n.site, "netbox", "ironic")
				n.read(&n.annex, "netbox", "ironic")
			}
			homes := map[string][]string{}
			for _, r := range n.all() {
				home := "lab"
				if r.Netbox.Site.Value == "b1" {
					home = "annex"
				}
				homes[home] = append(homes[home], r.Name)
			}
			for _, names := range homes {
				slices.Sort(names)
			}
			n.wantAt(&n.site, homes["lab"]...)
			n.wantAt(&n.annex, homes["annex"]...)
			n.wantCount(machines, "select count(*) from devices")
			n.wantCount(machines, "select count(distinct ref) from facts where source = 'netbox' and not ref_gone")
			n.wantCount(0, "select count(*) from facts f join devices d on d.id = f.device_id where f.site_id <> d.site_id")
			n.wantCount(machines, "select count(*) from devices d join facts f on f.device_id = d.id and f.source = 'ironic' where d.infrastructure_ref = f.ref and not f.ref_gone and operational_status = 'available'")
			n.wantCount(0, "select count(*) from devices d join racks r on r.id = d.rack_id where r.site_id <> d.site_id")
			n.wantCount(0, "select count(*) from source_findings where source = 'netbox' and kind in ('ambiguous', 'missing', 'unjoined', 'swap', 'moving')")
		})
	}
}

// writes is a writer that hands each line on.
type writes func(string)

func (f writes) Write(line []byte) (int, error) { f(string(line)); return len(line), nil }

var _ devices.Locks = (*held)(nil)
