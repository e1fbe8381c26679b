package slurm

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/musterhq/muster/simulator/wire"
)

//go:embed shapes/*.json
var shapes embed.FS

// release is one release of SLURM and the API versions that it serves.
type release struct {
	generation int
	name       string // such as 24.11.5
	serves     []int
	refusal    int    // the HTTP status of a refused write
	transition fault  // how it says that a node cannot go to a state
	noPath     string // how it says that there is no such path
	noParse    string // how it says that a body is no JSON

	badPath       string // how it says that it cannot read a path
	badPathStatus int
}

// fault is one entry of errors[].
type fault struct {
	about  string // description
	number int
	text   string
	source string
}

var releases = map[int]*release{
	38: {
		generation: 38, name: "22.05.8", serves: []int{36, 37, 38}, refusal: 500,
		noPath: noPathOld, noParse: "Unable to parse query.", badPath: badPathOld, badPathStatus: http.StatusBadRequest,
	},
	42: {
		generation: 42, name: "24.11.5", serves: []int{40, 41, 42}, refusal: 500,
		transition: fault{number: 2028, text: "Invalid node state specified"},
		noPath:     noPathOld, noParse: "Unable to parse query.", badPath: badPathOld, badPathStatus: http.StatusBadRequest,
	},
	45: {
		generation: 45, name: "26.05.5", serves: []int{42, 43, 44, 45}, refusal: 422,
		transition: fault{number: 2180, text: "Invalid node state transition"},
		noPath: "Unable to find requested URL endpoint. Please query the '/openapi/v3' endpoint or visit 'https://slurm.schedmd.com/rest_api.html' " +
			"for the OpenAPI specification which includes a list of all possible slurmrestd endpoints.",
		noParse: "Failure during parsing", badPath: "Invalid or unknown URL path", badPathStatus: http.StatusNotFound,
	},
}

const (
	noPathOld  = "Unable find requested URL. Please view /openapi/v3 for API reference."
	badPathOld = "Unable to parse URL path."
)

// The first versions with node writes, with objects for numbers, and with a way
// to create nodes.
const (
	firstWrites = 40
	firstCreate = 44
)

// version is one API version of one release.
type version struct {
	*release
	number int
	name   string // v0.0.42
	node   *stencil
	job    *stencil
	part   *stencil
	ping   *stencil
}

func openVersion(r *release, number int) (*version, error) {
	v := &version{release: r, number: number, name: fmt.Sprintf("v0.0.%d", number)}
	body, err := shapes.ReadFile("shapes/" + v.name + ".json")
	if err != nil {
		return nil, err
	}
	var examples struct{ Node, Partition, Job, Ping json.RawMessage }
	if err := json.Unmarshal(body, &examples); err != nil {
		return nil, fmt.Errorf("read the shapes of %s: %w", v.name, err)
	}
	for _, e := range []struct {
		into    **stencil
		example json.RawMessage
		asked   []string
	}{
		{&v.node, examples.Node, nodeMembers}, {&v.job, examples.Job, jobMembers},
		{&v.part, examples.Partition, partitionMembers}, {&v.ping, examples.Ping, pingMembers},
	} {
		if *e.into, err = cut(e.example, e.asked...); err != nil {
			return nil, fmt.Errorf("read the shapes of %s: %w", v.name, err)
		}
	}
	return v, nil
}

// old tells the versions with plain numbers, one word for a state and no
// warnings.
func (v *version) old() bool { return v.number < firstWrites }

// integer appends a number as the version writes those that may be unset.
func (v *version) integer(b []byte, n int64) []byte {
	if v.old() {
		return strconv.AppendInt(b, n, 10)
	}
	b = append(b, `{"set":true,"infinite":false,"number":`...)
	b = strconv.AppendInt(b, n, 10)
	return append(b, '}')
}

func (v *version) instant(b []byte, at time.Time) []byte {
	if at.IsZero() {
		return v.integer(b, 0)
	}
	return v.integer(b, at.Unix())
}

// list appends texts as the version writes a node's features.
func (v *version) list(b []byte, texts []string) []byte {
	if !v.old() {
		return wire.QuoteAll(b, texts)
	}
	joined := ""
	for i, text := range texts {
		if i > 0 {
			joined += ","
		}
		joined += text
	}
	return wire.Quote(b, joined)
}
