// Package rack carries out a task: one operation on one rack, by the rule that was
// resolved for it. It runs on Temporal and knows rows only as the interface Rows.
//
// # A run
//
// The task's workflow (task.go) begins its rows, then takes the stages of the rule
// in ascending order. Each step of a stage is a child workflow (step.go); those of
// one stage run beside each other, and all of them end before the stage does, also
// when one fails or the task is cancelled. A stage that failed ends the task:
// nothing is rolled back, what never began stays so in the report.
//
// Within a step every action is a barrier over all of its components. An action is
// one of two kinds: of the step as a whole (whole.go: a Sleep, a look that is
// repeated until all was seen or its time has passed), or of each component
// (each.go: a command, an update), of which at most max_parallel are in flight.
// What a step has of its own is where it stands (place); past a bound of history
// it goes on from there as a new run.
//
// # What ends what
//
// A run has no time-out. An action ends by its own attempts, and a look fails only
// by an answer to a question that was asked at or after its deadline. Worst is told
// when it has passed (OverBudget), and ends nothing.
//
// A command that leads to a state is retried by Temporal, one that does not (a warm
// reset, the start of an update) is one activity of one attempt: when its answer is
// lost, another activity compares what is so with what was read before (once.go).
//
// # Histories
//
// An action with a component is three activities (its row begins, the act, its row
// ends): nine events, and at most nine more for the workflow tasks between them, of
// which those of components beside each other are shared. A look is one activity
// for all components of the step. So a history grows by the components and by the
// looks, by no other thing, and a step goes on as a new run past its bound.
//
// # Order
//
// Stages by number, steps as the rule has them, components by name: everywhere the
// same from one run to the next. No map is ranged over.
package rack
