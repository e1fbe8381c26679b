package dev

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/go-hclog"
	"go.temporal.io/sdk/client"

	"github.com/musterhq/muster/cmd/muster/server"
	"github.com/musterhq/muster/embedded"
)

// Temporal is how to reach the Temporal of a run.
type Temporal struct {
	Address string
	Waits   string // the program that is not built yet; "" where there is one
}

func (t Temporal) String() string {
	if t.Waits != "" {
		return fmt.Sprintf("wait until %s is built  (`make temporal`; all else goes on)", t.Waits)
	}
	return fmt.Sprintf("run by Temporal at %s, namespace %s", t.Address, embedded.TemporalNamespace)
}

// workflows is what runs the workflows of a run: a client of somebody's
// Temporal, or of one that is a process of its own.
type workflows struct {
	client  client.Client
	address string
	program string

	own    *embedded.Temporal // nil: somebody else's
	cancel context.CancelFunc
	ended  chan struct{} // closed when own has ended
}

// workflows begins with Temporal and does not wait for it. It outlives ctx: what
// works on it ends first.
func (i *instance) workflows(ctx context.Context) (err error) {
	w := &workflows{address: i.TemporalAddress, program: i.TemporalProgram}
	log := i.Log.Named("temporal")
	if w.address == "" {
		w.own, err = embedded.OpenTemporal(embedded.TemporalOptions{
			Dir: i.data.Path("temporal"), Program: w.program,
			Log:     log.StandardWriter(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
			Changed: func(phase embedded.Phase, why error) { tellPhase(log, w, phase, why) },
		})
		if err != nil {
			return err
		}
		w.address = w.own.Address()
		w.keep(context.WithoutCancel(ctx), log)
	}
	i.temporal = w
	w.client, err = server.ConnectTemporal(server.Temporal{Address: w.address, Namespace: embedded.TemporalNamespace}, i.Log)
	return err
}

// keep runs the process until stop.
func (w *workflows) keep(ctx context.Context, log hclog.Logger) {
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		if err := w.own.Run(ctx); err != nil {
			log.Error("jobs wait until `muster dev` is started again, all else goes on", "error", err)
		}
	}()
}

func tellPhase(log hclog.Logger, w *workflows, phase embedded.Phase, why error) {
	switch {
	case phase == embedded.PhaseAbsent:
		log.Info("jobs wait until its program is there", "program", w.program)
	case phase == embedded.PhaseStarting && why != nil:
		log.Warn("the embedded Temporal is started again", "error", why)
	}
}

// told says how to reach it, or what it waits for.
func (w *workflows) told() Temporal {
	t := Temporal{Address: w.address}
	if w.own != nil {
		if phase, _ := w.own.Phase(); phase == embedded.PhaseAbsent {
			t.Waits = w.program
		}
	}
	return t
}

// stop ends the client, then the process.
func (w *workflows) stop() error {
	if w == nil {
		return nil
	}
	if w.client != nil {
		w.client.Close()
	}
	if w.own == nil {
		return nil
	}
	w.cancel()
	<-w.ended
	if err := w.own.Close(); err != nil {
		return errors.Join(errors.New("give Temporal's directory up"), err)
	}
	return nil
}
