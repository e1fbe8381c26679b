package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/simulator/world"
)

// rackPlant is a plant whose first rack is known, and its worker.
func rackPlant(t *testing.T, adjust ...described) (*plant, *replica) {
	t.Helper()
	p := newPlantOf(t, pgtest.Template(t, "migrated", migrated), 4, adjust...) // one of them is less than the shipped caps let go at once
	p.startTemporal(t)
	p.serve(t, "api,reconciler")
	worker := p.serve(t, "worker")
	p.token = strings.TrimSpace(p.run(t, "token", "create", "racks", "--scope", "operation:read", "--scope", "operation:write", "--scope", "operation:force", "--scope", "rule:read", "--scope", "rule:write"))
	p.until(t, "the rack to be known", "select count(*) = 35 from devices where name like 'sim1-r01-%' and device_class in ('gpu_compute', 'nvswitch', 'powershelf') and bmc_address <> ''")
	return p, worker
}

// operate submits an operation on the plant's rack, when Ironic is through with the
// one before, and gives its task.
func (p *plant) operate(t *testing.T, args ...string) (task int64) {
	t.Helper()
	for began := time.Now(); ; <-time.After(500 * time.Millisecond) {
		said, err := p.try(t, append([]string{"operation", "submit"}, args...)...)
		if err == nil {
			break
		}
		if !strings.Contains(said, "ironic_state_not_allowed") || time.Since(began) > patience { // that passes
			t.Fatalf("operation submit %v: %v\n%s", args, err, said)
		}
	}
	if err := p.rows.QueryRow(t.Context(), "select max(id) from tasks").Scan(&task); err != nil {
		t.Fatal(err)
	}
	return task
}

// taskEnds waits for a task's end and gives its report.
func (p *plant) taskEnds(t *testing.T, task int64, want string) {
	t.Helper()
	for _, kind := range p.texts(t, "select component_type from task_entries where task_id = $1 group by 1 order by min(stage)", task) { // each has the patience of one step
		p.until(t, "the turn of "+kind, "select job_ended(status) or exists (select from task_entries where task_id = $1 and component_type = $2 and status <> '') from tasks where id = $1", task, kind)
	}
	p.until(t, "the task's end", "select job_ended(status) from tasks where id = $1", task)
	var status, code, message string
	if err := p.rows.QueryRow(t.Context(), "select status, failure_code, failure_message from tasks where id = $1", task).Scan(&status, &code, &message); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(status + " " + code); got != want {
		rows, err := p.rows.Query(t.Context(), "select d.name || ' ' || c.status || ' ' || c.failure_code || ' ' || c.failure_message || ' ' || c.last_state from task_components c join devices d on d.id = c.device_id where task_id = $1", task)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var line string
			_ = rows.Scan(&line)
			t.Log(line)
		}
		t.Fatalf("task %d is %s (%s), want %s", task, got, message, want)
	}
	p.until(t, "the devices to be free", "select not exists (select from device_locks where holder = 'task/' || $1::bigint)", task)
}

// TestARackGoesDownAndUp runs operations on a real Temporal and a real database
// against the simulated fleet: compute trays through Ironic, the others through
// their BMCs.
func TestARackGoesDownAndUp(t *testing.T) {
	t.Parallel()
	p, worker := rackPlant(t)

	// Its customers keep it from being switched off without a reason.
	if said, err := p.try(t, "operation", "submit", "power_off", "sim1-r01", "--reason", "test"); err == nil || !strings.Contains(said, "instance_present") {
		t.Fatalf("a rack with customers was taken: %v\n%s", err, said)
	}
	down := p.operate(t, "power_off", "sim1-r01", "--reason", "test", "--override", "the customers know")
	p.until(t, "the trays to go down", "select count(*) >= 3 from task_entries where task_id = $1 and component_type = 'compute' and status = 'succeeded'", down)
	worker.kill(t)
	p.serve(t, "worker")
	p.taskEnds(t, down, "succeeded")
	all, err := p.control.Effects(t.Context(), 0, "")
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	offs := map[string]int{}
	for _, e := range all.Effects {
		if e.Face == world.FaceMachine {
			offs[e.Subject+" "+e.Op]++
			if kind := strings.TrimRight(strings.TrimPrefix(e.Subject, "sim1-r01-"), "0123456789"); len(order) == 0 || order[len(order)-1] != kind {
				order = append(order, kind)
			}
		}
	}
	if len(offs) < 30 { // a few were off before
		t.Errorf("%d machines were switched: %v", len(offs), offs)
	}
	for what, n := range offs {
		if n != 1 {
			t.Errorf("%s was done %d times", what, n)
		}
	}
	if want := []string{"c", "n", "p"}; !slices.Equal(order, want) {
		t.Errorf("it went down in the order %v", order)
	}
	up := p.operate(t, "power_on", "sim1-r01", "--reason", "test")
	p.taskEnds(t, up, "succeeded")
	if report := p.run(t, "operation", "show", fmt.Sprint(up)); !strings.Contains(report, "succeeded") || strings.Contains(report, "failed") {
		t.Errorf("its report is\n%s", report)
	}
}

// try runs a command that may fail, and gives what it said.
func (p *plant) try(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := p.command(t, args...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
