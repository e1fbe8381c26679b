package jobs_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/store"
)

// attempt is one submission of a round, and what became of it.
type attempt struct {
	workflow string
	ids      []int64
	job      fleet.Job
	refused  *jobs.Report
	err      error
}

func (a *attempt) locks() bool   { return a.workflow != reading }
func (a *attempt) shares() bool  { return a.workflow == shared }
func (a *attempt) disrupts() int { return map[bool]int{true: len(a.ids)}[a.workflow == taking] }

func (a *attempt) excludes(b *attempt) bool {
	return a.locks() && b.locks() && !(a.shares() && b.shares()) && slices.ContainsFunc(a.ids, func(id int64) bool { return slices.Contains(b.ids, id) })
}

// model is what must be true of the table of locks.
type model struct {
	w    *world
	ids  []int64
	most int // the cap
	held []*attempt
}

func (m *model) disrupted() (n int) {
	for _, a := range m.held {
		n += a.disrupts()
	}
	return n
}

// round submits all attempts at once and holds the answers against the model:
// those that were admitted exclude nobody, and each refusal has its cause.
func (m *model) round(t *rapid.T, attempts []*attempt) {
	var wait sync.WaitGroup
	start := make(chan struct{})
	for _, a := range attempts {
		wait.Go(func() {
			<-start
			done, err := m.w.svc.Submit(m.w.ctx(), m.w.submission(a.workflow, a.ids...))
			a.job = done.Job
			var refused *jobs.RefusedError
			if errors.As(err, &refused) {
				a.refused = &refused.Report
			} else {
				a.err = err
			}
		})
	}
	close(start)
	wait.Wait()
	for _, a := range attempts {
		if a.err != nil {
			t.Fatalf("%s on %v: %v", a.workflow, a.ids, a.err)
		}
		if a.refused != nil {
			continue
		}
		for _, b := range m.held {
			if a.excludes(b) {
				t.Fatalf("%s on %v was admitted beside %s on %v", a.workflow, a.ids, b.workflow, b.ids)
			}
		}
		m.held = append(m.held, a)
	}
	if n := m.disrupted(); n > m.most {
		t.Fatalf("%d devices are disrupted, the cap is %d", n, m.most)
	}
	for _, a := range attempts {
		if a.refused != nil {
			m.justify(t, a)
		}
	}
	m.agree(t)
}

// justify wants each code of a refusal to have a cause among what is admitted,
// and each conflict to name it.
func (m *model) justify(t *rapid.T, a *attempt) {
	codes := a.refused.Codes()
	for _, code := range codes {
		switch {
		case code == jobs.CodeBlastCapExceeded && m.disrupted()+a.disrupts() > m.most:
		case code == jobs.CodeWorkflowConflict && slices.ContainsFunc(m.held, a.excludes):
		default:
			t.Fatalf("%s on %v was refused with %v for no cause", a.workflow, a.ids, codes)
		}
	}
	for _, v := range a.refused.Devices {
		for _, r := range v.Refusals {
			if !slices.ContainsFunc(m.held, func(b *attempt) bool { return b.job.Holder() == r.Holder && slices.Contains(b.ids, v.ID) }) {
				t.Fatalf("%s is said to be held by %s", v.Name, r.Holder)
			}
		}
	}
}

