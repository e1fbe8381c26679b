package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/encoding/yaml"

	"github.com/musterhq/muster/fleet"
)

const prefix = "MUSTER_"

// others are variables of ours that are no keys of a configuration: what the
// commands and the tests read. A trailing _ stands for all that begin so.
var others = []string{
	"MUSTER_CONFIG", "MUSTER_URL", "MUSTER_TOKEN", "MUSTER_DATA_DIR", "MUSTER_SANDBOX", "MUSTER_PEER_", "MUSTER_TEST_", "MUSTER_PROPERTY_", "MUSTER_EMBEDDED_", "MUSTER_TEMPORAL_BIN",
}

// Variable names the variable that overrides a key.
func Variable(key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// override is one value that replaces the file's.
type override struct {
	key    string
	name   string // as a person wrote it: the variable, the flag
	value  string
	kind   reflect.Type
	origin Origin
}

// overrides collects what the environment and the flags say, flags last.
func overrides(in Input, r *Resolved) []override {
	keys := leaves()
	byVariable := map[string]string{}
	for key := range keys {
		byVariable[Variable(key)] = key
	}
	var list []override
	for _, pair := range slices.Sorted(slices.Values(in.Environ)) {
		name, value, _ := strings.Cut(pair, "=")
		key, ours := byVariable[name]
		switch {
		case value == "": // as good as not set
		case ours:
			list = append(list, override{key, name, value, keys[key], FromEnvironment})
		case strings.HasPrefix(name, prefix) && !slices.ContainsFunc(others, func(o string) bool {
			return name == o || strings.HasSuffix(o, "_") && strings.HasPrefix(name, o)
		}):
			r.Unknown = append(r.Unknown, name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(in.Flags)) {
		list = append(list, override{key, "the flag for " + key, in.Flags[key], keys[key], FromCommandLine})
	}
	return list
}

// put sets the value in a document. Lists are separated by commas.
func (o override) put(document map[string]any) error {
	value, err := o.parse()
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	path := strings.Split(o.key, ".")
	for _, field := range path[:len(path)-1] {
		inner, ok := document[field].(map[string]any)
		if !ok {
			inner = map[string]any{}
			document[field] = inner
		}
		document = inner
	}
	document[path[len(path)-1]] = value
	return nil
}

func (o override) parse() (any, error) {
	switch o.kind.Kind() {
	case reflect.Bool:
		switch o.value {
		case "true", "false":
			return o.value == "true", nil
		}
		return nil, fmt.Errorf("%q is not true or false", o.value)
	case reflect.Int, reflect.Int32:
		number := json.Number(o.value)
		if _, err := number.Int64(); err != nil {
			return nil, fmt.Errorf("%q is not a number", o.value)
		}
		return number, nil
	case reflect.Slice:
		list := []string{}
		for _, part := range strings.Split(o.value, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		return list, nil
	}
	return o.value, nil
}

// leaves lists the keys of a configuration with the type of their values.
func leaves() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	var walk func(path string, t reflect.Type)
	walk = func(path string, t reflect.Type) {
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			kind := field.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			if kind.Kind() == reflect.Struct {
				walk(path+name+".", kind)
				continue
			}
			if kind == reflect.TypeFor[fleet.Duration]() {
				kind = reflect.TypeFor[string]()
			}
			all[path+name] = kind
		}
	}
	walk("", reflect.TypeFor[Config]())
	return all
}

// parse reads a document without its schema, to lay other values over it.
func parse(name string, data []byte) (map[string]any, error) {
	ctx := cuecontext.New()
	var value cue.Value
	if strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml") {
		file, err := yaml.Extract(name, data)
		if err != nil {
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
		value = ctx.BuildFile(file)
	} else {
		value = ctx.CompileBytes(data, cue.Filename(name))
	}
	document := map[string]any{}
	if err := value.Err(); err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	body, err := value.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("read the configuration: %s is no set of keys: %w", name, err)
	}
	return document, nil
}
