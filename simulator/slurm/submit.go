package slurm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/wire"
	"github.com/musterhq/muster/simulator/world"
)

// runTime is how long a job takes whose script does not say so.
const runTime = 20 * time.Second

var (
	sleeps = regexp.MustCompile(`\bsleep\s+(\d{1,7})`)
	exits  = regexp.MustCompile(`\bexit\s+(\d{1,3})`)
)

// run reads of a script how long it takes and with what it ends: nothing is ever
// executed.
func run(script string) (time.Duration, int) {
	took, code := time.Duration(0), 0
	for _, match := range sleeps.FindAllStringSubmatch(script, -1) {
		seconds, _ := strconv.Atoi(match[1])
		took += time.Duration(seconds) * time.Second
	}
	if match := exits.FindStringSubmatch(script); match != nil {
		code, _ = strconv.Atoi(match[1])
		if took == 0 {
			took = time.Second
		}
	}
	if took == 0 {
		took = runTime
	}
	return took, code & 0xff
}

// submission is the body of a submit. Numbers come plain or as objects.
type submission struct {
	Script string `json:"script"`
	Job    struct {
		Script      string          `json:"script"`
		Name        string          `json:"name"`
		Partition   string          `json:"partition"`
		Comment     string          `json:"comment"`
		Folder      string          `json:"current_working_directory"`
		Environment json.RawMessage `json:"environment"`
		Required    json.RawMessage `json:"required_nodes"`
		Minimum     json.RawMessage `json:"minimum_nodes"`
		Nodes       string          `json:"nodes"`
		Limit       json.RawMessage `json:"time_limit"` // minutes
	} `json:"job"`
}

// number reads a plain number, or one with set, infinite and number.
func number(raw json.RawMessage) int {
	var n int
	if json.Unmarshal(raw, &n) == nil {
		return n
	}
	var o struct {
		Set    bool `json:"set"`
		Number int  `json:"number"`
	}
	if json.Unmarshal(raw, &o) == nil && o.Set {
		return o.Number
	}
	return 0
}

// submitJob takes a job into the queue.
func (x *exchange) submitJob(string) {
	o := x.object()
	if o == nil {
		return
	}
	var in submission
	if body, err := json.Marshal(o); err != nil || json.Unmarshal(body, &in) != nil {
		plain(x.w, http.StatusBadRequest, x.v.noParse)
		return
	}
	if in.Script == "" {
		in.Script = in.Job.Script
	}
	if x.v.old() {
		x.submitOld(&in, o)
		return
	}
	const about, source = "Batch job submission failed", "slurm_submit_batch_job()"
	if in.Script == "" {
		d := &document{status: http.StatusUnprocessableEntity}
		d.fail(fault{`Populated "script" field is required for job submission`, 9000, "Query empty or not RFC7320 compliant", "_job_post"})
		x.answer(d)
		return
	}
	if !x.reach(about, source) {
		return
	}
	if e := x.unfit(&in); e.number != 0 {
		x.refuse(about, source, &document{}, e)
		return
	}
	x.submit(x.job(&in), "batch")
}

// unfit gives why slurmctld does not take a job, a zero fault if it does.
func (x *exchange) unfit(in *submission) fault {
	var environment []string
	_ = json.Unmarshal(in.Job.Environment, &environment)
	switch {
	case in.Job.Partition != "" && !slices.Contains(world.SlurmPartitions(), in.Job.Partition):
		return fault{number: 2000, text: "Invalid partition name specified"}
	case in.Job.Folder == "":
		return fault{number: 2063, text: "Job cannot be submitted without the current working directory specified."}
	case len(environment) == 0 && x.v.generation == 42:
		return fault{number: 2019, text: "I/O error writing script/environment to file"}
	case len(environment) == 0:
		return fault{number: 2127, text: "Environment is missing in job"}
	}
	return fault{}
}

