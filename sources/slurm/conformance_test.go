package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// peerVariable names the environment files of real clusters, with commas.
const peerVariable = "MUSTER_PEER_SLURM"

// suite is what every cluster must bear out: the fake, the simulator's and the
// real ones.
// Items run one after the other: some stop the controller.
var suite = []struct {
	name  string
	needs []capability
	run   func(*testing.T, peer)
}{
	{"negotiates the newest version of the server", nil, newestVersion},
	{"lists every node once", nil, listsAll},
	{"reads one node as it is listed", nil, readsOne},
	{"an unknown node is gone", nil, unknownNode},
	{"a drain of an administrator shows", nil, adminDrain},
	{"asks over a socket without a token", []capability{sockets}, overSocket},
	{"a refused token fails the listing", nil, badToken},
	{"a refused token is told from a dead controller", []capability{tellAuth}, forbidden},
	{"a renewed token file is taken up", nil, renewedToken},
	{"drains, drains again, resumes", []capability{writes}, drainResume},
	{"a foreign drain is left alone", []capability{writes}, foreignDrain},
	{"a drain that replaced ours is not ours", []capability{writes}, replacedDrain},
	{"a resume by others is not ours to repeat", []capability{writes}, foreignResume},
	{"an unknown node cannot be drained", []capability{writes}, drainUnknown},
	{"who may not drain is told so", []capability{writes}, drainForbidden},
	{"an API without writes says so before any is sent", nil, notCapable},
	{"a static node is removed by our drain, and registered again", []capability{writes}, removeStatic},
	{"a removal leaves a foreign drain alone", []capability{writes}, removeForeign},
	{"a dynamic node is deleted", []capability{writes}, removeDynamic},
	{"a dynamic node is created again", []capability{writes, creates}, registerDynamic},
	{"an API that makes no nodes says so", []capability{writes}, registerUnknown},
	{"a node at work is removed when the work has left", []capability{writes, jobs}, removeBusy},
	{"work on a draining node shows until it ends", []capability{jobs}, drainingWork},
	{"a silent slurmd changes a drain as the release does", []capability{slurmds}, silentDrain},
	{"our drain outlives a silent slurmd", []capability{writes, slurmds}, outlivesSilence},
	{"a dead controller fails the listing and recovers", nil, controllerDown},
	{"a hung controller fails the listing within the time-outs", []capability{jobs}, controllerHung},
}

func runSuite(t *testing.T, p peer) {
	for _, item := range suite {
		t.Run(item.name, func(t *testing.T) {
			for _, need := range item.needs {
				if !p.has(need) {
					t.Skipf("the peer, with %s, lacks %s", p.version(), need)
				}
			}
			item.run(t, p)
		})
	}
}

func TestConformanceOfTheFake(t *testing.T) {
	t.Parallel()
	for _, generation := range []int{38, 42, 45} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) { t.Parallel(); runSuite(t, newFakePeer(t, generation)) })
	}
}

func TestConformanceOfTheSimulator(t *testing.T) {
	t.Parallel()
	for _, generation := range []int{38, 42, 45} {
		t.Run(fmt.Sprint(generation), func(t *testing.T) { t.Parallel(); runSuite(t, newSimulatedPeer(t, generation)) })
	}
}

func TestConformanceOfRealClusters(t *testing.T) {
	files := os.Getenv(peerVariable)
	if files == "" {
		t.Skipf("no real SLURM: %s does not name the slurm.env of a cluster that testdata/peers/slurm-up.sh started", peerVariable)
	}
	for _, file := range strings.Split(files, ",") {
		p, err := openPeer(strings.TrimSpace(file))
		if err != nil {
			t.Fatal(err)
		}
		t.Run(p.env["SLURM_VERSION"], func(t *testing.T) { t.Parallel(); runSuite(t, p) })
	}
}

