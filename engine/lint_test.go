package engine

import (
	"math/bits"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

func TestShippedBundleHasNothingToWarnOf(t *testing.T) {
	t.Parallel()
	_, findings, err := Load(os.DirFS(".."), Options{Tests: true, Schema: os.DirFS("..")})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Severity != Note {
			t.Error(f)
		}
	}
}

// The linter takes a ladder apart into the inputs that each rung decides. Every
// input must lie in the region of the rung that decides it and in no other.
func TestRegionsAreWhatTheRungsDecide(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	s := newSpace(b)
	for _, l := range b.Ladders() {
		regions := s.regions(l)
		if regions == nil {
			t.Errorf("%s: too wide to be taken apart", l.Name)
			continue
		}
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := anyInput(t, s)
				decides := l.first(in)
				for i, region := range regions {
					if region.matches(in) != (i == decides) {
						t.Fatalf("rung %s decides; region of %s holds it: %v", l.RungName(decides), l.RungName(i), region.matches(in))
					}
				}
			})
		})
	}
}

// anyInput draws codes within the domains, texts that policies name, and masks.
// A ladder may read SLURM's tokens from the facts themselves.
func anyInput(t *rapid.T, s *space) *input {
	var c facts.Codes
	for at, all := range s.all {
		var codes []uint8
		for rest := all; rest != 0; rest &= rest - 1 {
			codes = append(codes, uint8(bits.TrailingZeros64(rest)))
		}
		c[at] = rapid.SampledFrom(codes).Draw(t, s.fields[at].Path)
	}
	text := func(what string, values ...string) facts.Text {
		if value := rapid.SampledFrom(append(values, "null")).Draw(t, what); value != "null" {
			return facts.TextOf(value)
		}
		return facts.Text{}
	}
	var f facts.Facts
	f.Ironic.Fault = text("fault", "", "clean failure")
	f.Ironic.ResourceClass = text("resource class", "", "cpu", "cpu-hypervisor", "nvswitch", "gb200")
	f.Device.BMCAddress = text("bmc address", "", "192.0.2.1")
	f.Netbox.Role = text("role", "", "compute", "tor", "pdu", "hypervisor", "elsewhere")
	f.Netbox.Status = text("status", "", "active", "rma", "failed", "elsewhere")
	for at, field := range s.fields {
		if token, ok := cutToken(field.Path); ok && c[at] == uint8(facts.True) {
			f.Slurm.States |= token
		}
	}
	yes := rapid.Uint64().Draw(t, "true")
	return &input{facts: &f, codes: &c, yes: yes, unknown: rapid.Uint64().Draw(t, "unknown") &^ yes}
}

func TestSchemaOfAnotherBinaryIsRefused(t *testing.T) {
	t.Parallel()
	own := fstest.MapFS{"schema/a.cue": {Data: []byte("package schema\n\na: 1\n")}, "schema/b.cue": {Data: []byte("package schema\n")}}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"another text": {map[string]string{"schema/a.cue": "package schema\n\na: 2\n", "schema/b.cue": "package schema\n"}, "schema/a.cue:3:1: the schema is not the one of this binary"},
		"a file less":  {map[string]string{"schema/a.cue": "package schema\n\na: 1\n"}, "schema/b.cue:1:1: the schema lacks schema/b.cue"},
		"a file more":  {map[string]string{"schema/a.cue": "package schema\n\na: 1\n", "schema/b.cue": "package schema\n", "schema/c.cue": ""}, "schema/c.cue:1:1: this binary's schema has no schema/c.cue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			src := &source{files: map[string][]byte{}}
			for path, text := range tt.files {
				src.files[path] = []byte(text)
				src.paths = append(src.paths, path)
			}
			findings := lintSchema(src, own)
			if len(findings) != 1 || !strings.HasPrefix(findings[0].String(), tt.want) || !strings.Contains(findings[0].Message, "muster policy init --schema") {
				t.Errorf("got %v, want %s with the remedy", findings, tt.want)
			}
		})
	}
}
