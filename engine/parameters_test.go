package engine

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParametersAreValidatedByCUE(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	for name, tt := range map[string]struct {
		workflow, given string
		want            string // normalised, where it is accepted
		problems        []Problem
	}{
		"nothing at all":        {"enrollment", ``, `{"run_inspection": true, "node_uuid": null}`, nil},
		"null":                  {"enrollment", ` null `, `{"run_inspection": true, "node_uuid": null}`, nil},
		"a default overridden":  {"enrollment", `{"run_inspection": false}`, `{"run_inspection": false, "node_uuid": null}`, nil},
		"no parameters":         {"node_unenrollment", `{}`, `{}`, nil},
		"one of a set":          {"frontend_vrf_flip", `{"direction": "isolate"}`, `{"direction": "isolate"}`, nil},
		"lists and open params": {"single_node_burn_in", `{"tests": [{"slug": "gpu-burn", "params": {"minutes": 5, "deep": {"x": [1]}}}, {"slug": "hpl"}], "max_wait_time_seconds": 60}`, `{"tests": [{"slug": "gpu-burn", "params": {"minutes": 5, "deep": {"x": [1]}}}, {"slug": "hpl", "params": {}}], "partition": null, "max_wait_time_seconds": 60}`, nil},
		"a report":              {"generate_report", `{"filters": {"start_date": "2026-01-31"}}`, `{"sections": ["inventory", "enrollment", "health", "burn_in"], "filters": {"start_date": "2026-01-31", "end_date": null, "test_slugs": [], "result_filter": "all"}, "generate_logs": false}`, nil},
		"two tests":             {"multi_node_collective", `{"tests": [{"slug": "a"}, {"slug": "b"}]}`, `{"tests": [{"slug": "a", "params": {}}, {"slug": "b", "params": {}}], "partition": null, "max_wait_time_seconds": null}`, nil},

		"a wrong type":                {"enrollment", `{"run_inspection": "yes"}`, "", []Problem{{Path: "run_inspection", Constraint: "bool", Actual: `"yes"`}}},
		"a typo":                      {"enrollment", `{"run_inspecton": true}`, "", []Problem{{Path: "run_inspecton", Constraint: "no such parameter", Actual: "true", Message: "did you mean run_inspection?"}}},
		"what the server stamps":      {"move_to_test_cluster", `{"engagement_mode": "fully_managed", "reclaim_instance": "i-1"}`, "", []Problem{{Path: "engagement_mode", Constraint: "no such parameter"}, {Path: "reclaim_instance", Constraint: "no such parameter"}}},
		"a cordon by force":           {"move_to_test_cluster", `{"force_reclaim": true, "cordon_only": true}`, "", []Problem{{Path: "cordon_only", Constraint: "false", Actual: "true"}}},
		"a UUID that is none":         {"enrollment", `{"node_uuid": "n1"}`, "", []Problem{{Path: "node_uuid", Constraint: "=~", Actual: `"n1"`}}},
		"what has to be given":        {"frontend_vrf_flip", `{}`, "", []Problem{{Path: "direction", Constraint: `"handover" | "isolate"`, Message: "is missing"}}},
		"none of a set":               {"frontend_vrf_flip", `{"direction": "return"}`, "", []Problem{{Path: "direction", Constraint: `"handover" | "isolate"`, Actual: `"return"`}}},
		"past a bound":                {"single_node_burn_in", `{"tests": [{"slug": "a"}], "max_wait_time_seconds": 0}`, "", []Problem{{Path: "max_wait_time_seconds", Constraint: ">0", Actual: "0"}}},
		"no whole number":             {"single_node_burn_in", `{"tests": [{"slug": "a"}], "max_wait_time_seconds": 1.5}`, "", []Problem{{Path: "max_wait_time_seconds", Constraint: "int", Actual: "1.5"}}},
		"what has to be given within": {"single_node_burn_in", `{"tests": [{"params": {}}]}`, "", []Problem{{Path: "tests.0.slug", Message: "is missing"}}},
		"no test":                     {"single_node_burn_in", `{"tests": []}`, "", []Problem{{Path: "tests"}}},
		"deep within":                 {"single_node_burn_in", `{"tests": [{"slug": "a"}, {"slug": "B"}, {"slugs": "c"}]}`, "", []Problem{{Path: "tests.1.slug", Constraint: "=~", Actual: `"B"`}, {Path: "tests.2.slugs", Constraint: "no such parameter"}}},
		"a test twice":                {"multi_node_collective", `{"tests": [{"slug": "a"}, {"slug": "a"}]}`, "", []Problem{{Path: "tests", Constraint: "no test stands twice"}}},
		"several at once":             {"generate_report", `{"sections": ["x"], "filters": {"result_filter": "some"}, "generate_logs": 1}`, "", []Problem{{Path: "filters.result_filter", Actual: `"some"`}, {Path: "generate_logs", Constraint: "bool"}, {Path: "sections.0", Constraint: "=~", Actual: `"x"`}}},
		"a typo beside a wrong type":  {"move_to_test_cluster", `{"force_reclam": true, "cordon_only": "yes"}`, "", []Problem{{Path: "cordon_only", Actual: `"yes"`}, {Path: "force_reclam", Constraint: "no such parameter", Message: "did you mean force_reclaim?"}}},
		"a typo beside a missing one": {"frontend_vrf_flip", `{"directoin": "isolate"}`, "", []Problem{{Path: "direction", Message: "is missing"}, {Path: "directoin", Constraint: "no such parameter"}}},
		"typos beside and within":     {"generate_report", `{"section": [], "sections": ["x"], "filters": {"from": "x", "result_filter": "some"}}`, "", []Problem{{Path: "filters.from", Constraint: "no such parameter"}, {Path: "filters.result_filter"}, {Path: "section", Constraint: "no such parameter"}, {Path: "sections.0"}}},
		"a typo beside a list's":      {"multi_node_collective", `{"tests": [{"slug": "a"}, {"slug": "a"}], "partitoin": "p"}`, "", []Problem{{Path: "partitoin", Constraint: "no such parameter"}, {Path: "tests", Constraint: "no test stands twice"}}},
		"a typo in a list's element":  {"single_node_burn_in", `{"tests": ["a", {"slug": 1, "slugs": "c"}], "max_wait": 1}`, "", []Problem{{Path: "max_wait", Constraint: "no such parameter"}, {Path: "tests.0"}, {Path: "tests.1.slug"}, {Path: "tests.1.slugs", Constraint: "no such parameter"}}},
		"two values of one name":      {"enrollment", `{"run_inspection": true, "run_inspection": false}`, "", []Problem{{Path: "run_inspection"}}},
		"no object":                   {"enrollment", `[]`, "", []Problem{{Message: "are a JSON object"}}},
		"no JSON":                     {"enrollment", `{"run_inspection": tru`, "", []Problem{{Message: "are no JSON"}}},
		"CUE is no JSON":              {"enrollment", `{run_inspection: bool}`, "", []Problem{{Message: "are no JSON"}}},
		"two objects":                 {"enrollment", `{} {}`, "", []Problem{{Message: "are one JSON object"}}},
		"nested without end":          {"multi_node_pairwise", `{"test_slug": "a", "test_params": ` + strings.Repeat(`{"x":`, 100) + `1` + strings.Repeat(`}`, 100) + `}`, "", []Problem{{Message: "nest deeper"}}},
		"larger than any":             {"enrollment", `{"node_uuid": "` + strings.Repeat("x", maxParameterBytes) + `"}`, "", []Problem{{Message: "more than"}}},
		"a workflow that is none":     {"enrolment", `{}`, "", []Problem{{Message: "no workflow enrolment"}}},
		"a name that hides itself":    {"enrollment", `{"_x": 1, "#y": 2}`, "", []Problem{{Path: `"#y"`, Constraint: "no such parameter"}, {Path: `"_x"`, Constraint: "no such parameter"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problems := b.ValidateParameters(tt.workflow, []byte(tt.given))
			if len(problems) != len(tt.problems) {
				t.Fatalf("problems %+v, want %+v", problems, tt.problems)
			}
			for i, want := range tt.problems {
				p := problems[i]
				if p.Path != want.Path || !strings.Contains(p.Constraint, want.Constraint) || want.Actual != "" && p.Actual != want.Actual || !strings.Contains(p.Message, want.Message) || p.Message == "" {
					t.Errorf("problem %+v, want %+v", p, want)
				}
			}
			if tt.want == "" {
				return
			}
			var want map[string]any
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("normalised to %v, want %v", got, want)
			}
		})
	}
}

