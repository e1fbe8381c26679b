package workflows

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	sdklog "go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/workflows/act"
)

func TestHowLoudTheSDKIs(t *testing.T) {
	t.Parallel()
	away := act.Retry(codes.IronicUnavailable, "away")
	for name, c := range map[string]struct {
		say  func(sdklog.Logger)
		want string
	}{
		"a coded failure, first try":  {func(l sdklog.Logger) { l.Error("Activity error.", "Attempt", int32(1), "Error", away) }, "[INFO]"},
		"a coded failure, second try": {func(l sdklog.Logger) { l.Error("Activity error.", "Attempt", int32(2), "Error", away) }, "[DEBUG]"},
		"a coded failure that stays": {func(l sdklog.Logger) {
			l.Error("Activity error.", "Attempt", int32(1), "Error", act.Final(codes.BMCAddressMissing, "none"))
		}, "[INFO]"},
		"a failure without a code": {func(l sdklog.Logger) { l.Error("Activity error.", "Attempt", int32(7), "Error", errors.New("nil map")) }, "[ERROR]"},
		"an error of another library": {func(l sdklog.Logger) {
			l.Error("Activity error.", "Error", temporal.NewApplicationError("x", "wrapError"))
		}, "[ERROR]"},
		"a cancelled activity":               {func(l sdklog.Logger) { l.Error("Activity error.", "Error", temporal.NewCanceledError()) }, "[DEBUG]"},
		"an activity of a replica that ends": {func(l sdklog.Logger) { l.Error("Activity error.", "Error", context.Canceled) }, "[DEBUG]"},
		"a panic":                            {func(l sdklog.Logger) { l.Error("Activity panic.", "Error", away) }, "[ERROR]"},
		"a worker starts":                    {func(l sdklog.Logger) { l.Info("Started Worker") }, "[DEBUG]"},
		"a queue that cannot be polled":      {func(l sdklog.Logger) { l.Warn("Failed to poll for task.", "Error", errors.New("away")) }, "[DEBUG]"},
		"workflow code that cannot go on":    {func(l sdklog.Logger) { l.Warn("Failed to process workflow task.") }, "[WARN]"},
		"with what the SDK says before": {func(l sdklog.Logger) {
			sdklog.With(l, "Namespace", "muster").Error("Activity error.", "Attempt", int32(3), "Error", away)
		}, "[DEBUG]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said bytes.Buffer
			c.say(Logger(hclog.New(&hclog.LoggerOptions{Output: &said, Level: hclog.Debug})))
			if !strings.Contains(said.String(), c.want) {
				t.Errorf("%q, want %s", said.String(), c.want)
			}
		})
	}
}
