package rule

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Counts is how many components of each type there are.
type Counts map[string]int

// askDecommission is what one try to ask for a decommissioning may take; there is
// no second.
const askDecommission = 5 * time.Minute

// Plan is what a rule would do with so many components, and the longest that it
// may take. The figure ends nothing: a run ends by its own attempts.
type Plan struct {
	Stages []StagePlan `json:"stages"`
	Worst  Period      `json:"worst"`
}

// StagePlan is one stage: its steps run side by side.
type StagePlan struct {
	Stage int        `json:"stage"`
	Worst Period     `json:"worst"` // of its longest step
	Steps []StepPlan `json:"steps"`
}

// StepPlan is one step: its actions run one after the other.
type StepPlan struct {
	Index         int          `json:"step"` // in the rule's Steps
	ComponentType string       `json:"component_type"`
	Components    int          `json:"components"` // 0: the step is skipped
	InFlight      int          `json:"in_flight"`  // at most so many at once
	Worst         Period       `json:"worst"`
	Actions       []ActionPlan `json:"actions"`
}

// ActionPlan is one action of a step.
type ActionPlan struct {
	Phase  string `json:"phase"` // pre_operation, main_operation or post_operation
	Action Action `json:"action"`
	Rounds int    `json:"rounds"` // ⌈components / in flight⌉; 1 where the action is of the whole step
	Worst  Period `json:"worst"`
}

// Plan gives the stages of the rule for so many components.
func (r *Rule) Plan(counts Counts) Plan {
	var p Plan
	for _, i := range r.inStages() {
		s := &r.Steps[i]
		if len(p.Stages) == 0 || p.Stages[len(p.Stages)-1].Stage != s.Stage {
			p.Stages = append(p.Stages, StagePlan{Stage: s.Stage})
		}
		stage := &p.Stages[len(p.Stages)-1]
		step := s.plan(counts[s.ComponentType], r.Operation)
		step.Index = i
		stage.Steps = append(stage.Steps, step)
		stage.Worst = max(stage.Worst, step.Worst)
	}
	for i := range p.Stages {
		p.Worst = plus(p.Worst, p.Stages[i].Worst)
	}
	return p
}

// inStages gives the indexes of the steps in the order of their stages; within a
// stage the order is the author's.
func (r *Rule) inStages() []int {
	order := make([]int, len(r.Steps))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return r.Steps[a].Stage - r.Steps[b].Stage })
	return order
}

func (s *Step) plan(components int, operation string) StepPlan {
	p := StepPlan{ComponentType: s.ComponentType, Components: components}
	if components == 0 {
		return p
	}
	p.InFlight = components
	if s.MaxParallel > 0 {
		p.InFlight = min(components, s.MaxParallel)
	}
	rounds := (components + p.InFlight - 1) / p.InFlight
	add := func(phase string, actions ...Action) {
		for _, a := range actions {
			one := ActionPlan{Phase: phase, Action: a, Rounds: 1, Worst: s.once(&a, operation)}
			if a.PerComponent() {
				one.Rounds = rounds
				one.Worst = times(one.Worst, rounds)
			}
			p.Actions = append(p.Actions, one)
			p.Worst = plus(p.Worst, one.Worst)
		}
	}
	add("pre_operation", s.Pre...)
	add("main_operation", s.Main)
	add("post_operation", s.Post...)
	return p
}

// PerComponent reports whether an action is done with each component for itself;
// the others are of the step as a whole.
func (a *Action) PerComponent() bool {
	switch a.Name {
	case PowerControl, FirmwareControl, GetPowerStatus, DecommissionControl:
		return true
	}
	return false
}

// once is the longest that an action takes with one component, or as a whole, in a
// rule for an operation.
func (s *Step) once(a *Action, operation string) Period {
	switch a.Name {
	case Sleep:
		return a.Parameters.Duration
	case VerifyPowerStatus, VerifyReachability, WaitDecommissioned:
		return a.Timeout
	case DecommissionControl:
		return Period(askDecommission)
	}
	timeout := a.Timeout
	if timeout == 0 {
		timeout = s.Timeout
	}
	worst := plus(times(timeout, s.Retry.MaxAttempts), s.Retry.waits())
	switch {
	case a.Name == FirmwareControl:
		worst = plus(worst, a.Parameters.PollTimeout)
	case a.Name == PowerControl && offAndOn(cmp.Or(a.Parameters.Operation, operation)):
		worst = times(worst, 2)
	}
	return worst
}

// offAndOn reports that an operation is two commands, each tried for itself.
func offAndOn(operation string) bool {
	return operation == "restart" || operation == "force_restart" || operation == "cold_reset"
}

// waits is the sum of the waits between all attempts.
func (r *Retry) waits() Period {
	var sum Period
	next := float64(r.InitialInterval)
	for range r.MaxAttempts - 1 {
		sum = plus(sum, Period(min(next, float64(r.MaxInterval))))
		next = min(next*r.BackoffCoefficient, float64(r.MaxInterval))
	}
	return sum
}

// forever is what a sum that is too large to be written comes to.
const forever = Period(math.MaxInt64)

func plus(a, b Period) Period {
	if a > forever-b {
		return forever
	}
	return a + b
}

func times(p Period, n int) Period {
	if n > 0 && p > forever/Period(n) {
		return forever
	}
	return p * Period(n)
}