// agree compares the table of locks with the model.
func (m *model) agree(t *rapid.T) {
	var want, got []string
	for _, a := range m.held {
		for _, id := range a.ids {
			if mode := map[bool]string{true: "shared", false: "exclusive"}[a.shares()]; a.locks() {
				want = append(want, fmt.Sprint(id, " ", a.job.Holder(), " ", mode))
			}
		}
	}
	all, err := store.LocksOf(m.w.ctx(), m.w.db, m.ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		got = append(got, fmt.Sprint(l.DeviceID, " ", l.Holder, " ", l.Mode))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("locks are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// end ends one job in one of the ways in which jobs end.
func (m *model) end(t *rapid.T, i int, cancel bool) {
	a := m.held[i]
	m.held = slices.Delete(m.held, i, i+1)
	var err error
	if cancel {
		_, err = m.w.svc.Cancel(m.w.ctx(), a.job.ID, "", devices.Caller{Name: "ann"}, nil)
	}
	for _, id := range a.ids {
		if err == nil && !cancel {
			err = m.w.svc.Finish(m.w.ctx(), workflowID(a.job, id), id, jobs.Ending{Status: fleet.DeviceSucceeded})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestSimultaneousSubmissionsAgreeWithAModel(t *testing.T) {
	w := newWorld(t)
	const most = 4
	w.svc.Limit([]engine.BlastCap{{Scope: engine.Scope{Name: "cap", Per: []string{"site"}}, Devices: most}, {Scope: engine.Scope{Name: "again", Per: []string{"fleet", "class"}}, Devices: most}}, nil)
	ids := w.devices(8)
	w.exec("insert into racks (site_id, source_ref, name) values ($1, '1', 'r1')", w.lab.ID)
	w.exec("update devices set rack_id = (select id from racks)")
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{w: w, ids: ids, most: most}
		w.exec("delete from device_locks") // of a check that failed
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			var attempts []*attempt
			for range rapid.IntRange(2, 8).Draw(rt, "submissions") {
				a := &attempt{workflow: rapid.SampledFrom([]string{exclusive, exclusive, taking, taking, shared, reading}).Draw(rt, "workflow")}
				a.ids = rapid.Permutation(ids).Draw(rt, "order")[:rapid.IntRange(1, 5).Draw(rt, "devices")]
				attempts = append(attempts, a)
			}
			m.round(rt, attempts)
			for range rapid.IntRange(0, len(m.held)).Draw(rt, "ends") {
				m.end(rt, rapid.IntRange(0, len(m.held)-1).Draw(rt, "which"), rapid.Bool().Draw(rt, "cancel"))
			}
			m.agree(rt)
		}
		for len(m.held) > 0 {
			m.end(rt, 0, false)
		}
	})
	w.wantNoDeadlock()
}

func TestOfManySubmissionsForOneDeviceOneWins(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	for range 20 {
		var wait sync.WaitGroup
		won := make(chan fleet.Job, 8)
		for range 8 {
			wait.Go(func() {
				done, err := w.svc.Submit(w.ctx(), w.submission(exclusive, a))
				var refused *jobs.RefusedError
				switch {
				case err == nil:
					won <- done.Job
				case !errors.As(err, &refused) || !slices.Equal(refused.Report.Codes(), []string{jobs.CodeWorkflowConflict}):
					t.Error(err)
				}
			})
		}
		wait.Wait()
		close(won)
		if len(won) != 1 {
			t.Fatalf("%d won", len(won))
		}
		w.finish(<-won, a, fleet.DeviceSucceeded, "")
	}
	w.wantNoDeadlock()
}

func TestLargeJobsInOppositeOrderDoNotDeadlock(t *testing.T) {
	w := newWorld(t)
	w.svc.Limit([]engine.BlastCap{{Scope: engine.Scope{Name: "a", Per: []string{"site"}}, Devices: 5000}, {Scope: engine.Scope{Name: "b", Per: []string{"class"}}, Devices: 5000}, {Scope: engine.Scope{Name: "c", Per: []string{"fleet"}}, Devices: 5000}}, nil)
	ids := w.devices(1000)
	random := rand.New(rand.NewPCG(1, 2))
	for range 3 {
		type answer struct {
			job fleet.Job
			ids []int64
		}
		var wait sync.WaitGroup
		won := make(chan answer, 6)
		for n := range 6 {
			mine := slices.Clone(ids)
			switch n % 3 {
			case 1:
				slices.Reverse(mine)
			case 2:
				random.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			}
			workflow := []string{taking, exclusive}[n%2]
			wait.Go(func() {
				done, err := w.svc.Submit(w.ctx(), w.submission(workflow, mine...))
				var refused *jobs.RefusedError
				switch {
				case err == nil:
					won <- answer{done.Job, mine}
				case !errors.As(err, &refused):
					t.Error(err)
				case refused.Report.Codes()[0] != jobs.CodeWorkflowConflict && refused.Report.Codes()[0] != jobs.CodeBlastCapExceeded:
					t.Errorf("refused with %v", refused.Report.Codes())
				}
			})
		}
		wait.Wait()
		close(won)
		if len(won) != 1 {
			t.Fatalf("%d won", len(won))
		}
		a := <-won
		if n := value[int](w, "select count(*) from device_locks where holder = $1 and mode = 'exclusive'", a.job.Holder()); n != len(ids) {
			t.Fatalf("%d locks", n)
		}
		_, err := w.svc.Cancel(w.ctx(), a.job.ID, "", devices.Caller{Name: "ann"}, nil)
		must(t, err)
		if n := value[int](w, "select count(*) from device_locks"); n != 0 {
			t.Fatalf("%d locks are left", n)
		}
	}
	w.wantNoDeadlock()
}

// What ends, is cancelled, dispatched and expires at once with submissions
// leaves no lock without an owner and no owner without an end.
func TestEverythingAtOnceComesToRest(t *testing.T) {
	w := newWorld(t)
	ids := w.devices(12)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	to := &temporal{}
	work := func(f func(r *rand.Rand) error) {
		seed := rand.Uint64()
		wait.Go(func() {
			r := rand.New(rand.NewPCG(seed, 1))
			for {
				select {
				case <-stop:
					return
				default:
				}
				var refused *jobs.RefusedError
				var coded *jobs.Error
				if err := f(r); err != nil && !errors.As(err, &refused) && !errors.As(err, &coded) && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
					return
				}
			}
		})
	}
	any := func(r *rand.Rand) (fleet.Execution, bool) {
		sent, err := store.SentExecutions(w.ctx(), w.db, "", 50)
		if err != nil || len(sent) == 0 {
			return fleet.Execution{}, false
		}
		return sent[r.IntN(len(sent))], true
	}
	for range 2 {
		work(func(r *rand.Rand) error {
			some := slices.Clone(ids)
			r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			_, err := w.svc.Submit(w.ctx(), w.submission([]string{exclusive, shared, taking}[r.IntN(3)], some[:1+r.IntN(4)]...))
			return err
		})
		work(func(r *rand.Rand) error { _, err := w.svc.Dispatch(w.ctx(), to); return err })
		work(func(r *rand.Rand) error {
			e, ok := any(r)
			if !ok {
				return nil
			}
			b, err := w.svc.Begin(w.ctx(), e.WorkflowID)
			if err != nil || len(b.Devices) == 0 {
				return err
			}
			status := []fleet.JobDeviceStatus{fleet.DeviceSucceeded, fleet.DeviceFailed, fleet.DeviceCancelled}[r.IntN(3)]
			if err := w.svc.Finish(w.ctx(), e.WorkflowID, e.DeviceID, jobs.Ending{Status: status}); err != nil {
				return err
			}
			return w.svc.Close(w.ctx(), e.WorkflowID, jobs.Ending{Status: fleet.DeviceFailed})
		})
	}
	work(func(r *rand.Rand) error {
		_, err := w.svc.Cancel(w.ctx(), 1+r.Int64N(50), "", devices.Caller{Name: "ann"}, nil)
		return err
	})
	work(func(r *rand.Rand) error { _, err := w.svc.Expire(w.ctx(), 5); return err })
	for deadline := time.Now().Add(4 * time.Second); time.Now().Before(deadline); {
		if value[int](w, "select count(*) from jobs where status in ('succeeded', 'failed', 'partially_failed', 'cancelled')") > 60 {
			break
		}
	}
	close(stop)
	wait.Wait()
	w.exec("update executions set dispatch_by = now() - interval '1 hour' where state = 'unsent'")
	for {
		if n, err := w.svc.Expire(w.ctx(), 100); err != nil || n == 0 {
			must(t, err)
			break
		}
	}
	for e, ok := any(rand.New(rand.NewPCG(1, 1))); ok; e, ok = any(rand.New(rand.NewPCG(1, 1))) {
		must(t, w.svc.Close(w.ctx(), e.WorkflowID, jobs.Ending{Status: fleet.DeviceFailed, Code: codes.InternalError}))
	}
	if n := value[int](w, "select count(*) from device_locks"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	if n := value[int](w, "select count(*) from jobs where not job_ended(status)"); n != 0 {
		t.Errorf("%d jobs have not ended", n)
	}
	if n := value[int](w, "select count(*) from jobs"); n < 5 {
		t.Errorf("only %d jobs were made", n)
	}
	w.wantNoDeadlock()
}
