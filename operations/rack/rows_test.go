package rack

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/musterhq/muster/operations/report"
)

func (h *hall) Begin(_ context.Context, id string) (report.Begun, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, "begin")
	return h.begun, nil
}

func terminal(s report.Status) bool { return s != "" && s != report.Running }

func (h *hall) Record(_ context.Context, r report.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range r.Entries {
		key := fmt.Sprintf("%d %s %s %d %d", e.Stage, e.ComponentType, e.Phase, e.Index, e.Device)
		if terminal(h.entries[key].Status) {
			continue
		}
		h.entries[key] = e
		if terminal(e.Status) {
			name := "-"
			if t := h.trays[e.Device]; t != nil {
				name = t.Name
			}
			h.lines = append(h.lines, strings.TrimSpace(fmt.Sprintf("%d %s %s[%d] %s %s %s %s", e.Stage, e.ComponentType, e.Phase, e.Index, e.Action, name, e.Status, e.Code)))
		}
	}
	for _, c := range r.Components {
		now := h.components[c.Device]
		if terminal(now.Status) {
			continue
		}
		now.Device, now.Status = c.Device, c.Status
		now.Phase, now.Message, now.LastState = cmp.Or(c.Phase, now.Phase), cmp.Or(c.Message, now.Message), cmp.Or(c.LastState, now.LastState)
		now.Code = cmp.Or(c.Code, now.Code)
		h.components[c.Device] = now
	}
	return nil
}

func (h *hall) OverBudget(context.Context, int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over++
	return nil
}

func (h *hall) Finish(_ context.Context, _ string, e report.Ending) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.endings = append(h.endings, e)
	h.lines = append(h.lines, strings.TrimSpace("finish "+string(e.Status)+" "+string(e.Code)))
	return nil
}

func (h *hall) Close(_ context.Context, id string, _ report.Ending) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = append(h.closed, id)
	return nil
}

func (h *hall) Child(_ context.Context, _, child string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.children = append(h.children, child)
	return nil
}
