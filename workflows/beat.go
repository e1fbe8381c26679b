package workflows

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/musterhq/muster/workflows/act"
)

const beatEvery = act.HeartbeatTimeout / 5

// beats makes every activity of a worker heartbeat until it returns, so that none
// can forget to. By a heartbeat an activity also learns that it is cancelled.
type beats struct {
	interceptor.WorkerInterceptorBase
	running *sync.WaitGroup // activities, of every worker of a Runner
}

func (b *beats) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &beating{ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next}, running: b.running}
}

type beating struct {
	interceptor.ActivityInboundInterceptorBase
	running *sync.WaitGroup
}

func (b *beating) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	b.running.Add(1)
	defer b.running.Done()
	ended, beaten := make(chan struct{}), make(chan struct{})
	defer func() { close(ended); <-beaten }()
	go func() {
		defer close(beaten)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			activity.RecordHeartbeat(ctx)
			select {
			case <-tick.C:
			case <-ended:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return b.Next.ExecuteActivity(ctx, in)
}
