package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/load"
	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/musterhq/muster"
)

// peer judges devices of one sample by the operational ladder with another
// engine. Programs are compiled and inputs converted beforehand. It gives the
// index of the rung.
type peer struct {
	name  string
	judge func(device int) (int, error)
}

// statuses spell the ten conditions of a device.
type statuses map[string]string

func statusesOf(t, u uint64) statuses {
	s := statuses{}
	for _, c := range conditions {
		switch bit := uint64(1) << c.bit; {
		case u&bit != 0:
			s[c.name] = "Unknown"
		case t&bit != 0:
			s[c.name] = "True"
		default:
			s[c.name] = "False"
		}
	}
	return s
}

// peersOf prepares every peer over a sample.
func peersOf(sample []statuses) ([]peer, error) {
	var all []peer
	for _, prepare := range []func([]statuses) ([]peer, error){exprPeers, celPeers, opaPeers, cuePeers} {
		peers, err := prepare(sample)
		if err != nil {
			return nil, err
		}
		all = append(all, peers...)
	}
	return all, nil
}

// environment is what expr-lang reads: a plain struct.
type environment struct {
	CustomerReady, Enrolled, InstanceAllocated, Maintenance, MaintenancePool                string
	ProvisionAvailable, ProvisionFailed, SlurmMember, SlurmSchedulable, ValidationAllocated string
}

// chain writes the ladder as one conditional expression.
func chain(equal, and string) string {
	var b strings.Builder
	for i, r := range ladder {
		fmt.Fprintf(&b, "(%s) ? %d : ", spelled(r, equal, and), i)
	}
	fmt.Fprint(&b, len(ladder))
	return b.String()
}

func exprPeers(sample []statuses) ([]peer, error) {
	inputs := make([]environment, len(sample))
	for i, s := range sample {
		text, err := json.Marshal(s)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &inputs[i]); err != nil {
			return nil, err
		}
	}
	const equal, and = "%s == %q", " && "
	programs := make([]*vm.Program, len(ladder))
	for i, r := range ladder {
		var err error
		if programs[i], err = expr.Compile(spelled(r, equal, and), expr.Env(environment{}), expr.AsBool()); err != nil {
			return nil, fmt.Errorf("compile rung %s for expr-lang: %w", r.name, err)
		}
	}
	whole, err := expr.Compile(chain(equal, and), expr.Env(environment{}), expr.AsInt())
	if err != nil {
		return nil, fmt.Errorf("compile the ladder for expr-lang: %w", err)
	}
	machine := &vm.VM{}
	return []peer{
		{"expr-lang, a program per rung", func(device int) (int, error) {
			for i, p := range programs {
				out, err := machine.Run(p, inputs[device])
				if err != nil {
					return 0, err
				}
				if out.(bool) {
					return i, nil
				}
			}
			return len(programs), nil
		}},
		{"expr-lang, one chain", func(device int) (int, error) {
			out, err := machine.Run(whole, inputs[device])
			if err != nil {
				return 0, err
			}
			return out.(int), nil
		}},
	}, nil
}

func celPeers(sample []statuses) ([]peer, error) {
	var variables []cel.EnvOption
	for _, c := range conditions {
		variables = append(variables, cel.Variable(c.name, cel.StringType))
	}
	env, err := cel.NewEnv(variables...)
	if err != nil {
		return nil, fmt.Errorf("prepare CEL: %w", err)
	}
	compile := func(text string) (cel.Program, error) {
		tree, issues := env.Compile(text)
		if issues.Err() != nil {
			return nil, fmt.Errorf("compile for CEL: %w", issues.Err())
		}
		return env.Program(tree, cel.EvalOptions(cel.OptOptimize))
	}
	const equal, and = "%s == %q", " && "
	programs := make([]cel.Program, len(ladder))
	for i, r := range ladder {
		if programs[i], err = compile(spelled(r, equal, and)); err != nil {
			return nil, err
		}
	}
	whole, err := compile(chain(equal, and))
	if err != nil {
		return nil, err
	}
	mapped, err := celOverMap(sample)
	if err != nil {
		return nil, err
	}
	inputs := make([]map[string]any, len(sample))
	for i, s := range sample {
		inputs[i] = map[string]any{}
		for name, status := range s {
			inputs[i][name] = status
		}
	}
	return []peer{
		{"CEL, a program per rung", func(device int) (int, error) {
			for i, p := range programs {
				out, _, err := p.Eval(inputs[device])
				if err != nil {
					return 0, err
				}
				if out.Value().(bool) {
					return i, nil
				}
			}
			return len(programs), nil
		}},
		{"CEL, one chain", func(device int) (int, error) {
			out, _, err := whole.Eval(inputs[device])
			if err != nil {
				return 0, err
			}
			return int(out.Value().(int64)), nil
		}},
		mapped,
	}, nil
}