// job is the job that a submission asks for.
func (x *exchange) job(in *submission) *world.SlurmJob {
	required, _ := texts(in.Job.Required)
	required, _ = expand(strings.Join(required, ","))
	count, _, _ := strings.Cut(in.Job.Nodes, "-")
	wanted, _ := strconv.Atoi(count)
	took, code := run(in.Script)
	return &world.SlurmJob{
		Site: x.site, Name: in.Job.Name, User: x.from.user, Partition: pick(in.Job.Partition == "", world.SlurmPartitions()[0], in.Job.Partition),
		Comment: in.Job.Comment, Folder: in.Job.Folder, Required: required, Wanted: max(wanted, number(in.Job.Minimum)),
		Run: took, Exit: code, Limit: time.Duration(number(in.Job.Limit)) * time.Minute,
	}
}

func (x *exchange) submit(j *world.SlurmJob, step string) {
	fits, id := true, 0
	x.world.Read(func(s *world.State) { fits = s.SlurmJobsFit(x.site, max(j.Wanted, len(j.Required))) })
	d := &document{}
	if !fits {
		const source = "slurm_submit_batch_job()"
		if x.v.generation == 42 {
			x.refuse("Batch job submission failed", source, d, fault{number: 2014, text: "Requested node configuration is not available"})
			return
		}
		const never = "Requested partition configuration not available now"
		d.warn("Job submission resulted in non-zero return code: "+never, source)
		d.warn(never, source)
	}
	subject := j.Name
	if len(j.Required) > 0 {
		subject = strings.Join(j.Required, ",")
	}
	if err := x.world.Do(world.Effect{Face: "slurm", Site: x.site, Op: "submit job", Subject: subject, Detail: j.Name}, func(s *world.State) error {
		id = s.SubmitSlurmJob(j)
		return nil
	}); err != nil {
		plain(x.w, http.StatusInternalServerError, err.Error())
		return
	}
	d.raw("job_id", strconv.Itoa(id))
	d.raw("step_id", strconv.Quote(step))
	d.raw("job_submit_user_msg", `""`)
	x.answer(d)
}

// submitOld is a submit of 22.05, which checks the body itself before it asks
// slurmctld.
func (x *exchange) submitOld(in *submission, o map[string]json.RawMessage) {
	d := &document{}
	var environment map[string]string
	var job map[string]json.RawMessage
	_ = json.Unmarshal(o["job"], &job)
	switch {
	case job["required_nodes"] != nil:
		d.fail(fault{`Disabled key: "required_nodes"`, 1, "Operation not permitted", "openapi specification"})
	case job["maximum_nodes"] != nil:
		d.errors = append(d.errors, fmt.Sprintf(`{"description":%s,"source":"hsearch_r"}`, wire.Quote(nil, `Unknown key "maximum_nodes"`)))
	case in.Script != "" && in.Job.Environment == nil:
		d.failShort("error_code", fault{number: 2127, text: "environment must be set"})
	case in.Script != "" && json.Unmarshal(in.Job.Environment, &environment) != nil:
		d.failShort("error_code", fault{number: -1, text: "environment must be a dictionary"})
		d.fail(fault{`Unable to process key "environment"`, -1, "Unspecified error", "slurm_process_option_data"})
	}
	if len(d.errors) > 0 {
		d.failShort("error_code", fault{number: 9001, text: "Failure during parsing"})
		d.status = http.StatusBadRequest
		x.answer(d)
		return
	}
	e := fault{}
	switch {
	case in.Script == "":
		e = fault{number: 2009, text: "Job script not specified"}
	case in.Job.Partition != "" && !slices.Contains(world.SlurmPartitions(), in.Job.Partition):
		e = fault{number: 2000, text: "Invalid partition name specified"}
	}
	if e.number != 0 {
		d.status = http.StatusInternalServerError
		d.failShort("error_code", e)
		x.answer(d)
		return
	}
	if x.reach("", "slurm_submit_batch_job") {
		x.submit(x.job(in), "BATCH")
	}
}
