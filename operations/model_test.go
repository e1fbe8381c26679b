package operations_test

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

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations"
	"github.com/musterhq/muster/store"
)

// expected is a task as the model has it.
type expected struct {
	id         int64
	rack       int
	operation  string
	components []string
	status     fleet.TaskStatus
}

// model is what must be true of two racks whatever is asked of them.
type model struct {
	w     *world
	racks [2]int64
	of    [2]map[string]int64
	tasks []*expected
	job   string // the device, as rack/name, that a job holds
}

func (m *model) same(rack int, operation string, components []string) *expected {
	for _, e := range m.tasks {
		if !e.status.Ended() && e.rack == rack && e.operation == operation && slices.Equal(e.components, components) {
			return e
		}
	}
	return nil
}

func key(rack int, name string) string { return fmt.Sprint(rack, "/", name) }

// locks are what a task of these components locks: with a shelf or a link the rack.
func (m *model) locks(rack int, components []string) []string {
	names := components
	if slices.ContainsFunc(components, func(name string) bool { return name[0] == 'p' || name[0] == 'n' }) {
		names = nil
		for name := range m.of[rack] {
			names = append(names, name)
		}
	}
	var all []string
	for _, name := range names {
		all = append(all, key(rack, name))
	}
	return all
}

func (m *model) held() map[string]string {
	held := map[string]string{}
	if m.job != "" {
		held[m.job] = "job/0"
	}
	for _, e := range m.tasks {
		if e.status == fleet.TaskPending || e.status == fleet.TaskRunning {
			for _, k := range m.locks(e.rack, e.components) {
				held[k] = fleet.TaskHolder(e.id)
			}
		}
	}
	return held
}

func (m *model) free(rack int, components []string) bool {
	held := m.held()
	return !slices.ContainsFunc(m.locks(rack, components), func(k string) bool { return held[k] != "" })
}

func (m *model) queue(rack int) []*expected {
	return slices.DeleteFunc(slices.Clone(m.tasks), func(e *expected) bool { return e.rack != rack || e.status != fleet.TaskQueued })
}

func (m *model) submit(t *rapid.T) {
	rack := rapid.IntRange(0, 1).Draw(t, "rack")
	operation := rapid.SampledFrom([]string{"power_on", "power_off"}).Draw(t, "operation")
	components := rapid.SampledFrom([][]string{{"c1"}, {"c2"}, {"c1", "c2"}, {"n1"}, {"c3", "p1"}}).Draw(t, "components")
	r := power(operation, m.racks[rack])
	for _, name := range components {
		r.Components = append(r.Components, jobs.Ref{ID: m.of[rack][name]})
	}
	r.Conflict = rapid.SampledFrom([]string{operations.ConflictQueue, operations.ConflictRefuse}).Draw(t, "conflict")
	done, err := m.w.svc.Submit(m.w.ctx(), r)
	same, free := m.same(rack, operation, components), m.free(rack, components)
	var refused *jobs.RefusedError
	switch {
	case same != nil:
		if err != nil || !done.Repeated || done.Tasks[0].ID != same.id {
			t.Fatalf("the same as task %d became %+v, %v", same.id, done, err)
		}
	case !free && r.Conflict == operations.ConflictRefuse:
		if !errors.As(err, &refused) || !slices.Equal(refused.Report.Codes(), []string{jobs.CodeWorkflowConflict}) {
			t.Fatalf("%s of %v on a rack that is held: %+v, %v", operation, components, done, err)
		}
	case err != nil:
		t.Fatal(err)
	default:
		e := &expected{done.Tasks[0].ID, rack, operation, components, fleet.TaskPending}
		if r.Conflict == operations.ConflictQueue && (!free || len(m.queue(rack)) > 0) {
			e.status = fleet.TaskQueued
		}
		m.tasks = append(m.tasks, e)
	}
}

