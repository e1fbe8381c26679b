package workflows

import (
	"errors"
	"fmt"
	"regexp"

	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
)

// fail is a failure of an activity that trying again may mend.
func fail(code codes.Failure, format string, args ...any) error {
	return temporal.NewApplicationError(fmt.Sprintf(format, args...), string(code))
}

// failFinal is a failure of an activity that stays.
func failFinal(code codes.Failure, format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), string(code), nil)
}

// final reports that trying again mends nothing.
func final(err error) bool {
	var coded *temporal.ApplicationError
	return errors.As(err, &coded) && coded.NonRetryable()
}

// lostError says that an activity gave no answer at all, however often it was
// tried.
type lostError struct {
	code  codes.Failure
	phase string
	err   error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("%s: no worker came to its end, whether it took effect is not known: %v", e.phase, e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// ours tells a failure code from the names that Temporal gives to Go's errors.
var ours = regexp.MustCompile(`^[A-Z][A-Z0-9]*(_[A-Z0-9]+)+$`)

// endingOf says how a device ends whose work gave err.
func endingOf(err error) jobs.Ending {
	var lost *lostError
	var coded *temporal.ApplicationError
	switch {
	case err == nil:
		return jobs.Ending{Status: fleet.DeviceSucceeded}
	case temporal.IsCanceledError(err):
		return jobs.Ending{Status: fleet.DeviceCancelled, Message: "cancelled while its work ran"}
	case errors.As(err, &lost):
		return jobs.Ending{Status: fleet.DeviceFailed, Code: lost.code, Message: clip(lost.Error())}
	case errors.As(err, &coded) && ours.MatchString(coded.Type()):
		return jobs.Ending{Status: fleet.DeviceFailed, Code: codes.Failure(coded.Type()), Message: clip(coded.Message())}
	}
	return jobs.Ending{Status: fleet.DeviceFailed, Code: codes.InternalError, Message: clip(err.Error())}
}

const longestMessage = 1024 // bytes

func clip(text string) string { return sources.CleanText(text, longestMessage) }
