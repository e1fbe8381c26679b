package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// ThroughJobs is the API that jobs come by unless their workflow says otherwise.
const ThroughJobs = "jobs"

// Submit makes a job, or a RefusedError with every reason why not. Everything is
// judged in the transaction that stores it, with the devices' rows held: what a
// Check said before does not count. Of two submissions that touch one device one
// is refused, unless both only share it. A submission with the idempotency key
// of an earlier one gives that one's job; with another content it is an Error
// (CodeIdempotencyKeyReused). Refusals are not remembered.
func (s *Service) Submit(ctx context.Context, sub Submission) (Submitted, error) {
	doing := "submit " + sub.Workflow
	if sub.Through == "" {
		sub.Through = ThroughJobs
	}
	sub.Request, sub.Reason, sub.IdempotencyKey = sub.Request.clean(), strings.TrimSpace(store.Clean(sub.Reason)), store.Clean(sub.IdempotencyKey)
	hash := sub.hash()
	if sub.IdempotencyKey != "" { // what it once asked for may be refused by now
		done, err := s.repeated(ctx, &sub, hash)
		if err != nil || done.Repeated {
			return done, refusedOr(err, doing)
		}
	}
	site, err := s.siteOf(ctx, &sub)
	if err != nil {
		return Submitted{}, refusedOr(err, doing)
	}
	var done Submitted
	err = s.devices.Admitting(ctx, site, func(tx pgx.Tx, by *devices.Admission) error {
		done = Submitted{}
		if sub.IdempotencyKey != "" {
			job, body, err := store.ClaimIdempotencyKey(ctx, tx, sub.By.Name, sub.IdempotencyKey, hash)
			if err != nil {
				return err
			}
			if job != 0 {
				done, err = earlier(ctx, tx, job, body, hash)
				return err
			}
		}
		a, err := s.admit(ctx, tx, by, &sub)
		if err != nil {
			return err
		}
		if !a.report.Admitted() {
			return &RefusedError{a.report}
		}
		done.Job, err = s.store(ctx, tx, by, a, &sub)
		return err
	})
	if errors.Is(err, store.ErrLockConflict) { // somebody wrote locks without the devices' rows
		return Submitted{}, &Error{CodeWorkflowConflict, "other work took one of the devices at this instant: submit again"}
	}
	if err != nil {
		return Submitted{}, refusedOr(err, doing)
	}
	return done, nil
}

// repeated gives the job of an earlier submission with the same key.
func (s *Service) repeated(ctx context.Context, sub *Submission, hash []byte) (Submitted, error) {
	job, body, err := store.IdempotencyKey(ctx, s.db, sub.By.Name, sub.IdempotencyKey)
	if errors.Is(err, store.ErrNotFound) {
		return Submitted{}, nil
	}
	if err != nil {
		return Submitted{}, err
	}
	return earlier(ctx, s.db, job, body, hash)
}

func earlier(ctx context.Context, q store.Querier, job int64, body, hash []byte) (Submitted, error) {
	if !bytes.Equal(body, hash) {
		return Submitted{}, &Error{CodeIdempotencyKeyReused, fmt.Sprintf("the Idempotency-Key stands for job %d, which asked for something else: take another key", job)}
	}
	rows, err := store.ListJobs(ctx, q, store.JobFilter{IDs: []int64{job}, Limit: 1})
	if err != nil {
		return Submitted{}, err
	}
	if len(rows) == 0 {
		return Submitted{}, fmt.Errorf("read job %d: %w", job, store.ErrNotFound)
	}
	return Submitted{Job: rows[0].Job, Repeated: true}, nil
}

// siteOf finds the one site of a submission's devices. Where there is none, the
// refusal tells everything else as well.
func (s *Service) siteOf(ctx context.Context, sub *Submission) (int64, error) {
	a := &admission{report: Report{Devices: make([]Verdict, len(sub.Devices))}, at: map[int64][]int{}}
	if len(sub.Devices) <= MaxDevices {
		for i, ref := range sub.Devices {
			a.report.Devices[i].Ref = ref
		}
		if err := a.find(ctx, s.db, &sub.Request); err != nil {
			return 0, err
		}
		if a.site != 0 {
			return a.site, nil
		}
	}
	report, err := s.Check(ctx, sub.Request)
	if err != nil {
		return 0, err
	}
	if report.Admitted() { // the devices came, or came together, in between
		report.refuse(CodeDeviceNotFound, "the devices changed at this instant: submit again")
	}
	return 0, &RefusedError{report}
}

// admit judges a submission with every device that it touches held.
func (s *Service) admit(ctx context.Context, tx pgx.Tx, by *devices.Admission, sub *Submission) (*admission, error) {
	a, ok := s.open(by.Bundle, &sub.Request)
	if !ok {
		return a, nil
	}
	if err := a.allowed(sub); err != nil {
		return nil, err
	}
	if err := a.find(ctx, tx, &sub.Request); err != nil {
		return nil, err
	}
	if _, err := a.findHeld(ctx, tx, by.Site.Spec.Name); err != nil {
		return nil, err
	}
	all, err := store.LockDevices(ctx, tx, append(a.ids(), a.heldIDs()...))
	if err != nil {
		return nil, err
	}
	selected := make([]fleet.Device, 0, len(all))
	for i := range all {
		d := &all[i]
		_, held := a.held[d.ID]
		switch {
		case d.RetiredAt.IsZero() && d.SiteID == by.Site.ID && !held:
			selected = append(selected, *d)
		case held: // the rest is looked at there
		case d.SiteID != by.Site.ID:
			a.report.refuse(CodeMixedSite, "%s is of another site than %s by now: submit again", d.Name, by.Site.Spec.Name)
		default:
			a.verdict(d.ID).refuse(CodeDeviceNotFound, "%s has left the inventory", d.Name)
		}
	}
	if err := a.judge(ctx, tx, by, selected); err != nil {
		return nil, err
	}
	return a, s.whole(ctx, tx, a, by, all, true)
}

