package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// told gives the outcome by the records' refs, whatever the order.
func told(in JoinInput) map[string]string {
	out := Join(in)
	by := map[string]string{}
	for _, j := range out.Joined {
		by[in.Records[j.Record].Ref] += fmt.Sprintf("device %d", j.Device)
	}
	for _, r := range out.Births {
		by[in.Records[r].Ref] += "birth"
	}
	for _, u := range slices.Concat(out.Ambiguous, out.Unmatched) {
		by[in.Records[u.Record].Ref] += strings.TrimSpace(fmt.Sprint(u.Why, " ", strings.Trim(fmt.Sprint(u.Devices), "[]")))
	}
	return by
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		in      JoinInput
		want    map[string]string
		comment string
	}{
		{"by the name whatever its case", JoinInput{
			Records: []Listed{{Ref: "u1", Name: " Node-1"}}, Devices: []Joinable{{Device: 1, Name: "node-1"}},
		}, map[string]string{"u1": "device 1"}, ""},
		{"by the short name where it is unique", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n1"}, {Ref: "b", Name: "n2.site"}},
			Devices: []Joinable{{Device: 1, Name: "n1.rack.site"}, {Device: 2, Name: "n2"}},
		}, map[string]string{"a": "device 1", "b": "device 2"}, ""},
		{"not by a short name that two devices share", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n1"}}, Devices: []Joinable{{Device: 1, Name: "n1.east"}, {Device: 2, Name: "n1.west"}},
		}, map[string]string{"a": "SeveralDevices 1 2"}, ""},
		{"not by the short names of two domains", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n1.east"}}, Devices: []Joinable{{Device: 1, Name: "n1.west"}},
		}, map[string]string{"a": "NoMatch"}, ""},
		{"an address has no short name", JoinInput{
			Records: []Listed{{Ref: "a", Name: "10.0.0.1"}}, Devices: []Joinable{{Device: 1, Name: "10"}},
		}, map[string]string{"a": "NoMatch"}, ""},
		{"the full name goes before the short one", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n1"}, {Ref: "b", Name: "n1.site"}}, Devices: []Joinable{{Device: 1, Name: "n1"}},
		}, map[string]string{"a": "device 1", "b": "SeveralRecords 1"}, ""},
		{"by the serial when the name is nobody's", JoinInput{
			Records: []Listed{{Ref: "u4", Name: "spare", Serial: " s4 "}}, Devices: []Joinable{{Device: 4, Name: "d", Serial: "S4"}},
		}, map[string]string{"u4": "device 4"}, ""},
		{"a record of a node by the node alone, whatever it is called", JoinInput{
			Records: []Listed{{Ref: "u1", Node: "u1", Name: "d2"}, {Ref: "u9", Node: "u9", Name: "d3"}},
			Devices: []Joinable{{Device: 1, Name: "d1", Node: "u1"}, {Device: 2, Name: "d2", Node: "u2"}, {Device: 3, Name: "d3"}},
		}, map[string]string{"u1": "device 1", "u9": "NoMatch"}, ""},
		{"a record of a node before that of the device's old one", JoinInput{
			Records: []Listed{{Ref: "u2", Node: "u2"}}, Listed: map[string]bool{"u1": true, "u2": true},
			Devices: []Joinable{{Device: 1, Name: "d1", Node: "u2", Ref: "u1"}},
		}, map[string]string{"u2": "device 1"}, ""},
		{"placeholders never join", JoinInput{
			Records: []Listed{{Ref: "u1"}, {Ref: "u3"}}, Devices: []Joinable{{Device: 1, Name: "a"}, {Device: 2, Name: "b"}},
		}, map[string]string{"u1": "NoMatch", "u3": "NoMatch"}, "NBX-014"},
		{"the serial decides among devices of one name", JoinInput{
			Records: []Listed{{Ref: "u", Name: "n", Serial: "S2"}},
			Devices: []Joinable{{Device: 1, Name: "n", Serial: "S1"}, {Device: 2, Name: "n", Serial: "S2"}},
		}, map[string]string{"u": "device 2"}, ""},
		{"a name match with two real serials joins nobody and gives no birth", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "u", Name: "n", Serial: "S2"}}, Devices: []Joinable{{Device: 1, Name: "n", Serial: "S1"}},
		}, map[string]string{"u": "SerialsDiffer 1"}, ""},
		{"a name against a serial joins nobody", JoinInput{
			Records: []Listed{{Ref: "u", Name: "n", Serial: "S2"}},
			Devices: []Joinable{{Device: 1, Name: "n"}, {Device: 2, Name: "m", Serial: "S2"}},
		}, map[string]string{"u": "NameAgainst 1 2"}, ""},
		{"not to a device with a live record", JoinInput{
			Records: []Listed{{Ref: "new", Name: "n"}}, Devices: []Joinable{{Device: 1, Name: "n", Ref: "old"}}, Listed: map[string]bool{"old": true, "new": true},
		}, map[string]string{"new": "RefHeld 1"}, ""},
		{"not to a device whose record is missing but not concluded gone", JoinInput{
			Records: []Listed{{Ref: "new", Name: "n"}}, Devices: []Joinable{{Device: 1, Name: "n", Ref: "old"}}, Listed: map[string]bool{"new": true},
		}, map[string]string{"new": "RefHeld 1"}, ""},
		{"the uuid changes under the same name once the old one is gone", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "new", Name: "n1"}}, Devices: []Joinable{{Device: 1, Name: "n1", Ref: "old", RefGone: true}}, Listed: map[string]bool{"new": true},
		}, map[string]string{"new": "device 1"}, "IRN-030"},
		{"the uuid changes and this listing's end concluded the old one gone", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "new", Name: "n1"}}, Devices: []Joinable{{Device: 1, Name: "n1", Ref: "old"}}, Listed: map[string]bool{"new": true},
			Gone: map[int64]bool{1: true},
		}, map[string]string{"new": "device 1"}, "IRN-030"},
		{"a rack imported again takes its devices over by their serials", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "11", Name: "a", Serial: "SA"}, {Ref: "12", Name: "renamed", Serial: "SB"}},
			Devices:   []Joinable{{Device: 1, Name: "a", Serial: "SA", Ref: "1"}, {Device: 2, Name: "b", Serial: "SB", Ref: "2"}},
			Listed:    map[string]bool{"11": true, "12": true},
		}, map[string]string{"11": "device 1", "12": "device 2"}, ""},
		{"no take-over while the old record is listed", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "11", Name: "a2", Serial: "SA"}}, Devices: []Joinable{{Device: 1, Name: "a", Serial: "SA", Ref: "1"}},
			Listed: map[string]bool{"1": true, "11": true},
		}, map[string]string{"11": "RefHeld 1"}, ""},
		{"two records with one serial join nobody and give no birth", JoinInput{
			Inventory: true,
			Records:   []Listed{{Ref: "a", Name: "x", Serial: "S"}, {Ref: "b", Name: "y", Serial: "s"}},
		}, map[string]string{"a": "SeveralRecords", "b": "SeveralRecords"}, ""},
		{"two records with one name give no birth", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "N"}, {Ref: "b", Name: "n"}},
		}, map[string]string{"a": "SeveralRecords", "b": "SeveralRecords"}, ""},
		{"names are unique within a tenant only", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "n", Tenant: "t1"}, {Ref: "b", Name: "n", Tenant: "t2"}},
			Devices: []Joinable{{Device: 1, Name: "n", Tenant: "t2", Ref: "old", RefGone: true}},
		}, map[string]string{"a": "birth", "b": "device 1"}, ""},
		{"whose tenant is not known yet may be anybody's", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "n", Tenant: "t1"}}, Devices: []Joinable{{Device: 1, Name: "n"}},
		}, map[string]string{"a": "device 1"}, ""},
		{"of two tenants' records neither is the device of an unknown tenant", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "n", Tenant: "t1"}, {Ref: "b", Name: "n", Tenant: "t2"}}, Devices: []Joinable{{Device: 1, Name: "n"}},
		}, map[string]string{"a": "SeveralRecords 1", "b": "SeveralRecords 1"}, ""},
		{"only the inventory gives birth", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n"}},
		}, map[string]string{"a": "NoMatch"}, ""},
		{"the inventory gives birth", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "n", Serial: "S"}, {Ref: "b"}}, Devices: []Joinable{{Device: 1, Name: "m", Serial: "T"}},
		}, map[string]string{"a": "birth", "b": "birth"}, ""},
		{"a known serial gives no birth", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "b", Name: "n", Serial: "S"}},
			Devices: []Joinable{{Device: 1, Name: "m", Serial: "S", Ref: "a"}}, Listed: map[string]bool{"a": true, "b": true},
		}, map[string]string{"b": "RefHeld 1"}, ""},
		{"the name of a retired device is free", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "b", Name: "n", Serial: "NEW"}}, Devices: []Joinable{{Device: 1, Name: "n", Serial: "OLD", Ref: "a", RefGone: true, Retired: true}},
		}, map[string]string{"b": "birth"}, ""},
		{"a retired device comes back by its serial", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "b", Name: "n", Serial: "S"}}, Devices: []Joinable{{Device: 1, Name: "n", Serial: "S", Ref: "a", RefGone: true, Retired: true}},
		}, map[string]string{"b": "device 1"}, ""},
		{"a retired device comes back by its ref", JoinInput{
			Inventory: true, Records: []Listed{{Ref: "a", Name: "renamed"}}, Devices: []Joinable{{Device: 1, Name: "n", Ref: "a", RefGone: true, Retired: true}},
		}, map[string]string{"a": "device 1"}, ""},
		{"another source brings no retired device back", JoinInput{
			Records: []Listed{{Ref: "a", Name: "n", Serial: "S"}}, Devices: []Joinable{{Device: 1, Name: "n", Serial: "S", Ref: "a", RefGone: true, Retired: true}},
		}, map[string]string{"a": "NoMatch"}, ""},
		{"a node comes back under the name that was concluded gone", JoinInput{
			Records: []Listed{{Ref: "n1", Name: "n1"}}, Devices: []Joinable{{Device: 1, Name: "host-1", Ref: "n1", RefGone: true}},
		}, map[string]string{"n1": "device 1"}, ""},
		{"a node joins the device of its name, not the one that lost the name", JoinInput{
			Names: true, Records: []Listed{{Ref: "n1", Name: "n1"}},
			Devices: []Joinable{{Device: 1, Name: "n5", Ref: "n1", RefGone: true}, {Device: 2, Name: "n1"}},
		}, map[string]string{"n1": "device 2"}, ""},
		{"a uuid stays its device's whatever others are called", JoinInput{
			Records: []Listed{{Ref: "u1", Name: "n1"}},
			Devices: []Joinable{{Device: 1, Name: "n5", Ref: "u1", RefGone: true}, {Device: 2, Name: "n1"}},
		}, map[string]string{"u1": "device 1"}, ""},
		{"an address is its device's by now, whoever had it", JoinInput{
			Names: true, Records: []Listed{{Ref: "2001:DB8::1", Address: "2001:DB8::1"}},
			Devices: []Joinable{{Device: 1, Address: "192.0.2.1", Ref: "2001:DB8::1", RefGone: true}, {Device: 2, Address: "2001:db8::1"}},
		}, map[string]string{"2001:DB8::1": "device 2"}, ""},
		{"an address that is nobody's joins nobody", JoinInput{
			Names: true, Records: []Listed{{Ref: "192.0.2.2", Name: "n", Address: "192.0.2.2"}},
			Devices: []Joinable{{Device: 1, Name: "n", Ref: "192.0.2.2", RefGone: true}},
		}, map[string]string{"192.0.2.2": "NoMatch"}, ""},
		{"a BMC joins by its address", JoinInput{
			Records: []Listed{{Ref: "192.0.2.1", Address: "192.0.2.1"}, {Ref: "192.0.2.2", Address: "192.0.2.2"}},
			Devices: []Joinable{{Device: 1, Address: "192.0.2.1"}, {Device: 2, Address: "192.0.2.2"}, {Device: 3, Address: "192.0.2.2"}},
		}, map[string]string{"192.0.2.1": "device 1", "192.0.2.2": "SeveralDevices 2 3"}, "PGS-012"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, told(c.in)); diff != "" {
				t.Errorf("outcome (-want +got):\n%s", diff)
			}
		})
	}
}

