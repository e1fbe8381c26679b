package sources

import (
	"errors"
	"net/url"
)

// Failure classifies the error of a call that brought no usable answer: an
// open breaker keeps its kind, all else (no connection, time-out, an answer
// cut short or too large) is transient.
func Failure(op string, err error) *Error {
	f := &Error{Kind: KindTransient, Op: op, Err: err}
	var inner *Error
	if errors.As(err, &inner) {
		f.Kind, f.Message, f.RetryAfter = inner.Kind, inner.Message, inner.RetryAfter
		return f
	}
	var wrapped *url.Error // its text repeats method and address
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	f.Message = CleanText(err.Error(), 512)
	return f
}
