package facts_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

// families makes an empty value of each family that a source fills.
var families = map[string]func() facts.Canonical{
	"ironic":    func() facts.Canonical { return &facts.Ironic{} },
	"placement": func() facts.Canonical { return &facts.Placement{} },
	"slurm":     func() facts.Canonical { return &facts.Slurm{} },
	"netbox":    func() facts.Canonical { return &facts.Netbox{} },
	"bmc":       func() facts.Canonical { return &facts.BMC{} },
}

// anyJSON draws what a recorded object may hold, of few values: many are equal.
func anyJSON(t *rapid.T, depth int) any {
	switch n := rapid.IntRange(0, 7).Draw(t, "kind"); {
	case n == 0:
		return nil
	case n == 1:
		return rapid.Bool().Draw(t, "bool")
	case n <= 3:
		return float64(rapid.IntRange(-2, 2).Draw(t, "number"))
	case n == 4 && depth > 0:
		list := []any{}
		for range rapid.IntRange(0, 2).Draw(t, "length") {
			list = append(list, anyJSON(t, depth-1))
		}
		return list
	case n == 5 && depth > 0:
		return anyObject(t, depth-1)
	}
	return text(t)
}

func anyObject(t *rapid.T, depth int) map[string]any {
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "size") {
		object[text(t)] = anyJSON(t, depth)
	}
	return object
}

func text(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "b", "ab", "\x01", "\x01a", "true", "0"}).Draw(t, "text")
}

// fill draws every fact of a family. One that null leaves out stays null.
func fill(t *rapid.T, family facts.Canonical) {
	v := reflect.ValueOf(family).Elem()
	for i := range v.NumField() {
		field := v.Field(i)
		if rapid.IntRange(0, 2).Draw(t, "null") == 0 {
			continue
		}
		switch into := field.Addr().Interface().(type) {
		case *bool:
			*into = rapid.Bool().Draw(t, "bool")
		case *string:
			*into = text(t)
		case *facts.Text:
			*into = facts.TextOf(text(t))
		case *time.Time:
			*into = time.Unix(int64(rapid.IntRange(0, 2).Draw(t, "seconds")), int64(rapid.IntRange(0, 1).Draw(t, "nanoseconds"))).UTC()
		case *[]string:
			*into = rapid.SliceOfN(rapid.Custom(text), 0, 2).Draw(t, "texts")
			if *into == nil {
				*into = []string{}
			}
		case *map[string]string:
			*into = rapid.MapOfN(rapid.Custom(text), rapid.Custom(text), 0, 3).Draw(t, "texts")
		case *map[string]any:
			*into = anyObject(t, 2)
		case *facts.SlurmStates:
			*into = facts.SlurmStates(rapid.IntRange(0, 7).Draw(t, "tokens"))
		default: // a Bool or an enum; each has two values at least
			field.SetUint(uint64(rapid.IntRange(0, 2).Draw(t, "code")))
		}
	}
}

// bare takes the derived facts out, which are nobody's word.
func bare(family facts.Canonical) {
	switch f := family.(type) {
	case *facts.Ironic:
		f.LesseeRole, f.CustomerTrait, f.Settled, f.Overdue = 0, 0, 0, 0
	case *facts.Slurm:
		f.Drained = 0
	}
}

// change alters one fact, or none where it draws what is there.
func change(t *rapid.T, empty func() facts.Canonical, family facts.Canonical) facts.Canonical {
	other, drawn := empty(), empty()
	to, from := reflect.ValueOf(other).Elem(), reflect.ValueOf(drawn).Elem()
	to.Set(reflect.ValueOf(family).Elem())
	fill(t, drawn)
	i := rapid.IntRange(0, to.NumField()-1).Draw(t, "field")
	to.Field(i).Set(from.Field(i))
	return other
}

func TestOneFormExactlyOfWhatSaysTheSame(t *testing.T) {
	t.Parallel()
	for name, empty := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			same, different := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				one := empty()
				fill(t, one)
				other := change(t, empty, one)
				a, b := one.AppendCanonical(nil), other.AppendCanonical(nil)
				bare(one)
				bare(other)
				equal := reflect.DeepEqual(one, other)
				if equal != bytes.Equal(a, b) {
					t.Fatalf("equal: %v, forms equal: %v\n%+v\n%+v", equal, !equal, one, other)
				}
				if equal {
					same++
				} else {
					different++
				}
			})
			if same == 0 || different == 0 {
				t.Fatalf("%d pairs were the same, %d were not", same, different)
			}
		})
	}
}

func TestTheFormIsThatOfTheStoredBody(t *testing.T) {
	t.Parallel()
	for name, empty := range families {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				one, read := empty(), empty()
				fill(t, one)
				body, err := json.Marshal(one)
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(body, read); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(one.AppendCanonical(nil), read.AppendCanonical(nil)) {
					t.Fatalf("%+v\n%s\n%+v", one, body, read)
				}
			})
		})
	}
}

func TestNumbersHaveTheFormOfWhatIsReadBack(t *testing.T) {
	t.Parallel()
	form := func(v any) []byte {
		return (&facts.Ironic{Properties: map[string]any{"x": v}}).AppendCanonical(nil)
	}
	for name, pair := range map[string][2]any{
		"int":          {1048576, 1048576.0},
		"int64":        {int64(7), 7.0},
		"json.Number":  {json.Number("2.5"), 2.5},
		"typed list":   {[]int{1, 2}, []any{1.0, 2.0}},
		"typed object": {map[string]string{"a": "b"}, map[string]any{"a": "b"}},
		"no list":      {[]any(nil), nil},
		"no object":    {map[string]any(nil), nil},
	} {
		if !bytes.Equal(form(pair[0]), form(pair[1])) {
			t.Errorf("%s: the form of %v is not that of %v", name, pair[0], pair[1])
		}
	}
}

func TestAZoneSaysNothing(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	one := (&facts.Ironic{ProvisionUpdatedAt: at}).AppendCanonical(nil)
	other := (&facts.Ironic{ProvisionUpdatedAt: at.In(time.FixedZone("x", 3600))}).AppendCanonical(nil)
	if !bytes.Equal(one, other) {
		t.Error("one instant has two forms")
	}
}

func TestAFormCostsNoAllocation(t *testing.T) {
	node := &facts.Ironic{
		Name: facts.TextOf("gpu-1"), ProvisionState: facts.ProvisionStateActive, Lessee: facts.TextOf("p"), Traits: []string{"CUSTOM_A", "CUSTOM_B"},
		Properties: map[string]any{"cpus": 64.0, "capabilities": "boot_mode:uefi", "memory_mb": 1048576.0}, ProvisionUpdatedAt: time.Unix(1e9, 0),
	}
	form := make([]byte, 0, 4096)
	if got := testing.AllocsPerRun(100, func() { facts.Hash(node.AppendCanonical(form[:0])) }); got > 1 {
		t.Errorf("%v allocations", got)
	}
}
