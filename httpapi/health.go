package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/musterhq/muster/store"
)

// probeTimeout bounds what readiness asks the database.
const probeTimeout = 2 * time.Second

// healthy says that the process answers; nothing more, so that a database that
// is down restarts no server.
func (s *Server) healthy(w http.ResponseWriter, _ *http.Request) { plainText(w, http.StatusOK, "ok\n") }

// ready says whether this replica should get requests.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), probeTimeout)
	defer cancel()
	if why := s.unready(ctx); why != "" {
		plainText(w, http.StatusServiceUnavailable, "not ready: "+why+"\n")
		return
	}
	plainText(w, http.StatusOK, "ready\n")
}

// unready says why this replica should get no requests; "" where it should. It
// names no cause that a stranger should not read.
func (s *Server) unready(ctx context.Context) string {
	if s.draining.Load() {
		return "the server is stopping"
	}
	active, err := store.Active(ctx, s.DB)
	switch bundle := s.Policies.Current(); {
	case errors.Is(err, store.ErrNotFound):
		return "no policy is active: run `muster policy activate DIR`"
	case err != nil:
		return "the database does not answer"
	case bundle == nil:
		return "the active policy is not loaded: see /api/v1/policies/status/"
	case bundle.Version() != active.Version && s.Policies.Status().Error != "":
		return "the active policy does not load here: see /api/v1/policies/status/"
	}
	return ""
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // the caller may be gone
}
