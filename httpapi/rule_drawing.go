package httpapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/operations/rule"
)

// What of a rule is drawn at most; a rule may have ten thousand actions.
const (
	stepsDrawn   = 60
	actionsDrawn = 12 // of one phase
)

// ruleDrawing is a rule as its stages.
type ruleDrawing struct {
	Stages []stageDrawing
	Steps  int    // of the rule
	More   int    // steps that are not drawn
	Worst  string // the longest that all may take; "": there is nothing to do
}

type stageDrawing struct {
	ID    string // in the page
	Stage int
	Worst string
	State string // of a task's: planned, running, …; "" of a rule
	Steps []stepDrawing
}

type stepDrawing struct {
	Type        string
	Components  int
	Parallel    string
	Tries       string // of what is done with each component; "": nothing is
	Worst       string
	State, Says string // of a task's
	Phases      []phaseDrawing
}

type phaseDrawing struct {
	Name    string
	Actions []actionDrawing
	More    int // that are not drawn
}

type actionDrawing struct {
	Name string
	What string // its parameters in words
}

// drawRule draws a rule for so many components.
func drawRule(r *rule.Rule, plan *rule.Plan) ruleDrawing {
	d := ruleDrawing{Steps: len(r.Steps)}
	drawn := 0
	for i := range plan.Stages {
		s := &plan.Stages[i]
		stage := stageDrawing{ID: fmt.Sprintf("stage-%d", s.Stage), Stage: s.Stage, Worst: atMost(s.Worst)}
		for j := range s.Steps {
			if drawn == stepsDrawn {
				break
			}
			drawn++
			stage.Steps = append(stage.Steps, drawStep(&r.Steps[s.Steps[j].Index], &s.Steps[j], r.Operation))
		}
		if len(stage.Steps) > 0 {
			d.Stages = append(d.Stages, stage)
		}
	}
	d.More, d.Worst = d.Steps-drawn, atMost(plan.Worst)
	return d
}

// atMost writes a period that is none as nothing.
func atMost(p rule.Period) string {
	if p == 0 {
		return ""
	}
	return p.String()
}

func drawStep(s *rule.Step, plan *rule.StepPlan, operation string) stepDrawing {
	d := stepDrawing{Type: s.ComponentType, Components: plan.Components, Parallel: "all at once", Worst: atMost(plan.Worst)}
	switch {
	case s.MaxParallel == 1:
		d.Parallel = "one after the other"
	case s.MaxParallel > 1:
		d.Parallel = fmt.Sprintf("%d at once", s.MaxParallel)
	}
	if slices.ContainsFunc(s.Actions(), func(a rule.Action) bool { return a.PerComponent() && a.Name != rule.DecommissionControl }) {
		d.Tries = "each try at most " + s.Timeout.String() + "; one try"
		if s.Retry.MaxAttempts > 1 {
			d.Tries = fmt.Sprintf("each try at most %s; %d tries, %s between, ×%g, at most %s", s.Timeout, s.Retry.MaxAttempts, s.Retry.InitialInterval, s.Retry.BackoffCoefficient, s.Retry.MaxInterval)
		}
	}
	for _, phase := range phasesOf(s) {
		p := phaseDrawing{Name: phase.name}
		for i := range phase.actions {
			if i == actionsDrawn {
				p.More = len(phase.actions) - i
				break
			}
			p.Actions = append(p.Actions, actionDrawing{phase.actions[i].Name, saysAction(&phase.actions[i], operation)})
		}
		d.Phases = append(d.Phases, p)
	}
	return d
}

// phase is one phase of a step, as entries of a task name it.
type phase struct {
	name    string
	actions []rule.Action
}

// phasesOf gives the phases of a step that have actions.
func phasesOf(s *rule.Step) []phase {
	var all []phase
	for _, p := range []phase{{"pre", s.Pre}, {"main", []rule.Action{s.Main}}, {"post", s.Post}} {
		if len(p.actions) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// saysAction tells the parameters of an action in words.
func saysAction(a *rule.Action, operation string) string {
	var says []string
	add := func(format string, args ...any) { says = append(says, fmt.Sprintf(format, args...)) }
	p := &a.Parameters
	switch a.Name {
	case rule.PowerControl:
		if p.Operation != "" {
			operation = p.Operation
		}
		add("%s", operation)
	case rule.VerifyPowerStatus:
		add("until %s", p.ExpectedStatus)
	case rule.VerifyReachability:
		if all := strings.Join(p.ComponentTypes, ", "); p.RequireAll {
			add("until all of %s answer", all)
		} else {
			add("until one of each of %s answers", all)
		}
	case rule.Sleep:
		add("%s", p.Duration)
	case rule.DecommissionControl:
		add("one try of 5m")
	case rule.FirmwareControl:
		add("looks every %s for %s", p.PollInterval, p.PollTimeout)
	}
	if a.PollInterval > 0 {
		add("looks every %s", a.PollInterval)
	}
	if a.Timeout > 0 {
		add("at most %s", a.Timeout)
	}
	return strings.Join(says, ", ")
}
