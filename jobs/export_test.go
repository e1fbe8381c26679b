package jobs

import (
	"time"

	"github.com/musterhq/muster/engine"
)

// TestCap is a blast cap of a test.
type TestCap struct {
	Name    string
	Per     []string
	Works   []string
	Classes []string
	Most    int
	Share   float64
}

// TestBreaker is a breaker of a test.
type TestBreaker struct {
	Name   string
	Per    []string
	Works  []string
	Share  float64
	Window time.Duration
	Runs   int
}

// Limit makes the service use these caps and breakers instead of the policy's.
func (s *Service) Limit(caps []TestCap, breakers []TestBreaker) {
	var l limits
	for _, c := range caps {
		l.caps = append(l.caps, blastCap{scope: scope{per: c.Per, works: c.Works}, name: c.Name, classes: c.Classes, most: c.Most, share: c.Share})
	}
	for _, b := range breakers {
		l.breakers = append(l.breakers, breaker{scope: scope{per: b.Per, works: b.Works}, name: b.Name, share: b.Share, window: b.Window, runs: b.Runs})
	}
	s.limits = func(*engine.Bundle) limits { return l }
}
