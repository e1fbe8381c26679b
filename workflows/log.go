package workflows

import (
	"context"
	"errors"

	"github.com/hashicorp/go-hclog"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
)

// Logger gives Temporal's SDK a log. What it says of its own running goes to
// debug: that Temporal is away or back is said once, by who watches it. Activities
// that failed with a code of ours are no errors of the program: the first try is
// told at info, the others at debug; where the device fails by it, its row tells.
func Logger(log hclog.Logger) sdklog.Logger { return &sdkLog{log} }

type sdkLog struct{ log hclog.Logger }

// Messages of the SDK whose level depends on what it tells of.
const (
	sdkActivityFailed = "Activity error."
	sdkPollFailed     = "Failed to poll for task." // by each poller of each queue
)

func (l *sdkLog) Debug(message string, pairs ...any) { l.log.Debug(message, pairs...) }
func (l *sdkLog) Info(message string, pairs ...any)  { l.log.Debug(message, pairs...) }

func (l *sdkLog) Warn(message string, pairs ...any) {
	if message == sdkPollFailed {
		l.log.Debug(message, pairs...)
		return
	}
	l.log.Warn(message, pairs...)
}

func (l *sdkLog) Error(message string, pairs ...any) {
	level := hclog.Error
	if message == sdkActivityFailed {
		try, err := failureIn(pairs)
		level = levelOf(err, try)
	}
	l.log.Log(level, message, pairs...)
}

// failureIn reads what the SDK tells of a failed activity.
func failureIn(pairs []any) (try int32, err error) {
	for i := 0; i+1 < len(pairs); i += 2 {
		switch v := pairs[i+1].(type) {
		case error:
			err = v
		case int32:
			if pairs[i] == "Attempt" {
				try = v
			}
		}
	}
	return try, err
}

// levelOf says how loud a try of an activity that failed is told.
func levelOf(err error, try int32) hclog.Level {
	var coded *temporal.ApplicationError
	switch {
	case temporal.IsCanceledError(err) || errors.Is(err, context.Canceled): // or the replica ends
		return hclog.Debug
	case !errors.As(err, &coded) || !ours.MatchString(coded.Type()):
		return hclog.Error
	case try <= 1:
		return hclog.Info
	}
	return hclog.Debug
}
