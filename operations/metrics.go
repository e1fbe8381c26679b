package operations

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Instrument lets the service count what it keeps, in a registry. It is called
// once, before anything runs.
func (s *Service) Instrument(r prometheus.Registerer) error {
	s.overBudget = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "muster_tasks_over_budget_total", Help: "Operations on racks that took longer than the worst case of their rule, by operation.",
	}, []string{"operation"})
	if err := r.Register(s.overBudget); err != nil {
		return fmt.Errorf("register the metrics of operations: %w", err)
	}
	return nil
}
