package httpapi

import (
	"errors"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
)

// faultsOf lists what the checker found, one entry a thing. parameter names the
// one that is spoken of; "" is the body.
func faultsOf(err error, parameter string) []fault {
	var several openapi3.MultiError
	var at *openapi3filter.RequestError
	var schema *openapi3.SchemaError
	var parse *openapi3filter.ParseError
	switch e := err.(type) {
	case nil:
		return nil
	case openapi3.MultiError:
		var all []fault
		for _, one := range e {
			all = append(all, faultsOf(one, parameter)...)
		}
		return all
	case *openapi3filter.RequestError:
		if e.Parameter != nil {
			parameter = e.Parameter.Name
		}
		if e.Err == nil {
			return []fault{{Parameter: parameter, Detail: e.Reason}}
		}
		return faultsOf(e.Err, parameter)
	case *openapi3.SchemaError:
		return []fault{schemaFault(e, parameter)}
	}
	switch {
	case errors.As(err, &several):
		return faultsOf(several, parameter)
	case errors.As(err, &at):
		return faultsOf(at, parameter)
	case errors.As(err, &schema):
		return faultsOf(schema, parameter)
	case errors.As(err, &parse):
		return []fault{{Parameter: parameter, Detail: parse.Error()}}
	}
	return []fault{{Parameter: parameter, Detail: err.Error()}}
}

func schemaFault(e *openapi3.SchemaError, parameter string) fault {
	path := e.JSONPointer()
	// The checker points at the object that has a field too many, and names the
	// field in its text only.
	if name, ok := strings.CutPrefix(e.Reason, `property "`); ok && e.SchemaField == "properties" {
		if name, ok = strings.CutSuffix(name, `" is unsupported`); ok {
			path = append(path, name)
		}
	}
	for i, token := range path {
		path[i] = strings.NewReplacer("~", "~0", "/", "~1").Replace(token)
	}
	f := fault{Parameter: parameter, Detail: e.Reason}
	if parameter == "" && len(path) > 0 {
		f.Pointer = "/" + strings.Join(path, "/")
	}
	return f
}
