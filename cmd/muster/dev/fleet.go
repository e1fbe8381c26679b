package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/store"
)

// FleetDir is where the simulated fleet is, in the data directory.
const FleetDir = "simulator"

const (
	fleetStart  = 60 * time.Second // until a simulator says where it is
	fleetPause  = 50 * time.Millisecond
	fleetStop   = 5 * time.Second
	fleetTries  = 5 // ends in a row, each within fleetSteady of its start, that are followed by another start
	fleetSteady = time.Minute
)

// simulation is the simulated fleet of a run, a process of its own.
type simulation struct {
	dir     string
	program string
	shape   world.Shape
	log     hclog.Logger

	process *embedded.Program
	began   time.Time
}

// simulate starts the simulated fleet where there is one to be: in a directory
// that has one, or that has no sites yet.
func (i *instance) simulate(ctx context.Context) error {
	if i.Fleet == nil {
		return nil
	}
	dir := i.data.Path(FleetDir)
	_, there, err := world.ReadShape(dir)
	if err != nil {
		return err
	}
	if !there {
		sites, err := store.Sites(ctx, i.db)
		if err != nil {
			return err
		}
		if len(sites) > 0 && *i.Fleet != (world.Shape{}) {
			return fmt.Errorf("%s has sites of its own and no simulated fleet: give another --data-dir, or begin anew with --fresh (what is there is moved aside)", i.DataDir)
		}
		if len(sites) > 0 {
			return nil
		}
	}
	i.fleet = &simulation{dir: dir, program: i.Program, shape: *i.Fleet, log: i.Log.Named("fleet")}
	return i.fleet.start()
}

// start starts the process and does not wait for it.
func (s *simulation) start() (err error) {
	args := []string{"simulator", "--dir", s.dir}
	for flag, n := range map[string]int{"--sites": s.shape.Sites, "--racks": s.shape.Racks} {
		if n != 0 {
			args = append(args, flag, fmt.Sprint(n))
		}
	}
	// Its lines carry their own time and level.
	log := s.log.StandardWriter(&hclog.StandardLoggerOptions{InferLevelsWithTimestamp: true})
	s.process, err = embedded.StartProgram(log, s.program, args...)
	s.began = time.Now()
	return err
}

// await waits until the process says where its fleet is.
func (s *simulation) await(ctx context.Context) (simulator.Endpoints, error) {
	ctx, cancel := context.WithTimeout(ctx, fleetStart)
	defer cancel()
	for {
		e, there, err := simulator.ReadEndpoints(s.dir)
		if err != nil {
			return e, err
		}
		if there && e.PID == s.process.PID() {
			return e, nil
		}
		select {
		case <-s.process.Done():
			return e, fmt.Errorf("the simulated fleet does not start: %w", s.process.Err())
		case <-ctx.Done():
			return e, fmt.Errorf("the simulated fleet is not up after %s: %w", fleetStart, ctx.Err())
		case <-time.After(fleetPause):
		}
	}
}

// fleetSites waits for the simulated fleet and makes its sites the first ones.
func (i *instance) fleetSites(ctx context.Context) error {
	if i.fleet == nil {
		return nil
	}
	e, err := i.fleet.await(ctx)
	if err != nil {
		return err
	}
	if i.Sites, err = i.fleet.sites(e); err != nil {
		return err
	}
	return i.follow(ctx, e)
}

// keepFleet starts the simulated fleet again when it ends by itself. One that
// ends again and again is left alone: its sources fail, and say so.
func (i *instance) keepFleet(ctx context.Context) error {
	if i.fleet == nil {
		return nil
	}
	s := i.fleet
	for tries := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-s.process.Done():
		}
		if time.Since(s.began) > fleetSteady {
			tries = 0
		}
		if tries++; tries > fleetTries {
			s.log.Error("the simulated fleet ends again and again: it is left alone until the next start", "error", s.process.Err())
			return nil
		}
		s.log.Warn("the simulated fleet has ended and is started again", "error", s.process.Err())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(tries) * startPause):
		}
		if err := i.again(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("the simulated fleet does not start", "error", err)
		}
	}
}

// again starts the fleet once more, wherever it then listens.
func (i *instance) again(ctx context.Context) error {
	if err := i.fleet.start(); err != nil {
		return err
	}
	e, err := i.fleet.await(ctx)
	if err != nil {
		return err
	}
	return i.follow(ctx, e)
}

// stop ends the process.
func (s *simulation) stop(ctx context.Context) error {
	if s == nil || s.process == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fleetStop)
	defer cancel()
	return s.process.Stop(ctx)
}

// CheckFleet says whether a data directory takes a fleet of a shape; what is 0
// is not said. Nothing is started for a fleet that it refuses.
func CheckFleet(dataDir string, said world.Shape) error {
	held, there, err := world.ReadShape(filepath.Join(dataDir, FleetDir))
	if err != nil || !there {
		return err
	}
	if said.Sites != 0 && said.Sites != held.Sites || said.Racks != 0 && said.Racks != held.Racks {
		return &SizeError{DataDir: dataDir, Held: held}
	}
	return nil
}

// SizeError says that a data directory holds a simulated fleet of another size.
type SizeError struct {
	DataDir string
	Held    world.Shape
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("%s holds a simulated fleet of --sites %d --racks %d, and its size is fixed: leave both out, begin anew with --fresh (what is there is moved aside), or give another --data-dir",
		e.DataDir, e.Held.Sites, e.Held.Racks)
}

// ownProgram is the path of the binary that runs.
func ownProgram() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", errors.Join(errors.New("find muster's own program, for the simulated fleet"), err)
	}
	return path, nil
}
