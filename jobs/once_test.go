package jobs_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/store"
)

func itoa(id int64) string { return strconv.FormatInt(id, 10) }

func TestTheSameSubmissionAgainIsTheSameJob(t *testing.T) {
	w := newWorld(t)
	a, b := w.device("a"), w.device("b")
	s := w.submission(exclusive, a)
	s.IdempotencyKey, s.Parameters = "k1", object(t, map[string]any{"run_inspection": true})
	first, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	w.exec("update devices set retired_at = now() where id = $1", a) // by now it would be refused
	s.Parameters = []byte("{ \"run_inspection\" :true}")
	again, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	if first.Repeated || !again.Repeated || again.Job.ID != first.Job.ID {
		t.Fatalf("%+v, then %+v", first, again)
	}
	other := w.submission(exclusive, b)
	other.IdempotencyKey = "k1"
	_, err = w.svc.Submit(w.ctx(), other)
	coded(t, err, jobs.CodeIdempotencyKeyReused)
	other.By.Name = "bob" // a key is its principal's own
	if done, err := w.svc.Submit(w.ctx(), other); err != nil || done.Repeated {
		t.Fatalf("%+v, %v", done, err)
	}
}

func TestARefusalIsNotRemembered(t *testing.T) {
	w := newWorld(t)
	a := w.device("a", "inventory_status = 'rma'")
	s := w.submission(exclusive, a)
	s.IdempotencyKey = "k1"
	w.refused(s, "inventory_status_not_allowed")
	w.exec("update devices set inventory_status = 'active'")
	done, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	if done.Repeated {
		t.Fatalf("%+v", done)
	}
}

func TestAKeyIsForgottenAfterSevenDays(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	s := w.submission(shared, a)
	s.IdempotencyKey = "k1"
	first, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	w.exec("update idempotency_keys set created_at = now() - interval '8 days'")
	second, err := w.svc.Submit(w.ctx(), s)
	must(t, err)
	if second.Repeated || second.Job.ID == first.Job.ID {
		t.Fatalf("%+v", second)
	}
	if again, err := w.svc.Submit(w.ctx(), s); err != nil || again.Job.ID != second.Job.ID {
		t.Fatalf("%+v, %v", again, err)
	}
	w.exec("update idempotency_keys set created_at = now() - interval '8 days'")
	if n, err := store.ForgetIdempotencyKeys(w.ctx(), w.db, 10); n != 1 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

func TestOneKeySubmittedAtOnceIsOneJob(t *testing.T) {
	w := newWorld(t)
	a := w.device("a")
	s := w.submission(shared, a)
	s.IdempotencyKey = "k1"
	var wait sync.WaitGroup
	done := make(chan jobs.Submitted, 8)
	for range 8 {
		wait.Go(func() {
			got, err := w.svc.Submit(w.ctx(), s)
			if err != nil {
				t.Error(err)
			}
			done <- got
		})
	}
	wait.Wait()
	close(done)
	first := 0
	for got := range done {
		if !got.Repeated {
			first++
		}
	}
	if n := value[int](w, "select count(*) from jobs"); n != 1 || first != 1 {
		t.Fatalf("%d jobs, %d firsts", n, first)
	}
}
