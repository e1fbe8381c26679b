package slurm

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// jobMembers are what differs from job to job; the rest is the shape's.
var jobMembers = []string{
	"job_id", "name", "user_name", "user_id", "partition", "job_state", "state_reason", "nodes", "batch_host", "required_nodes", "node_count",
	"cpus", "submit_time", "eligible_time", "accrue_time", "last_sched_evaluation", "start_time", "end_time", "exit_code", "derived_exit_code",
	"comment", "current_working_directory", "time_limit", "job_resources", "cluster",
}

func (x *exchange) listJobs(string) {
	if x.unchanged() || !x.reachJobs("Unable to query jobs", "slurm_load_jobs()") {
		return
	}
	var jobs []*world.SlurmJob
	var now time.Time
	x.world.Read(func(s *world.State) {
		now = s.Now
		for _, j := range s.SlurmJobs.Of(x.site) {
			jobs = append(jobs, j)
		}
	})
	d := &document{}
	x.writeJobs(d, now, jobs)
	if len(jobs) == 0 {
		d.warn("Zero jobs to dump", "")
	}
	x.answer(d)
}

// reachJobs asks slurmctld of jobs, which 22.05 has its own words for.
func (x *exchange) reachJobs(about, source string) bool {
	if x.v.old() {
		about, source = "Failed while looking for jobs", "slurm_load_jobs"
	}
	return x.reach(about, source, "jobs")
}

func (x *exchange) writeJobs(d *document, now time.Time, jobs []*world.SlurmJob) {
	d.set("jobs", func(b []byte) []byte {
		b = append(b, '[')
		for i, j := range jobs {
			if i > 0 {
				b = append(b, ',')
			}
			b = x.v.job.write(b, func(b []byte, name string) []byte { return x.jobMember(b, j, name) })
		}
		return append(b, ']')
	})
	if !x.v.old() {
		d.set("last_backfill", func(b []byte) []byte { return x.v.instant(b, now) })
		d.set("last_update", func(b []byte) []byte { return x.v.instant(b, now) })
	}
}

func (x *exchange) getJob(name string) {
	if !x.reachJobs("Unable to query JobId="+name, "_handle_job_get") {
		return
	}
	id, _ := strconv.Atoi(name) // what is no number is no job
	var j *world.SlurmJob
	var now time.Time
	x.world.Read(func(s *world.State) {
		now = s.Now
		j = s.SlurmJobs.Get(world.JobKey(x.site, id))
	})
	d := &document{}
	switch {
	case j != nil:
		x.writeJobs(d, now, []*world.SlurmJob{j})
	case x.v.old():
		d.status = http.StatusInternalServerError
		x.empty(d, "jobs")
		d.fail(fault{"Unable to find JobId=" + name, 2017, noJob, "slurm_load_job"})
	default:
		d.status = http.StatusNotFound
		x.empty(d, "jobs")
		d.fail(fault{"Unable to query JobId=" + name, 2017, noJob, "_handle_job_get"})
	}
	x.answer(d)
}

const noJob = "Invalid job id specified"

func (x *exchange) jobMember(b []byte, j *world.SlurmJob, name string) []byte {
	switch name {
	case "job_id":
		return strconv.AppendInt(b, int64(j.ID), 10)
	case "name":
		return wire.Quote(b, j.Name)
	case "user_name":
		return wire.Quote(b, j.User)
	case "user_id":
		return strconv.AppendInt(b, int64(pick(j.User == "root", 0, 1000)), 10)
	case "partition":
		return wire.Quote(b, j.Partition)
	case "cluster":
		return wire.Quote(b, x.site)
	case "comment":
		return wire.Quote(b, j.Comment)
	case "current_working_directory":
		return wire.Quote(b, j.Folder)
	case "job_state":
		if x.v.old() {
			return wire.Quote(b, j.State)
		}
		return wire.QuoteAll(b, []string{j.State})
	case "state_reason":
		return wire.Quote(b, pick(j.Why == "", "None", j.Why))
	case "nodes":
		return wire.Quote(b, strings.Join(j.Nodes, ","))
	case "batch_host":
		return wire.Quote(b, pick(len(j.Nodes) > 0, strings.Join(j.Nodes[:min(1, len(j.Nodes))], ""), ""))
	case "required_nodes":
		return wire.Quote(b, strings.Join(j.Required, ","))
	case "node_count":
		return x.v.integer(b, int64(max(j.Wanted, len(j.Nodes))))
	case "cpus":
		return x.v.integer(b, int64(cpus*max(j.Wanted, len(j.Nodes))))
	case "time_limit":
		return x.v.integer(b, int64(pick(j.Limit > 0, j.Limit, time.Hour)/time.Minute))
	case "exit_code", "derived_exit_code":
		return x.exitCode(b, j)
	case "job_resources":
		return x.jobResources(b, j)
	}
	return x.v.instant(b, jobTime(j, name))
}