// allowed judges who submits and by which way.
func (a *admission) allowed(sub *Submission) error {
	w := a.workflow
	if !a.report.Available {
		a.report.refuse(CodeWorkflowNotAvailable, "this version of muster does not run %s yet", w.Slug).Policy = w.Pos.Short()
	}
	if through := w.Through; through != "" && through != sub.Through {
		a.report.refuse(CodeWorkflowNotAvailable, "jobs of %s are made through %s", w.Slug, strings.ReplaceAll(through, "_", "-")).Policy = w.Pos.Short()
	}
	forced := forcing(a.report.Parameters)
	if len(forced) == 0 {
		return nil
	}
	if !sub.Force {
		return &Error{CodeScopeMissing, fmt.Sprintf("%s may take machines from their customers: that needs the scope job:force", strings.Join(forced, ", "))}
	}
	if sub.Reason == "" {
		refusal := a.report.refuse(CodeReasonMissing, "%s needs a reason: say why the machines may be taken from their customers", strings.Join(forced, ", "))
		refusal.Path, refusal.Expected = "reason", "a text"
	}
	return nil
}

// forcing lists the parameters that are set and by their name dangerous.
func forcing(parameters map[string]any) []string {
	var names []string
	for name, value := range parameters {
		if on, _ := value.(bool); on && Forcing(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Forcing tells the parameters by which machines are taken from their customers.
func Forcing(parameter string) bool { return strings.HasPrefix(parameter, "force_") }

// Forcing lists the parameters of a report by which machines would be taken
// from their customers.
func (r *Report) Forcing() []string { return forcing(r.Parameters) }

// store writes an admitted submission.
func (s *Service) store(ctx context.Context, tx pgx.Tx, by *devices.Admission, a *admission, sub *Submission) (fleet.Job, error) {
	w := a.workflow
	parameters := maps.Clone(a.report.Parameters)
	maps.Copy(parameters, a.siteIs)
	j := fleet.Job{
		SiteID: by.Site.ID, Workflow: w.Slug, Contention: string(w.Contention), Disruptive: w.Disruptive, Parameters: parameters,
		Reason: sub.Reason, BundleVersion: by.Bundle.Version(), RequestedBy: sub.By.Name,
	}
	if err := store.InsertJob(ctx, tx, &j); err != nil {
		return j, err
	}
	ids := a.ids()
	rows := make([]fleet.JobDevice, len(ids))
	for i, id := range ids {
		rows[i] = fleet.JobDevice{DeviceID: id, Stamped: a.stamps[id]}
	}
	lock := fleet.DeviceLock{Holder: j.Holder(), Mode: j.Contention, Work: w.Slug, Disruptive: w.Disruptive}
	holding := lock
	holding.Held = true
	steps := []func() error{
		func() error { return store.InsertJobDevices(ctx, tx, j.ID, rows) },
		func() error { return s.lock(ctx, tx, w.Contention, lock, ids) },
		func() error { return s.lock(ctx, tx, w.Contention, holding, a.heldIDs()) },
		func() error {
			return store.InsertExecutions(ctx, tx, s.executions(&j, ids), s.options.DispatchWithin)
		},
		func() error {
			if sub.IdempotencyKey == "" {
				return nil
			}
			return store.PutIdempotencyKey(ctx, tx, sub.By.Name, sub.IdempotencyKey, j.ID)
		},
		func() error {
			return store.Audit(ctx, tx, store.AuditEntry{
				Principal: sub.By.Name, Remote: sub.By.Remote, Action: "job.submit", Target: j.Holder(),
				Detail: map[string]any{
					"workflow": w.Slug, "site": by.Site.Spec.Name, "devices": len(ids), "parameters": a.report.Parameters, "reason": sub.Reason, "bundle": j.BundleVersion,
				},
			})
		},
		func() error { return store.Notify(ctx, tx, store.JobsChannel, j.ID) },
		func() error { return store.Notify(ctx, tx, store.ExecutionsChannel, j.ID) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return j, err
		}
	}
	return j, nil
}

func (s *Service) lock(ctx context.Context, tx pgx.Tx, contention engine.Contention, l fleet.DeviceLock, ids []int64) error {
	if contention == engine.None || len(ids) == 0 {
		return nil
	}
	return store.PutLocks(ctx, tx, l, ids)
}

// executions are what Temporal is to run of a job, under ids that are known
// beforehand.
func (s *Service) executions(j *fleet.Job, ids []int64) []fleet.Execution {
	base := fleet.Execution{Kind: fleet.ExecutionBatch, Holder: j.Holder(), JobID: j.ID, Workflow: j.Workflow, SiteID: j.SiteID, WorkflowID: j.Holder() + "/batch"}
	if how, _ := s.options.Implemented(j.Workflow); how.Batch {
		return []fleet.Execution{base}
	}
	all := make([]fleet.Execution, len(ids))
	for i, id := range ids {
		all[i] = base
		all[i].Kind, all[i].DeviceID, all[i].WorkflowID = fleet.ExecutionDevice, id, fmt.Sprintf("%s/device/%d", j.Holder(), id)
	}
	return all
}