// Whatever the shipped catalogue asks, its own schema says the same: what is
// given by default passes, and the schema names every parameter.
func TestParameterSchemas(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	for _, w := range b.Workflows() {
		t.Run(w.Slug, func(t *testing.T) {
			t.Parallel()
			var schema map[string]any
			if err := json.Unmarshal(w.ParameterSchema(), &schema); err != nil {
				t.Fatal(err)
			}
			if schema["type"] != "object" || schema["additionalProperties"] != false {
				t.Errorf("%v is no closed object", schema)
			}
			want, err := json.Marshal(schemas[w.Slug])
			if err != nil {
				t.Fatal(err)
			}
			properties, _ := schema["properties"].(map[string]any)
			for _, name := range slices.Sorted(maps.Keys(properties)) {
				if text, ok := schemas[w.Slug][name]; ok {
					got, _ := json.Marshal(properties[name])
					var expect any
					if err := json.Unmarshal([]byte(text), &expect); err != nil {
						t.Fatal(err)
					}
					if !reflect.DeepEqual(properties[name], expect) {
						t.Errorf("%s is %s, want %s", name, got, text)
					}
				}
			}
			for name := range schemas[w.Slug] {
				if properties[name] == nil {
					t.Errorf("no %s: %s", name, want)
				}
			}
		})
	}
}

// schemas are the forms of parameters, by workflow and parameter.
var schemas = map[string]map[string]string{
	"enrollment": {
		"run_inspection": `{"type": "boolean", "default": true, "description": "Inspect the node and validate what inspection finds."}`,
		"node_uuid":      `{"type": ["string", "null"], "default": null, "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "description": "Recreate the Ironic node under this UUID (hardware swap)."}`,
	},
	"frontend_vrf_flip": {
		"direction": `{"type": "string", "enum": ["handover", "isolate"], "description": "handover: the switch ports go to the customer's VRF. isolate: they come out of it."}`,
	},
	"single_node_burn_in": {
		"tests":                 `{"type": "array", "minItems": 1, "items": {"type": "object", "additionalProperties": false, "required": ["slug"], "properties": {"slug": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?$"}, "params": {"type": "object", "properties": {}, "description": "The test's own; muster passes them on."}}}}`,
		"max_wait_time_seconds": `{"type": ["integer", "null"], "default": null, "exclusiveMinimum": 0, "maximum": 604800}`,
	},
	"generate_report": {
		"sections": `{"type": "array", "default": ["inventory", "enrollment", "health", "burn_in"], "items": {"type": "string", "pattern": "^(inventory|enrollment|health|burn_in)$"}}`,
	},
	"node_swap": {"replacement_host_name": `{"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,252}[A-Za-z0-9])?$", "description": "The spare that takes the failed tray's place; the job holds it."}`},
}
