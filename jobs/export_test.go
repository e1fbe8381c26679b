package jobs

import "github.com/musterhq/muster/engine"

// Limit makes the service use these caps and breakers instead of the policy's.
func (s *Service) Limit(caps []engine.BlastCap, breakers []engine.Breaker) {
	s.limits = func(*engine.Bundle) engine.Limits { return engine.Limits{Caps: caps, Breakers: breakers} }
}
