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
	"strconv"
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
	Temporal        *Temporal      `json:"temporal,omitempty"`
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

// Temporal says where workflows run. APIKey is a reference: file:PATH, env:NAME.
type Temporal struct {
	Address         string       `json:"address"`
	Namespace       string       `json:"namespace"`
	TLS             *TemporalTLS `json:"tls,omitempty"`
	APIKey          string       `json:"api_key,omitempty"`
	TaskQueuePrefix string       `json:"task_queue_prefix"`
}

// TemporalTLS names files; all may be empty.
type TemporalTLS struct {
	CA          string `json:"ca,omitempty"`
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
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
		err = hidden(document, err)
		return r, fmt.Errorf("%w\nschema/config.cue lists the keys; each is also a variable: database.url is %s", err, Variable("database.url"))
	}
	if in.File != "" {
		r.Config.relativeTo(filepath.Dir(in.File), r.Origins)
	}
	return r, nil
}

// hidden takes out of an error what stands where a secret's place should be told:
// it may be the secret.
func hidden(document map[string]any, err error) error {
	text := err.Error()
	for _, key := range [][2]string{{"database", "url"}, {"temporal", "api_key"}} {
		group, ok := document[key[0]].(map[string]any)
		if value, is := group[key[1]].(string); ok && is && value != "" {
			text = strings.ReplaceAll(text, strconv.Quote(value), `"xxxxx"`)
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
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
	if c.Temporal != nil && c.Temporal.TLS != nil {
		fix("temporal.tls.ca", &c.Temporal.TLS.CA)
		fix("temporal.tls.certificate", &c.Temporal.TLS.Certificate)
		fix("temporal.tls.key", &c.Temporal.TLS.Key)
	}
}

// Keys lists every key, in order.
func Keys() []string { return slices.Sorted(maps.Keys(leaves())) }