// celOverMap reads conditions by type from a map, as a policy does that does
// not know beforehand which types there are.
func celOverMap(sample []statuses) (peer, error) {
	env, err := cel.NewEnv(cel.Variable("conditions", cel.MapType(cel.StringType, cel.StringType)))
	if err != nil {
		return peer{}, fmt.Errorf("prepare CEL: %w", err)
	}
	tree, issues := env.Compile(chain("conditions.%s == %q", " && "))
	if issues.Err() != nil {
		return peer{}, fmt.Errorf("compile for CEL: %w", issues.Err())
	}
	program, err := env.Program(tree, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		return peer{}, fmt.Errorf("compile for CEL: %w", err)
	}
	inputs := make([]map[string]any, len(sample))
	for i, s := range sample {
		inputs[i] = map[string]any{"conditions": map[string]string(s)}
	}
	return peer{"CEL, one chain over a map", func(device int) (int, error) {
		out, _, err := program.Eval(inputs[device])
		if err != nil {
			return 0, err
		}
		return int(out.Value().(int64)), nil
	}}, nil
}

func opaPeers(sample []statuses) ([]peer, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "package ladder\n\ndefault rung := %d\n\nrung := ", len(ladder))
	for i, r := range ladder {
		if i > 0 {
			text.WriteString(" else := ")
		}
		fmt.Fprintf(&text, "%d if {\n\t%s\n}", i, spelled(r, "input.%s == %q", "\n\t"))
	}
	ctx := context.Background()
	query, err := rego.New(rego.Query("data.ladder.rung"), rego.Module("ladder.rego", text.String())).PrepareForEval(ctx)
	if err != nil {
		return nil, fmt.Errorf("compile the ladder for OPA: %w", err)
	}
	inputs := make([]ast.Value, len(sample))
	for i, s := range sample {
		if inputs[i], err = ast.InterfaceToValue(map[string]string(s)); err != nil {
			return nil, fmt.Errorf("convert an input for OPA: %w", err)
		}
	}
	return []peer{{"OPA, prepared, input parsed before", func(device int) (int, error) {
		results, err := query.Eval(ctx, rego.EvalParsedInput(inputs[device]))
		if err != nil {
			return 0, err
		}
		number, ok := results[0].Expressions[0].Value.(json.Number)
		if !ok {
			return 0, fmt.Errorf("OPA gave %T", results[0].Expressions[0].Value)
		}
		rung, err := number.Int64()
		return int(rung), err
	}}}, nil
}

// cuePeers asks the shipped patterns themselves, as CUE evaluates them.
func cuePeers(sample []statuses) ([]peer, error) {
	ctx := cuecontext.New()
	instance := load.Instances([]string{"./policies/status"}, &load.Config{FS: muster.Bundle(), Dir: "/", Env: []string{}})[0]
	if instance.Err != nil {
		return nil, fmt.Errorf("load the shipped ladder with CUE: %w", instance.Err)
	}
	rungs, err := ctx.BuildInstance(instance).LookupPath(cue.ParsePath("operational.rungs")).List()
	if err != nil {
		return nil, fmt.Errorf("build the shipped ladder with CUE: %w", err)
	}
	var patterns []cue.Value
	for rungs.Next() {
		patterns = append(patterns, rungs.Value().LookupPath(cue.MakePath(cue.Def("#when"))))
	}
	inputs := make([]cue.Value, len(sample))
	for i, s := range sample {
		inputs[i] = ctx.Encode(map[string]any{"conditions": map[string]string(s)})
	}
	return []peer{{"raw CUE, Subsume of the shipped patterns", func(device int) (int, error) {
		for i, p := range patterns {
			if p.Subsume(inputs[device], cue.Final()) == nil {
				return i, nil
			}
		}
		return len(patterns), nil
	}}}, nil
}
