package sources

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"
)

func TestFailureKeepsWhatTheTransportKnows(t *testing.T) {
	t.Parallel()
	open := &Error{Kind: KindOpen, Op: "call e", Message: "open", RetryAfter: time.Second}
	for name, c := range map[string]struct {
		err  error
		kind Kind
		text string
	}{
		"an open breaker": {&url.Error{Op: "Get", URL: "http://h/x?token=secret", Err: open}, KindOpen, "list: open (open)"},
		"a time-out":      {&url.Error{Op: "Get", URL: "http://h/x?token=secret", Err: context.DeadlineExceeded}, KindTransient, "list: context deadline exceeded (transient)"},
		"a bare error":    {errors.New("cut\x00 short"), KindTransient, "list: cut short (transient)"},
	} {
		got := Failure("list", c.err)
		if got.Kind != c.kind || got.Error() != c.text || !errors.Is(got, c.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