func connect(t *testing.T, p peer, change func(*Config)) *Client {
	t.Helper()
	config := p.config(t)
	config.Transport.Retries = -1
	config.Transport.BreakerFailures = -1
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

// until waits for a node to be as wanted.
func until(t *testing.T, c *Client, node, what string, ok func(*facts.Slurm) bool) *facts.Slurm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		r, err := c.Get(ctx, node)
		if err == nil && ok(r.Slurm) {
			return r.Slurm
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s never was %s: %+v %v", node, what, r, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func newestVersion(t *testing.T, p peer) {
	got, err := connect(t, p, nil).Capabilities(t.Context())
	if err != nil || got.Version != p.version() || got.NodeWrites != p.has(writes) {
		t.Errorf("%+v %v, want %s", got, err, p.version())
	}
}

func listsAll(t *testing.T, p peer) {
	before := time.Now()
	l := listAll(t, connect(t, p, nil))
	if l.err != nil || !l.end.Complete || l.end.Dropped != 0 || len(l.records) != p.nodes() || l.end.Records != p.nodes() {
		t.Fatalf("%d records, %+v, %v", len(l.records), l.end, l.err)
	}
	for ref, r := range l.records {
		f := r.Slurm
		if f == nil || f.States&bases == 0 || f.Unmodelled || len(f.Unreadable) > 0 || f.Listed != facts.True || !f.Reason.Known || len(f.Partitions) == 0 ||
			r.Name != ref || r.At.Before(before) || r.At.After(time.Now()) {
			t.Errorf("%s: %+v %+v", ref, r, f)
		}
	}
}

func readsOne(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	l := listAll(t, c)
	r, err := c.Get(t.Context(), node)
	if err != nil || r.Ref != node || r.Slurm.States != l.records[node].Slurm.States {
		t.Errorf("%+v %v, listed as %s", r, err, l.tokens(node))
	}
}

func unknownNode(t *testing.T, p peer) {
	c := connect(t, p, nil)
	for range 3 {
		if r, err := c.Get(t.Context(), "nosuchnode"); !errors.Is(err, sources.ErrGone) || sources.KindOf(err) != sources.KindMissing {
			t.Errorf("%+v %v", r, err)
		}
	}
}

func adminDrain(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	before := time.Now().Add(-2 * time.Second)
	p.admin(t, node, "drain", "bad HBM")
	f := until(t, c, node, "drained", func(f *facts.Slurm) bool { return f.States.Has(facts.SlurmDrain) })
	if f.Reason.Value != "bad HBM" || f.ReasonSetBy != "root" || f.ReasonChangedAt.Before(before.Add(-time.Minute)) {
		t.Errorf("%+v", f)
	}
	if f.DrainMark != "" {
		t.Error("an administrator's drain is taken for ours")
	}
	p.admin(t, node, "resume", "")
	until(t, c, node, "resumed", func(f *facts.Slurm) bool { return !f.States.Has(facts.SlurmDrain) })
}

func overSocket(t *testing.T, p peer) {
	c := connect(t, p, func(c *Config) { c.URL, c.Token = "unix:"+p.socket(), "" })
	if l := listAll(t, c); l.err != nil || len(l.records) != p.nodes() {
		t.Errorf("%d records, %v", len(l.records), l.err)
	}
}

func badToken(t *testing.T, p peer) {
	for name, token := range map[string]string{"garbage": "garbage", "expired": p.mint(t, "root", -time.Minute), "none": ""} {
		l := listAll(t, connect(t, p, func(c *Config) { c.Token = token }))
		if l.err == nil || l.end.Complete || len(l.records) > 0 || !strings.Contains(l.err.Error(), "token") {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

func forbidden(t *testing.T, p peer) {
	l := listAll(t, connect(t, p, func(c *Config) { c.Token = p.mint(t, "root", -time.Minute) }))
	if sources.KindOf(l.err) != sources.KindForbidden {
		t.Errorf("%v", l.err)
	}
}

func renewedToken(t *testing.T, p peer) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(p.mint(t, "root", -time.Minute))
	c := connect(t, p, func(c *Config) { c.Token, c.TokenFile = "", file })
	if l := listAll(t, c); l.err == nil {
		t.Fatal("an expired token is accepted")
	}
	write(p.mint(t, "root", time.Hour))
	if l := listAll(t, c); l.err != nil {
		t.Errorf("after the renewal: %v", l.err)
	}
}

func drainResume(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	before := time.Now()
	got, err := c.Drain(t.Context(), node, mark, "replace the PSU")
	if err != nil || got.Outcome != DrainedByUs || !got.Facts.States.Has(facts.SlurmDrain) || got.Facts.Reason.Value != "muster:42 replace the PSU" || got.At.Before(before) {
		t.Fatalf("%+v %v", got, err)
	}
	if owner := listAll(t, c).records[node].Slurm.DrainMark; owner != mark {
		t.Errorf("the listing does not show the drain as ours: %q", owner)
	}
	again, err := c.Drain(t.Context(), node, mark, "replace the PSU")
	if err != nil || again.Outcome != DrainedByUs || !again.Facts.ReasonChangedAt.Equal(got.Facts.ReasonChangedAt) {
		t.Errorf("again: %+v %v", again, err)
	}
	if other, err := c.Drain(t.Context(), node, "muster:43", "x"); err != nil || other.Outcome != DrainedByOther {
		t.Errorf("another job: %+v %v", other, err)
	}
	if _, err := c.Resume(t.Context(), node, "muster:43"); sources.KindOf(err) != sources.KindConflict {
		t.Errorf("resumed by another job: %v", err)
	}
	back, err := c.Resume(t.Context(), node, mark)
	if err != nil || back.Outcome != Resumed || back.Facts.States.Has(facts.SlurmDrain) || strings.Contains(back.Facts.Extra+back.Facts.Comment, "muster") {
		t.Errorf("resume: %+v %v", back, err)
	}
	if back, err := c.Resume(t.Context(), node, mark); err != nil || back.Outcome != NotDrained {
		t.Errorf("resume again: %+v %v", back, err)
	}
}

func foreignDrain(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	p.admin(t, node, "drain", "bad HBM")
	got, err := c.Drain(t.Context(), node, mark, "x")
	if err != nil || got.Outcome != DrainedByOther || got.Facts.Reason.Value != "bad HBM" {
		t.Errorf("%+v %v", got, err)
	}
	if _, err := c.Resume(t.Context(), node, mark); sources.KindOf(err) != sources.KindConflict {
		t.Errorf("resume: %v", err)
	}
	f := until(t, c, node, "readable", func(*facts.Slurm) bool { return true })
	if !f.States.Has(facts.SlurmDrain) || f.Reason.Value != "bad HBM" || f.Extra != "" || f.Comment != "" {
		t.Errorf("the foreign drain was touched: %+v", f)
	}
	p.admin(t, node, "resume", "")
}

func replacedDrain(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	if _, err := c.Drain(t.Context(), node, mark, "x"); err != nil {
		t.Fatal(err)
	}
	p.admin(t, node, "resume", "")
	p.admin(t, node, "drain", "smoke")
	if _, err := c.Resume(t.Context(), node, mark); sources.KindOf(err) != sources.KindConflict {
		t.Errorf("resume: %v", err)
	}
	if got, err := c.Drain(t.Context(), node, mark, "x"); err != nil || got.Outcome != DrainedByOther {
		t.Errorf("drain: %+v %v", got, err)
	}
	f := until(t, c, node, "readable", func(*facts.Slurm) bool { return true })
	if !f.States.Has(facts.SlurmDrain) || f.Reason.Value != "smoke" {
		t.Errorf("%+v", f)
	}
	p.admin(t, node, "resume", "")
}

func foreignResume(t *testing.T, p peer) {
	c, node := connect(t, p, nil), p.free()
	if _, err := c.Drain(t.Context(), node, mark, "x"); err != nil {
		t.Fatal(err)
	}
	p.admin(t, node, "resume", "")
	got, err := c.Resume(t.Context(), node, mark)
	if err != nil || got.Outcome != NotDrained || strings.Contains(got.Facts.Extra, "muster") {
		t.Errorf("%+v %v", got, err)
	}
}

func drainUnknown(t *testing.T, p peer) {
	if _, err := connect(t, p, nil).Drain(t.Context(), "nosuchnode", mark, "x"); !errors.Is(err, sources.ErrGone) {
		t.Errorf("%v", err)
	}
}

func notCapable(t *testing.T, p peer) {
	_, err := connect(t, p, nil).Drain(t.Context(), "nosuchnode", mark, "x")
	if err == nil || errors.Is(err, ErrNotCapable) == p.has(writes) {
		t.Errorf("%v", err)
	}
}

func drainForbidden(t *testing.T, p peer) {
	if _, fake := p.(*fakePeer); fake {
		t.Skip("the fake knows no users")
	}
	node := p.free()
	c := connect(t, p, func(c *Config) { c.User, c.Token = "alice", p.mint(t, "alice", time.Hour) })
	if _, err := c.Drain(t.Context(), node, mark, "x"); sources.KindOf(err) != sources.KindForbidden {
		t.Errorf("%v", err)
	}
}

// A drain that is accepted is not a drain that is done.
func drainingWork(t *testing.T, p peer) {
	c := connect(t, p, nil)
	node, end := p.work(t)
	busy := facts.SlurmAllocated | facts.SlurmMixed | facts.SlurmCompleting
	until(t, c, node, "busy", func(f *facts.Slurm) bool { return f.States&busy != 0 })
	if p.has(writes) {
		if got, err := c.Drain(t.Context(), node, mark, "x"); err != nil || got.Outcome != DrainedByUs || got.Facts.States&busy == 0 {
			t.Errorf("%+v %v", got, err)
		}
	} else {
		p.admin(t, node, "drain", "x")
		until(t, c, node, "draining", func(f *facts.Slurm) bool { return f.States.Has(facts.SlurmDrain) && f.States&busy != 0 })
	}
	end()
	until(t, c, node, "drained", func(f *facts.Slurm) bool { return f.States.Has(facts.SlurmDrain) && f.States&busy == 0 })
	if p.has(writes) {
		if got, err := c.Resume(t.Context(), node, mark); err != nil || got.Outcome != Resumed {
			t.Errorf("%+v %v", got, err)
		}
		return
	}
	p.admin(t, node, "resume", "")
}