// small worlds make collisions of names, serials and refs likely.
func drawJoinInput(t *rapid.T) JoinInput {
	names := rapid.SampledFrom([]string{"", "a", "A", "b", "a.x", "a.y", "b.x", "c"})
	serials := rapid.SampledFrom([]string{"", "", "s1", "S1", "s2", "s3"})
	tenants := rapid.SampledFrom([]string{"", "", "t"})
	in := JoinInput{Inventory: rapid.Bool().Draw(t, "inventory"), Names: rapid.Bool().Draw(t, "names"), Listed: map[string]bool{}, Gone: map[int64]bool{}}
	live := map[string]bool{}
	for i := range rapid.IntRange(0, 5).Draw(t, "devices") {
		d := Joinable{Device: int64(i + 1), Name: names.Draw(t, "name"), Serial: serials.Draw(t, "serial"), Tenant: tenants.Draw(t, "tenant"), Retired: rapid.IntRange(0, 5).Draw(t, "retired") == 0}
		if rapid.Bool().Draw(t, "has a ref") {
			d.Ref, d.RefGone = fmt.Sprintf("old-%d", rapid.IntRange(0, 4).Draw(t, "ref")), rapid.Bool().Draw(t, "gone")
			if !d.RefGone && live[d.Ref] {
				d.Ref = fmt.Sprintf("own-%d", i)
			}
			live[d.Ref] = live[d.Ref] || !d.RefGone
			if !d.RefGone && rapid.Bool().Draw(t, "listed") {
				in.Listed[d.Ref] = true
			} else if !d.RefGone && rapid.Bool().Draw(t, "concluded gone") {
				in.Gone[d.Device] = true
			}
		}
		in.Devices = append(in.Devices, d)
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "records") {
		ref := fmt.Sprintf("new-%d", i)
		if old := fmt.Sprintf("old-%d", i); !live[old] && rapid.Bool().Draw(t, "comes back") {
			ref = old
		}
		in.Records = append(in.Records, Listed{Ref: ref, Name: names.Draw(t, "name"), Serial: serials.Draw(t, "serial"), Tenant: tenants.Draw(t, "tenant")})
		in.Listed[ref] = true
	}
	return in
}

func TestJoinDoesNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawJoinInput(t)
		other := in
		other.Records = rapid.Permutation(in.Records).Draw(t, "records in another order")
		other.Devices = rapid.Permutation(in.Devices).Draw(t, "devices in another order")
		if diff := cmp.Diff(told(in), told(other)); diff != "" {
			t.Fatalf("the order decides:\n%s", diff)
		}
	})
}

func TestJoinKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawJoinInput(t)
		out := Join(in)
		devices := map[int64]Joinable{}
		for _, d := range in.Devices {
			devices[d.Device] = d
		}
		outcomes, taken := map[int]int{}, map[int64]bool{}
		for _, j := range out.Joined {
			outcomes[j.Record]++
			checkJoined(t, in, in.Records[j.Record], devices[j.Device])
			if taken[j.Device] {
				t.Fatalf("device %d is joined twice", j.Device)
			}
			taken[j.Device] = true
		}
		for _, b := range out.Births {
			outcomes[b]++
			checkBirth(t, in, in.Records[b])
		}
		for _, u := range slices.Concat(out.Ambiguous, out.Unmatched) {
			outcomes[u.Record]++
		}
		for i := range in.Records {
			if outcomes[i] != 1 {
				t.Fatalf("record %d has %d outcomes", i, outcomes[i])
			}
		}
	})
}

