package operations

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/rule"
	"github.com/musterhq/muster/store"
)

// Options of a Service. Zero values take the defaults.
type Options struct {
	// Managers says of which component types there is a manager, and what it can
	// do; nil: those of this build.
	Managers map[string][]rule.Capability

	DispatchWithin time.Duration // what is unsent for longer fails, default 1 h; below Temporal's retention
}

// Service keeps rules and tasks. It has no state of its own: any number of them,
// in any number of processes, work on one database.
type Service struct {
	db      *store.DB
	devices *devices.Service
	jobs    *jobs.Service
	current func() *engine.Bundle
	rules   *rule.Validator
	clock   func() time.Time // the database's
	log     hclog.Logger
	options Options

	overBudget *prometheus.CounterVec // nil: nobody counts
}

// New makes a Service, and lets the service of jobs hand on to it what concerns
// executions of tasks.
func New(db *store.DB, d *devices.Service, j *jobs.Service, policies devices.Policies, v *rule.Validator, clock func() time.Time, log hclog.Logger, o Options) *Service {
	if o.Managers == nil {
		o.Managers = rule.Managers()
	}
	if o.DispatchWithin == 0 {
		o.DispatchWithin = time.Hour
	}
	s := &Service{db: db, devices: d, jobs: j, current: policies.Current, rules: v, clock: clock, log: log, options: o}
	j.Join(s)
	return s
}

// Codes of refusals that package jobs has not.
const (
	CodeRackNotFound       = "rack_not_found"
	CodeRuleNotFound       = "rule_not_found"
	CodeRuleInvalid        = "rule_invalid"
	CodeRuleMismatch       = "rule_mismatch"
	CodeRuleEmpty          = "rule_empty"
	CodeRuleInUse          = "rule_in_use"
	CodeRuleNotBound       = "rule_not_associated"
	CodeDefaultExists      = "default_exists"
	CodeOverwriteAmbiguous = "overwrite_ambiguous"
	CodeSiteLimited        = "site_limited"
	CodeCapabilityMissing  = "capability_missing"
	CodeTaskNotFound       = "task_not_found"
	CodeTaskTerminal       = "task_terminal"
)

func refuse(code, format string, args ...any) *jobs.Error {
	return &jobs.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// refused tells refusals from failures.
func refused(err error) bool {
	var report *jobs.RefusedError
	var coded *jobs.Error
	var invalid *rule.Invalid
	return errors.As(err, &report) || errors.As(err, &coded) || errors.As(err, &invalid)
}

// refusedOr leaves a refusal as it is and says of any other error what failed.
func refusedOr(err error, doing string) error {
	switch {
	case err == nil || refused(err):
		return err
	case store.LockTimedOut(err):
		return refuse(jobs.CodeBusy, "%s waited too long for what others are changing: try again", doing)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