// jobTime gives one of a job's instants. A running job's end is when its limit is.
func jobTime(j *world.SlurmJob, name string) time.Time {
	switch {
	case name == "start_time":
		return j.Started
	case name == "end_time" && j.State == world.JobRunning:
		return j.Started.Add(pick(j.Limit > 0, j.Limit, time.Hour))
	case name == "end_time":
		return j.Ended
	case name == "last_sched_evaluation" && !j.Started.IsZero():
		return j.Started
	}
	return j.Submitted
}

// exitCode appends how a job ended: as wait() has it, or in words.
func (x *exchange) exitCode(b []byte, j *world.SlurmJob) []byte {
	code := pick(j.State == world.JobFailed, j.Exit, 0)
	if x.v.old() {
		return strconv.AppendInt(b, int64(code<<8|j.Signal), 10)
	}
	status, signal := pick(code != 0, "ERROR", "SUCCESS"), map[int]string{1: "HUP", 15: "TERM"}[j.Signal]
	if j.Signal != 0 {
		status = "SIGNALED"
	}
	return fmt.Appendf(b, `{"status":[%q],"return_code":{"set":%t,"infinite":false,"number":%d},"signal":{"id":{"set":%t,"infinite":false,"number":%d},"name":%q}}`,
		status, j.Signal == 0, code, j.Signal != 0, j.Signal, signal)
}

// jobResources appends what a job has or had: nothing before it began, of which
// 22.05 does not even have the member.
func (x *exchange) jobResources(b []byte, j *world.SlurmJob) []byte {
	switch {
	case len(j.Nodes) == 0 && x.v.old():
		return b
	case len(j.Nodes) == 0:
		return append(b, "null"...)
	case x.v.old():
		b = fmt.Appendf(b, `{"nodes":%s,"allocated_cores":%d,"allocated_hosts":%d,"allocated_nodes":[`, wire.Quote(nil, strings.Join(j.Nodes, ",")), cpus*len(j.Nodes), len(j.Nodes))
		for i, name := range j.Nodes {
			b = fmt.Appendf(b, `%s{"sockets":{"0":{"cores":{"0":"allocated"}}},"nodename":%s,"cpus_used":0,"memory_used":0,"memory_allocated":0}`, pick(i > 0, ",", ""), wire.Quote(nil, name))
		}
		return append(b, "]}"...)
	}
	b = fmt.Appendf(b, `{"select_type":[%q],"nodes":{"count":%d,"select_type":["ONE_ROW"],"list":%s,"whole":true,"allocation":[`,
		pick(x.v.generation == 42, "CORE", "CR_CORE"), len(j.Nodes), wire.Quote(nil, strings.Join(j.Nodes, ",")))
	for i, name := range j.Nodes {
		b = fmt.Appendf(b, `%s{"index":%d,"name":%s,"cpus":{"count":%d,"used":0},"memory":{"used":0,"allocated":0},"sockets":[{"index":0,"cores":[{"index":0,"status":["ALLOCATED"]}]}]}`,
			pick(i > 0, ",", ""), i, wire.Quote(nil, name), cpus)
	}
	return fmt.Appendf(b, `]},"cpus":%d,"threads_per_core":{"set":false,"infinite":false,"number":0}}`, cpus*len(j.Nodes))
}

// cancelJob ends a job. From 24.11 on a refusal is not one of the request.
func (x *exchange) cancelJob(name string) {
	about := fmt.Sprintf("unable to kill JobId=%s with signal 9: %s", name, noJob)
	if !x.reach(about, "slurm_kill_job") {
		return
	}
	id, _ := strconv.Atoi(name)
	err := x.world.Do(world.Effect{Face: "slurm", Site: x.site, Op: "cancel job", Subject: name}, func(s *world.State) error {
		return s.CancelSlurmJob(x.site, id)
	})
	d := &document{}
	switch {
	case x.v.old() && errors.Is(err, world.ErrSlurmJob):
		d.status = http.StatusInternalServerError
		d.fail(fault{about, 2017, noJob, "slurm_kill_job"})
	case x.v.old():
	case errors.Is(err, world.ErrSlurmJob):
		d.raw("status", killStatus(name, 0, 2017, noJob))
	case errors.Is(err, world.ErrSlurmEnded):
		d.raw("status", killStatus(name, id, 2021, "Job/step already completing or completed"))
	default:
		d.raw("status", "[]")
	}
	x.answer(d)
}

func killStatus(step string, id, code int, text string) string {
	return fmt.Sprintf(`[{"error":{"string":%q,"code":%d,"message":%q},"step_id":%s,"job_id":{"set":%t,"infinite":false,"number":%d},"federation":{"sibling":""}}]`,
		text, code, text, wire.Quote(nil, step), id != 0, id)
}