func checkJoined(t *rapid.T, in JoinInput, r Listed, d Joinable) {
	sameSerial := SerialKey(r.Serial) != "" && SerialKey(r.Serial) == SerialKey(d.Serial)
	if d.Ref != "" && !d.RefGone && !in.Gone[d.Device] && (in.Listed[d.Ref] || !sameSerial) {
		t.Fatalf("%+v took the device %+v that has a live record", r, d)
	}
	if d.Retired && !in.Inventory {
		t.Fatalf("%+v brought the retired %+v back", r, d)
	}
	if !sameSerial && SerialKey(r.Serial) != "" && SerialKey(d.Serial) != "" && r.Ref != d.Ref {
		t.Fatalf("%+v joined %+v against their serials", r, d)
	}
	if short(r.Name) != short(d.Name) && !sameSerial && r.Ref != d.Ref {
		t.Fatalf("%+v and %+v have nothing in common", r, d)
	}
}

func checkBirth(t *rapid.T, in JoinInput, r Listed) {
	if !in.Inventory {
		t.Fatalf("%+v was born of a source that gives no birth", r)
	}
	for _, d := range in.Devices {
		sameName := NameKey(r.Name) != "" && NameKey(r.Name) == NameKey(d.Name) && r.Tenant == d.Tenant
		sameSerial := SerialKey(r.Serial) != "" && SerialKey(r.Serial) == SerialKey(d.Serial)
		if !d.Retired && (sameName || sameSerial) {
			t.Fatalf("%+v was born beside %+v", r, d)
		}
	}
}

func short(name string) string { first, _, _ := strings.Cut(NameKey(name), "."); return first }

// What a listing's end concludes gone only frees devices: no join that was
// found before is lost, so that joins and absence do not chase each other.
func TestConcludingGoneLosesNoJoin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawJoinInput(t)
		before := in
		before.Gone = nil
		after := told(in)
		for ref, outcome := range told(before) {
			if strings.HasPrefix(outcome, "device") && after[ref] != outcome {
				t.Fatalf("%s was %s and is %s", ref, outcome, after[ref])
			}
		}
		if !maps.Equal(after, told(in)) {
			t.Fatal("the same input gives two outcomes")
		}
	})
}