func (m *model) promote(t *rapid.T) {
	n, err := m.w.svc.Promote(m.w.ctx())
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for rack := range m.racks {
		for _, e := range m.queue(rack) {
			if !m.free(rack, e.components) {
				break
			}
			e.status = fleet.TaskPending
			want++
		}
	}
	if n != want {
		t.Fatalf("%d went on, want %d", n, want)
	}
}

// pick chooses a task of a status.
func (m *model) pick(t *rapid.T, statuses ...fleet.TaskStatus) *expected {
	some := slices.DeleteFunc(slices.Clone(m.tasks), func(e *expected) bool { return !slices.Contains(statuses, e.status) })
	if len(some) == 0 {
		return nil
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "which")]
}

// step changes one thing.
func (m *model) step(t *rapid.T) {
	ctx := m.w.ctx()
	var err error
	switch act := rapid.SampledFrom([]string{"submit", "submit", "submit", "begin", "finish", "cancel", "promote", "expire", "job"}).Draw(t, "act"); act {
	case "submit":
		m.submit(t)
	case "promote":
		m.promote(t)
	case "begin":
		if e := m.pick(t, fleet.TaskPending); e != nil {
			_, err = m.w.svc.Begin(ctx, fleet.TaskHolder(e.id))
			e.status = fleet.TaskRunning
		}
	case "finish":
		if e := m.pick(t, fleet.TaskRunning); e != nil {
			e.status = rapid.SampledFrom([]fleet.TaskStatus{fleet.TaskSucceeded, fleet.TaskFailed}).Draw(t, "end")
			err = m.w.svc.Finish(ctx, fleet.TaskHolder(e.id), jobs.Ending{Status: fleet.JobDeviceStatus(e.status)})
		}
	case "cancel":
		if e := m.pick(t, fleet.TaskPending, fleet.TaskQueued); e != nil {
			e.status = fleet.TaskCancelled
			err = m.w.svc.Cancel(ctx, e.id, "", ann, nil)
		}
	case "expire":
		if e := m.pick(t, fleet.TaskQueued); e != nil {
			e.status = fleet.TaskExpired
			m.w.exec("update tasks set queue_until = now() where id = $1", e.id)
			_, err = m.w.svc.Expire(ctx, 10)
		}
	case "job": // somebody's job takes a tray, or lets it go
		if m.job != "" {
			m.job = ""
			m.w.exec("delete from device_locks where holder = 'job/0'")
		} else if k := key(0, "c1"); m.held()[k] == "" {
			m.job = k
			m.w.exec("insert into device_locks (device_id, holder, mode, work, disruptive, held) values ($1, 'job/0', 'exclusive', 'w', false, false)", m.of[0]["c1"])
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	m.agree(t)
}

// agree compares the database with the model.
func (m *model) agree(t *rapid.T) {
	var want, got []string
	for k, holder := range m.held() {
		rack, name, _ := strings.Cut(k, "/")
		want = append(want, fmt.Sprint(m.of[int(rack[0]-'0')][name], " ", holder))
	}
	var all []int64
	for rack := range m.of {
		for _, id := range m.of[rack] {
			all = append(all, id)
		}
	}
	locks, err := store.LocksOf(m.w.ctx(), m.w.db, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range locks {
		got = append(got, fmt.Sprint(l.DeviceID, " ", l.Holder))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Fatalf("locks are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, e := range m.tasks {
		if is := m.w.task(e.id).Status; is != e.status {
			t.Fatalf("task %d is %s, want %s", e.id, is, e.status)
		}
	}
}

func TestQueueAndLocksAgreeWithAModel(t *testing.T) {
	w := newWorld(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &model{w: w}
		for i := range m.racks {
			m.racks[i], m.of[i] = w.rack(fmt.Sprintf("r%d-%d", n, i))
		}
		w.exec("delete from device_locks") // of a check before
		w.exec("update tasks set status = 'expired' where status = 'queued'")
		for range rapid.IntRange(5, 25).Draw(rt, "steps") {
			m.step(rt)
		}
	})
	w.wantNoDeadlock()
}

func (w *world) wantNoDeadlock() {
	w.t.Helper()
	if n := value[int64](w, "select deadlocks from pg_stat_database where datname = current_database()"); n != 0 {
		w.t.Errorf("%d deadlocks", n)
	}
}

// Submissions, jobs, promotions, ends and cancels at once leave no lock without an
// owner, never two tasks on one device, and nobody waits in a circle.
func TestEverythingAtOnceComesToRest(t *testing.T) {
	w := newWorld(t)
	racks, of := []int64{}, []map[string]int64{}
	for i := range 3 {
		id, names := w.rack(fmt.Sprint("r", i))
		racks, of = append(racks, id), append(of, names)
	}
	stop := make(chan struct{})
	var wait sync.WaitGroup
	work := func(seed uint64, f func(r *rand.Rand) error) {
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
	for seed := range uint64(3) {
		work(seed, func(r *rand.Rand) error {
			some := slices.Clone(racks)
			r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			request := power([]string{"power_on", "power_off"}[r.IntN(2)], some[:1+r.IntN(3)]...)
			request.Conflict = []string{operations.ConflictQueue, operations.ConflictRefuse}[r.IntN(2)]
			request.Components = named([][]string{{"compute"}, {"nvswitch"}, nil}[r.IntN(3)]...)
			_, err := w.svc.Submit(w.ctx(), request)
			return err
		})
	}
	work(11, func(r *rand.Rand) error {
		refs := []jobs.Ref{{ID: of[r.IntN(3)]["c1"]}}
		done, err := w.jobs.Submit(w.ctx(), jobs.Submission{Request: jobs.Request{Workflow: "enrollment", Devices: refs}, By: ann})
		if err != nil {
			return err
		}
		return w.jobs.Finish(w.ctx(), fmt.Sprintf("%s/device/%d", done.Job.Holder(), refs[0].ID), refs[0].ID, jobs.Ending{Status: fleet.DeviceSucceeded})
	})
	for seed := uint64(20); seed < 22; seed++ {
		work(seed, func(*rand.Rand) error { _, err := w.svc.Promote(w.ctx()); return err })
		work(seed+10, func(r *rand.Rand) error {
			yes := true
			rows, err := store.ListTasks(w.ctx(), w.db, store.TaskFilter{Open: &yes, Limit: 50})
			if err != nil || len(rows) == 0 {
				return err
			}
			task := &rows[r.IntN(len(rows))]
			if r.IntN(4) == 0 {
				return w.svc.Cancel(w.ctx(), task.ID, "", ann, nil)
			}
			if _, err := w.svc.Begin(w.ctx(), task.Holder()); err != nil {
				return err
			}
			return w.svc.Finish(w.ctx(), task.Holder(), succeeded())
		})
	}
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); {
		if value[int](w, "select count(*) from tasks where job_ended(status)") > 150 {
			break
		}
	}
	close(stop)
	wait.Wait()
	for range 1000 {
		w.promote()
		yes := true
		rows, err := store.ListTasks(w.ctx(), w.db, store.TaskFilter{Open: &yes, Limit: 500})
		must(t, err)
		if len(rows) == 0 {
			break
		}
		for i := range rows {
			if rows[i].Status != fleet.TaskQueued {
				w.begin(rows[i].Task)
				w.finish(rows[i].Task, jobs.Ending{Status: fleet.DeviceCancelled})
				must(t, w.svc.Close(w.ctx(), rows[i].Holder(), jobs.Ending{Status: fleet.DeviceCancelled}))
			}
		}
	}
	if n := value[int](w, "select count(*) from device_locks"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	if n := value[int](w, "select count(*) from tasks where not job_ended(status)"); n != 0 {
		t.Errorf("%d tasks have not ended", n)
	}
	if n := value[int](w, "select count(*) from tasks"); n < 10 {
		t.Errorf("only %d tasks were made", n)
	}
	w.wantNoDeadlock()
}
