package sources

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RoundTrip makes one request and, if it only reads, repeats it after a fault
// of the way or of the system (no answer, 5xx, 408, 429) as often as the
// options say, as long as the wait fits into the call's deadline. The last
// answer is given as it is.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	e := t.endpoint(req)
	repeatable := (req.Method == http.MethodGet || req.Method == http.MethodHead) && (req.Body == nil || req.Body == http.NoBody)
	for try := 0; ; try++ {
		resp, faulty, err := t.try(req, e)
		if !repeatable || try >= t.options.Retries || !again(req.Context(), resp, faulty, err) {
			return resp, err
		}
		wait, ok := t.pause(resp, try)
		if deadline, has := req.Context().Deadline(); !ok || has && time.Until(deadline) <= wait {
			return resp, err
		}
		if resp != nil {
			_, _ = io.CopyN(io.Discard, resp.Body, peekLimit)
			_ = resp.Body.Close()
		}
		t.options.Meter.Retry(e.name)
		if waitErr := t.options.Wait(req.Context(), wait); waitErr != nil {
			return nil, waitErr
		}
	}
}

// again reports whether the same request may fare better in a moment.
func again(ctx context.Context, resp *http.Response, faulty bool, err error) bool {
	if err != nil {
		var classified *Error
		return ctx.Err() == nil && !errors.As(err, &classified) && !errors.Is(err, ErrTooLarge) && !certificate(err)
	}
	return faulty || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusRequestTimeout
}

// pause gives how long to wait after a try, counted from 0. What the system
// asked for is the least; more than the cap is not waited for (false).
func (t *transport) pause(resp *http.Response, try int) (time.Duration, bool) {
	wait := t.options.BackoffCap
	if try < 20 {
		wait = min(wait, t.options.BackoffBase<<try)
	}
	wait = time.Duration(float64(wait) * (0.5 + t.options.Rand()/2))
	if resp == nil {
		return wait, true
	}
	asked := RetryAfter(resp.Header, t.options.Clock())
	return max(wait, asked), asked <= t.options.RetryAfterCap
}

// RetryAfter reads what an answer's Retry-After asks for, in seconds or as an
// instant; 0 where there is none or it has passed.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
