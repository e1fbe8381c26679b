package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
)

// Config is #Config with every default filled in.
type Config struct {
	Database        Database       `json:"database"`
	Roles           []string       `json:"roles"`
	Listen          string         `json:"listen"`
	TLS             *TLS           `json:"tls,omitempty"`
	Auth            Auth           `json:"auth"`
	Log             Log            `json:"log"`
	Policies        string         `json:"policies,omitempty"`
	Sites           []string       `json:"sites"`
	Reconciler      Reconciler     `json:"reconciler"`
	ShutdownTimeout fleet.Duration `json:"shutdown_timeout"`
}

// Database says where the rows are. URL may be a reference: file:PATH, env:NAME.
type Database struct {
	URL              string         `json:"url"`
	MaxConnections   int32          `json:"max_connections"`
	StatementTimeout fleet.Duration `json:"statement_timeout"`
}

// TLS names the files of the server's own certificate.
type TLS struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// Auth says who may ask.
type Auth struct {
	Tokens bool  `json:"tokens"`
	OIDC   *OIDC `json:"oidc,omitempty"`
}

// OIDC names whose tokens are accepted beside our own.
type OIDC struct {
	Issuer     string   `json:"issuer"`
	Audience   string   `json:"audience"`
	ScopeClaim string   `json:"scope_claim"`
	Algorithms []string `json:"algorithms"`
}

// Log says what is logged and in which form.
type Log struct {
	Level string `json:"level"`
	JSON  bool   `json:"json"`
}

// Reconciler bounds one replica's sweeps.
type Reconciler struct {
	Sweeps int            `json:"sweeps"`
	Lease  fleet.Duration `json:"lease"`
}

// Origin says where a value came from.
type Origin string

// The origins of a value, the strongest last.
const (
	FromDefault     Origin = "default"
	FromFile        Origin = "file"
	FromEnvironment Origin = "environment"
	FromCommandLine Origin = "command line"
)

// Input is what a configuration is made of.
type Input struct {
	Schema  fs.FS             // the binary's own bundle
	File    string            // "" for none
	Environ []string          // KEY=VALUE, as os.Environ gives it
	Flags   map[string]string // by dotted key, as the environment would spell it
}

// Resolved is a configuration with the origin of each of its values.
type Resolved struct {
	Config  Config
	Origins map[string]Origin // by dotted key; absent: the default
	Unknown []string          // variables that look like ours and are no key
}

// Load reads the file, lays the environment and the flags over it, and checks
// the whole. All errors are reported at once, those of a file with line and
// column.
func Load(in Input) (Resolved, error) {
	r := Resolved{Origins: map[string]Origin{}}
	name, data, document := mergedName(""), []byte("{}"), map[string]any{}
	if in.File != "" {
		var err error
		if data, err = os.ReadFile(in.File); err != nil {
			return r, fmt.Errorf("read the configuration: %w", err)
		}
		name = in.File
		if document, err = parse(name, data); err != nil {
			return r, err
		}
		mark(r.Origins, "", document, FromFile)
	}
	written := data
	if over := overrides(in, &r); len(over) > 0 {
		for _, o := range over {
			if err := o.put(document); err != nil {
				return r, err
			}
			r.Origins[o.key] = o.origin
		}
		merged, err := json.Marshal(document)
		if err != nil {
			return r, fmt.Errorf("read the configuration: %w", err)
		}
		data, name = merged, mergedName(in.File)
	}
	if err := engine.Decode(in.Schema, "#Config", name, data, &r.Config); err != nil {
		if name != in.File && in.File != "" {
			err = placed(in, written, err)
		}
		return r, fmt.Errorf("%w\nschema/config.cue lists the keys; each is also a variable: database.url is %s", err, Variable("database.url"))
	}
	if in.File != "" {
		r.Config.relativeTo(filepath.Dir(in.File), r.Origins)
	}
	return r, nil
}

// placed finds the errors that the file has by itself, which can be told with
// their lines; what the environment brought in cannot.
func placed(in Input, written []byte, merged error) error {
	var alone Config
	err := engine.Decode(in.Schema, "#Config", in.File, written, &alone)
	if err == nil {
		return merged
	}
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if strings.HasPrefix(line, in.File+":") && strings.Count(line, ":") > 3 {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return merged
	}
	return errors.New(strings.Join(lines, "\n"))
}

// mergedName names what no file holds as such: its ending says that it is JSON.
func mergedName(file string) string {
	if file == "" {
		return "environment and flags.json"
	}
	return strings.TrimSuffix(file, filepath.Ext(file)) + " with environment and flags.json"
}

// mark notes the origin of every leaf of a document.
func mark(origins map[string]Origin, prefix string, document map[string]any, origin Origin) {
	for key, value := range document {
		path := prefix + key
		if inner, ok := value.(map[string]any); ok {
			mark(origins, path+".", inner, origin)
			continue
		}
		origins[path] = origin
	}
}

// relativeTo makes the paths that a file names relative to that file.
func (c *Config) relativeTo(dir string, origins map[string]Origin) {
	fix := func(key string, path *string) {
		if *path != "" && origins[key] == FromFile && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
	fix("policies", &c.Policies)
	for i := range c.Sites {
		fix("sites", &c.Sites[i])
	}
	if c.TLS != nil {
		fix("tls.certificate", &c.TLS.Certificate)
		fix("tls.key", &c.TLS.Key)
	}
}

// Keys lists every key, in order.
func Keys() []string { return slices.Sorted(maps.Keys(leaves())) }
