// Package report is what a running task of a rack and its rows tell each other:
// what it works on (Begun), how each entry of its report and each component stands
// (Entry, Component), and how it ends (Ending).
//
// Package operations keeps the rows, operations/rack runs the work. What is here
// goes through Temporal's histories: no secret is in it, and a name stays what it
// is.
package report
