package control

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/world"
)

// Options are what a control commands.
type Options struct {
	World *world.World
	Rules *faultproxy.Rules
	Token string // that a request shows as its bearer
}

type control struct{ Options }

// New makes the handler; its paths are as the package says.
func New(o Options) http.Handler {
	c := control{o}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /world", c.world)
	mux.HandleFunc("GET /effects", c.effects)
	mux.HandleFunc("POST /advance", c.advance)
	mux.HandleFunc("GET /faults", c.list)
	mux.HandleFunc("POST /faults", c.fault)
	mux.HandleFunc("DELETE /faults", func(w http.ResponseWriter, _ *http.Request) { answer(w, Cleared{o.Rules.Clear()}) })
	mux.HandleFunc("DELETE /faults/{id}", c.remove)
	want := sha256.Sum256([]byte("Bearer " + o.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if got := sha256.Sum256([]byte(q.Header.Get("Authorization"))); subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
			refuse(w, http.StatusUnauthorized, errors.New("the token of the simulator is missing or wrong: it is in control.json of its directory"))
			return
		}
		mux.ServeHTTP(w, q)
	})
}

// World is what GET /world answers.
type World struct {
	Now     time.Time   `json:"now"`
	Shape   world.Shape `json:"shape"`
	Sites   []string    `json:"sites"`
	Devices int         `json:"devices"`
	Effects int         `json:"effects"`
}

func (c control) world(w http.ResponseWriter, _ *http.Request) {
	out := World{Shape: c.World.Shape(), Effects: len(c.World.Effects(0))}
	c.World.Read(func(s *world.State) {
		out.Now, out.Devices = s.Now, s.Machines.Len()
		for name := range s.Sites.All() {
			out.Sites = append(out.Sites, name)
		}
	})
	answer(w, out)
}

// Effects is what GET /effects answers. The next question is asked since Next.
type Effects struct {
	Effects []world.Effect `json:"effects"`
	Next    int            `json:"next"`
}

func (c control) effects(w http.ResponseWriter, q *http.Request) {
	since := 0
	if text := q.URL.Query().Get("since"); text != "" {
		var err error
		if since, err = strconv.Atoi(text); err != nil || since < 0 {
			refuse(w, http.StatusBadRequest, errors.New("since is the number of an effect"))
			return
		}
	}
	face := q.URL.Query().Get("face")
	all := c.World.Effects(since)
	out := Effects{Effects: []world.Effect{}, Next: since + len(all)}
	for _, e := range all {
		if face == "" || e.Face == face {
			out.Effects = append(out.Effects, e)
		}
	}
	answer(w, out)
}

// Advance is what POST /advance takes and answers.
type Advance struct {
	By  string    `json:"by,omitempty"`
	Now time.Time `json:"now,omitzero"`
}

func (c control) advance(w http.ResponseWriter, q *http.Request) {
	var in Advance
	if !read(w, q, &in) {
		return
	}
	by, err := time.ParseDuration(in.By)
	if err == nil {
		err = c.World.Advance(by)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	answer(w, Advance{Now: c.World.Now()})
}

// Faults is what GET /faults answers.
type Faults struct {
	Faults []faultproxy.Rule `json:"faults"`
}

func (c control) list(w http.ResponseWriter, _ *http.Request) { answer(w, Faults{c.Rules.List()}) }

// Cleared tells how many rules were taken away.
type Cleared struct {
	Cleared int `json:"cleared"`
}

func (c control) remove(w http.ResponseWriter, q *http.Request) {
	id, err := strconv.Atoi(q.PathValue("id"))
	if err != nil || !c.Rules.Remove(id) {
		refuse(w, http.StatusNotFound, errors.New("no fault has that number"))
		return
	}
	answer(w, Cleared{1})
}

// Fault is what POST /faults takes: a rule of a face, or, with Device, what
// becomes of a machine (see Machine). It answers the rule, or nothing.
type Fault struct {
	faultproxy.Rule
	Device string `json:"device,omitempty"`
	Part   string `json:"part,omitempty"`   // of the kind health: gpus, thermal, …
	State  string `json:"state,omitempty"`  // of the kinds health: OK, Warning, Critical; and bmc-says: On, Off, null
	Reason string `json:"reason,omitempty"` // of the kind drain
}

func (c control) fault(w http.ResponseWriter, q *http.Request) {
	var in Fault
	if !read(w, q, &in) {
		return
	}
	if in.Device != "" {
		switch err := c.strike(&in); {
		case errors.Is(err, errNoDevice):
			refuse(w, http.StatusNotFound, err)
		case err != nil:
			refuse(w, http.StatusBadRequest, err)
		default:
			answer(w, in)
		}
		return
	}
	rule, err := c.Rules.Add(in.Rule)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	answer(w, rule)
}

const bodyLimit = 1 << 16

func read(w http.ResponseWriter, q *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, q.Body, bodyLimit))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, err)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// Refusal is what every error answers.
type Refusal struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Refusal{strings.TrimSpace(err.Error())})
}
