package engine

import (
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/musterhq/muster/facts"
)

func TestLoadTellsMistakesWithTheirPlace(t *testing.T) {
	t.Parallel()
	const (
		conditions  = "policies/conditions/conditions.cue"
		status      = "policies/status/status.cue"
		eligibility = "policies/eligibility/eligibility.cue"
	)
	tests := map[string]struct {
		file, from, to string
		want           []string // in the first finding
	}{
		"a fact that does not exist": {
			status, `bmc: chassis_health: "OK"`, `bmc: chasis_health: "OK"`,
			[]string{status + ":21:", "chasis_health", "no such field"},
		},
		"a condition type that does not exist": {
			status, `conditions: Failed: "True"`, `conditions: Faild: "True"`,
			[]string{status + ":11:", "Faild", "no such field"},
		},
		"a value that is none of the set": {
			status, `conditions: Maintenance: "True"`, `conditions: Maintenance: "Yes"`,
			[]string{status + ":12:", `"Yes" is not one of "False", "True", "Unknown"`},
		},
		"a file that does not parse": {
			status, `otherwise: "free"`, `otherwise: "free`,
			[]string{status + ":28:", "string literal not terminated"},
		},
		"otherwise left out": {
			status, `	otherwise: "free"`, ``,
			[]string{"freeze.otherwise", "is missing"},
		},
		"a choice between structs": {
			status, `#when: conditions: Failed: "True"`, `#when: {conditions: Failed: "True"} | {conditions: Maintenance: "True"}`,
			[]string{status + ":11:", "write any: [{…}, {…}]"},
		},
		"a bad regular expression": {
			"policies/inventory/inventory.cue", `=~"^gpu"`, `=~"^(gpu"`,
			[]string{"policies/inventory/inventory.cue:8:"},
		},
		"a call over a text": {
			conditions, `fault: !=null`, `fault: strings.MinRunes(3)`,
			[]string{conditions + ":"},
		},
		"a text that quotes no fact": {
			conditions, `message: "{ironic.fault}: {ironic.last_error}"`, `message: "{ironic.falt}"`,
			[]string{conditions + ":36:", "ironic.falt", "no fact"},
		},
		"a status that does not exist": {
			status, `then: "failed"`, `then: "faild"`,
			[]string{status + ":11:", `"faild"`},
		},
		"a duration that is none": {
			"policies/limits/limits.cue", `"15m"`, `"15 minutes"`,
			[]string{"policies/limits/limits.cue:9:", "15 minutes", "duration"},
		},
		"a writer that does not exist": {
			conditions, `writer:  "openstack"`, `writer:  "openstak"`,
			[]string{conditions, "openstak"},
		},
		"an inventory that reads another source": {
			"policies/inventory/inventory.cue", `{netbox?: schema.#Netbox}, #gives: null | string}
	device_class: {
		rungs: [{name: "gpu", #when: netbox: role: =~"^gpu", then: "gpu_compute"}]`, `{netbox?: schema.#Netbox, ironic?: schema.#Ironic}, #gives: null | string}
	device_class: {
		rungs: [{name: "gpu", #when: ironic: maintenance: true, then: "gpu_compute"}]`,
			[]string{"policies/inventory/inventory.cue:8:", "netbox and site only"},
		},
		"two facts compared": {
			eligibility, `{provision_state: "active", maintenance: true}`, `{provision_state: "active", fault: last_error, last_error: string}`,
			[]string{eligibility + ":29:", "compare two facts"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tree := edited(t, test.file, test.from, test.to)
			if test.to == `fault: strings.MinRunes(3)` {
				files := tree.(fstest.MapFS)
				files[conditions].Data = []byte(strings.Replace(string(files[conditions].Data), `import "mini.example/bundle/schema"`, "import (\n\t\"strings\"\n\t\"mini.example/bundle/schema\"\n)", 1))
			}
			b, findings, err := Load(tree, Options{})
			var vet *VetError
			if !errors.As(err, &vet) || b != nil {
				t.Fatalf("loaded; error %v", err)
			}
			for _, want := range test.want {
				if !strings.Contains(vet.Findings[0].String(), want) {
					t.Errorf("the first finding lacks %q:\n%v", want, err)
				}
			}
			if len(findings) > 4 {
				t.Errorf("one mistake makes %d findings:\n%v", len(findings), err)
			}
		})
	}
}

func TestErrorsOfTestsAreToldOnlyOfSoundPolicies(t *testing.T) {
	t.Parallel()
	const tests = "policies/eligibility/release_tests.cue"
	tree := edited(t, tests, `refused: []`, `refused: 1 & 2`).(fstest.MapFS)
	if _, _, err := Load(tree, Options{}); err != nil {
		t.Errorf("production reads the tests: %v", err)
	}
	_, _, err := Load(tree, Options{Tests: true})
	if err == nil || !strings.Contains(err.Error(), tests) {
		t.Errorf("the test's own error is not told: %v", err)
	}
	const status = "policies/status/status.cue"
	tree[status].Data = []byte(strings.Replace(string(tree[status].Data), `Failed: "True"`, `Failed: "Yes"`, 1))
	_, _, err = Load(tree, Options{Tests: true})
	if err == nil || strings.Contains(err.Error(), tests) || !strings.Contains(err.Error(), status) {
		t.Errorf("want the policy's error alone, got: %v", err)
	}
}

