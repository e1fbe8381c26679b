package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// Shape is the size of the fleet and the seed of its identities. It is fixed
// when a directory is first used.
type Shape struct {
	Seed  uint64 `json:"seed"`  // default 1
	Sites int    `json:"sites"` // default 2
	Racks int    `json:"racks"` // of each site, default 3
}

// What a shape may be: a machine's BMC address holds site, rack and position.
const (
	maxSites = 200
	maxRacks = 250
)

func (s Shape) withDefaults() Shape {
	if s.Seed == 0 {
		s.Seed = 1
	}
	if s.Sites == 0 {
		s.Sites = 2
	}
	if s.Racks == 0 {
		s.Racks = 3
	}
	return s
}

// Check says whether there can be a fleet of the shape; what is 0 is not said.
func (s Shape) Check() error {
	s = s.withDefaults()
	if s.Sites < 1 || s.Sites > maxSites || s.Racks < 1 || s.Racks > maxRacks {
		return fmt.Errorf("a fleet of %d sites with %d racks: there may be 1 to %d sites and 1 to %d racks a site", s.Sites, s.Racks, maxSites, maxRacks)
	}
	return nil
}

// ShapeError says that a directory holds a fleet of another shape.
type ShapeError struct {
	Dir         string
	Has, Wanted Shape
}

func (e *ShapeError) Error() string {
	return fmt.Sprintf("%s holds a simulated fleet of %d sites with %d racks (seed %d), not %d with %d (seed %d): start it as it is, or give another directory",
		e.Dir, e.Has.Sites, e.Has.Racks, e.Has.Seed, e.Wanted.Sites, e.Wanted.Racks, e.Wanted.Seed)
}

// claim is what a directory says of its fleet.
type claim struct {
	Version int       `json:"version"` // of the rows in the journal
	Shape   Shape     `json:"shape"`
	Began   time.Time `json:"began"`
}

const (
	claimName = "world.json"
	version   = 1
)

// ReadShape gives the shape of the fleet in a directory; false: there is none.
func ReadShape(dir string) (Shape, bool, error) {
	c, err := readClaim(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return Shape{}, false, nil
	}
	return c.Shape, err == nil, err
}

func readClaim(dir string) (c claim, err error) {
	path := filepath.Join(dir, claimName)
	body, err := os.ReadFile(path)
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(body, &c); err != nil {
		return c, fmt.Errorf("read %s: %w", path, err)
	}
	if c.Version != version {
		return c, fmt.Errorf("%s is of version %d of the simulated world, this build reads %d: give another directory", path, c.Version, version)
	}
	return c, nil
}

// claimShape writes down what the directory holds, or checks it. It gives the
// instant of the fleet's beginning.
func claimShape(dir string, shape Shape, now time.Time) (time.Time, error) {
	if err := shape.Check(); err != nil {
		return time.Time{}, err
	}
	c, err := readClaim(dir)
	switch {
	case err == nil && c.Shape != shape:
		return time.Time{}, &ShapeError{Dir: dir, Has: c.Shape, Wanted: shape}
	case err == nil:
		return c.Began, nil
	case !errors.Is(err, fs.ErrNotExist):
		return time.Time{}, err
	}
	c = claim{Version: version, Shape: shape, Began: now.UTC().Truncate(time.Microsecond)}
	body, err := json.Marshal(c)
	if err != nil {
		return time.Time{}, err
	}
	path := filepath.Join(dir, claimName)
	if err := os.WriteFile(path+".new", append(body, '\n'), 0o600); err != nil {
		return time.Time{}, err
	}
	return c.Began, os.Rename(path+".new", path)
}
