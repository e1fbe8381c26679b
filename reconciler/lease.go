package reconciler

import (
	"context"
	"errors"
	"time"
)

// errLeaseLost ends what is under way: it is another replica's by now, or
// nobody knows.
var errLeaseLost = errors.New("the lease is lost")

// keep renews a lease until release is called, which waits for the renewing to
// end. The context it gives ends with errLeaseLost as soon as the lease is
// another's, or could not be renewed for as long as it lasts.
func (r *Reconciler) keep(ctx context.Context, renew func(context.Context) (bool, error)) (_ context.Context, release func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.renew(ctx, cancel, renew)
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

func (r *Reconciler) renew(ctx context.Context, lost context.CancelCauseFunc, renew func(context.Context) (bool, error)) {
	tick := time.NewTicker(r.Lease / 3)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		trying, cancel := context.WithTimeout(ctx, r.Lease/3)
		held, err := renew(trying)
		cancel()
		switch {
		case err == nil && held:
			renewed = time.Now()
		case err == nil, time.Since(renewed) > r.Lease:
			lost(errLeaseLost)
			return
		}
	}
}

// givingBack is the context of the first and the last words of a lease: they are
// said even when the work's own context has ended.
func givingBack(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
}