func TestMissingFamiliesAreNamed(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"policies/limits/limits.cue", "policies/inventory/inventory.cue", "policies/eligibility/eligibility.cue", "policies/status/status.cue"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			tree := miniFiles(t)
			delete(tree, file)
			delete(tree, "policies/eligibility/release_tests.cue")
			dir := strings.TrimSuffix(file, file[strings.LastIndex(file, "/"):])
			if _, _, err := Load(tree, Options{}); err == nil || !strings.Contains(err.Error(), dir+" is missing") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestOversizedTreesAreRefused(t *testing.T) {
	t.Parallel()
	deep := "policies/" + strings.Repeat("a/", 40) + "x.cue"
	for name, tree := range map[string]fstest.MapFS{
		"a huge file":  {"cue.mod/module.cue": {}, "schema/x.cue": {Data: make([]byte, maxFileBytes+1)}, "policies/x.cue": {}},
		"deep folders": {"cue.mod/module.cue": {}, "schema/x.cue": {}, deep: {Data: []byte("package a")}},
		"no policies":  {"cue.mod/module.cue": {}, "schema/x.cue": {}},
	} {
		if _, _, err := Load(tree, Options{}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestVersionHashesWhatDecides(t *testing.T) {
	t.Parallel()
	version := func(tree fs.FS) string {
		b, _, err := Load(tree, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b.Version()
	}
	base := version(miniFiles(t))
	if !strings.HasPrefix(base, "sha256:") || len(base) != len("sha256:")+64 {
		t.Errorf("version %q", base)
	}
	if got := version(miniFiles(t)); got != base {
		t.Errorf("the same bytes gave %s and %s", base, got)
	}
	if got := version(edited(t, "policies/eligibility/release_tests.cue", `"nothing else does"`, `"nothing goes"`)); got != base {
		t.Error("a test changed the version")
	}
	if got := version(edited(t, "schema/schema.cue", "failed:", "// a comment\nfailed:")); got != base {
		t.Error("the schema changed the version")
	}
	if got := version(edited(t, "policies/limits/limits.cue", "10", "11")); got == base {
		t.Error("a changed policy kept the version")
	}
}

func TestTheSchemaHasAHashOfItsOwn(t *testing.T) {
	t.Parallel()
	schema := func(tree fs.FS) string {
		b, _, err := Load(tree, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return b.Schema()
	}
	base := schema(miniFiles(t))
	if got := schema(edited(t, "schema/schema.cue", "failed:", "// a comment\nfailed:")); got == base {
		t.Error("another schema has the same hash")
	}
	if got := schema(edited(t, "policies/limits/limits.cue", "10", "11")); got != base {
		t.Error("a policy changed the schema's hash")
	}
}

func TestBitsAreKeptAndNeverReused(t *testing.T) {
	t.Parallel()
	b, _, err := Load(miniFiles(t), Options{Bits: map[string]uint8{"Maintenance": 5, "Retired": 0, "AlsoRetired": 1}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint8{"Maintenance": 5, "Custody": 2, "Failed": 3} {
		if got, _ := b.Type(name); got == nil || got.Bit != want {
			t.Errorf("%s has %+v, want bit %d", name, got, want)
		}
	}
	if _, _, err := Load(miniFiles(t), Options{Bits: map[string]uint8{"Maintenance": 5, "Failed": 5}}); err == nil {
		t.Error("a bit given twice was accepted")
	}
	full := map[string]uint8{}
	for i := range uint8(64) {
		full[strings.Repeat("x", int(i)+1)] = i
	}
	if _, _, err := Load(miniFiles(t), Options{Bits: full}); err == nil || !strings.Contains(err.Error(), "at most 64 types") {
		t.Errorf("a 65th type: %v", err)
	}
}

func TestCatalogueAndLimitsAreDecoded(t *testing.T) {
	t.Parallel()
	b := miniBundle(t)
	maintenance, _ := b.Type("Maintenance")
	if !maintenance.Observed || maintenance.HoldLimit != 24*time.Hour || !maintenance.AbsentUnknown || len(maintenance.Sources) != 1 || maintenance.Sources[0] != "ironic" {
		t.Errorf("Maintenance: %+v", maintenance)
	}
	custody, _ := b.Type("Custody")
	if custody.Observed || !custody.Durable || custody.AbsentUnknown || b.AbsentMasks()>>custody.Bit&1 == 1 {
		t.Errorf("Custody: %+v", custody)
	}
	openstack := b.Writers()[b.WriterIndex("openstack")]
	if openstack.Types != openstack.Emits || openstack.Types>>maintenance.Bit&1 == 0 || openstack.Types>>custody.Bit&1 == 1 {
		t.Errorf("openstack: %+v", openstack)
	}
	limits := b.Limits()
	if limits.Sources["ironic"].TTL != 90*time.Second || limits.Sources["bmc"].TTL != 20*time.Minute || limits.HealthHold != 15*time.Minute || limits.OverdueAfter[facts.ProvisionStateCleaning] != time.Hour {
		t.Errorf("limits: %+v", limits)
	}
	ready := b.operational.Rungs[2]
	if ready.Tolerates != 1<<custody.Bit || ready.Why["Custody"] != "not asked" {
		t.Errorf("ready tolerates %b, %v", ready.Tolerates, ready.Why)
	}
}

// A load keeps nothing of CUE behind: after many loads the heap is where it was.
func TestLoadingLeaksNothing(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	load := func(times int) {
		for range times {
			if _, _, err := Load(miniFiles(t), Options{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	load(5)
	before := heap()
	load(50)
	if after := heap(); after > before+4<<20 {
		t.Errorf("50 loads kept %d KiB", (after-before)>>10)
	}
}
