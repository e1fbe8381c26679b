package act

import (
	"errors"
	"fmt"

	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/jobs/codes"
)

// Retry is a failure of an activity that trying again may mend.
func Retry(code codes.Failure, format string, args ...any) error {
	return temporal.NewApplicationError(fmt.Sprintf(format, args...), string(code))
}

// Final is a failure of an activity that stays.
func Final(code codes.Failure, format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), string(code), nil)
}

// IsFinal reports that trying again mends nothing.
func IsFinal(err error) bool {
	var coded *temporal.ApplicationError
	return errors.As(err, &coded) && coded.NonRetryable()
}

// Code gives the code that an error of an activity carries, "" if it has none.
func Code(err error) codes.Failure {
	var coded *temporal.ApplicationError
	if !errors.As(err, &coded) {
		return ""
	}
	return codes.Failure(coded.Type())
}

// Message gives what an error of an activity says, without what Temporal puts
// around it.
func Message(err error) string {
	var coded *temporal.ApplicationError
	if !errors.As(err, &coded) {
		return err.Error()
	}
	return coded.Message()
}

// LostError says that an activity gave no answer at all, however often it was
// tried.
type LostError struct {
	Code  codes.Failure
	phase string
	err   error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%s: no worker came to its end, whether it took effect is not known: %v", e.phase, e.err)
}

func (e *LostError) Unwrap() error { return e.err }
