package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/server"
)

// app is what a command has of the world.
type app struct {
	args    []string
	environ []string
	getenv  func(string) string
	now     func() time.Time
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer

	begun bool // flags and arguments were good
}

// Exit codes, as --help documents them.
const (
	exitOK          = 0
	exitNo          = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitFailed      = 4
)

const exitCodes = `Exit codes:
  0  done; the answer is yes
  1  the answer is no: findings, failed tests, no such thing, refused
  2  wrong usage: a flag, an argument, a configuration
  3  what was asked cannot be reached: the server, the database
  4  it failed for another reason
`

// exitError ends a command with a code. Without an error nothing is printed:
// the command has said it already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// no ends a command whose answer is no and was printed.
func no() error { return &exitError{code: exitNo} }

// nope ends a command whose answer is no.
func nope(format string, args ...any) error {
	return &exitError{code: exitNo, err: fmt.Errorf(format, args...)}
}

// usage ends a command that was called wrongly.
func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// run runs the command that the arguments name and gives its exit code.
func (a *app) run(ctx context.Context) int {
	root := a.root()
	root.SetArgs(a.args[1:])
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) || exit.err != nil {
		fmt.Fprintln(a.stderr, "muster: "+strings.TrimSpace(err.Error()))
	}
	code := a.codeOf(err)
	if code == exitUsage && !a.begun {
		fmt.Fprintln(a.stderr, "`"+called(root, a.args[1:])+" --help` tells how it is called")
	}
	return code
}

// called names the command that the arguments reach.
func called(root *cobra.Command, args []string) string {
	if command, _, err := root.Find(args); err == nil {
		return command.CommandPath()
	}
	return root.CommandPath()
}

// codeOf maps an error to the exit code.
func (a *app) codeOf(err error) int {
	var exit *exitError
	var answer *client.AnswerError
	switch {
	case errors.As(err, &exit):
		return exit.code
	case !a.begun:
		return exitUsage
	case errors.As(err, &answer) && answer.Refused():
		return exitNo
	case errors.Is(err, client.ErrUnreachable), server.Unreachable(err):
		return exitUnreachable
	}
	return exitFailed
}
