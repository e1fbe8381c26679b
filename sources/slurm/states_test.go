package slurm

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/facts"
)

func TestEverySpellingOfAStateIsOneSet(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in      []string
		tokens  string
		unknown string
	}{
		"string and flags of v0.0.38":           {[]string{"idle", "DRAIN"}, "IDLE DRAIN", ""},
		"array of v0.0.40":                      {[]string{"IDLE", "DRAIN"}, "IDLE DRAIN", ""},
		"array in another order":                {[]string{"DRAIN", "IDLE"}, "IDLE DRAIN", ""},
		"five parts":                            {[]string{"IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED"}, "IDLE RESERVED MAINTENANCE PLANNED DYNAMIC_NORM", ""},
		"down and lost":                         {[]string{"DOWN+DYNAMIC_NORM+NOT_RESPONDING"}, "DOWN NOT_RESPONDING DYNAMIC_NORM", ""},
		"off in the cloud":                      {[]string{"IDLE+CLOUD+POWERED_DOWN"}, "IDLE CLOUD POWERED_DOWN", ""},
		"starting in the cloud":                 {[]string{"MIXED+CLOUD+NOT_RESPONDING+POWERING_UP"}, "MIXED CLOUD NOT_RESPONDING POWERING_UP", ""},
		"*":                                     {[]string{"idle*"}, "IDLE NOT_RESPONDING", ""},
		"* of down":                             {[]string{"down*"}, "DOWN NOT_RESPONDING", ""},
		"~":                                     {[]string{"idle~"}, "IDLE POWERED_DOWN", ""},
		"#":                                     {[]string{"mix#"}, "MIXED POWERING_UP", ""},
		"-":                                     {[]string{"mixed-"}, "MIXED PLANNED", ""},
		"* inside a compound":                   {[]string{"DOWN*+CLOUD"}, "DOWN CLOUD NOT_RESPONDING", ""},
		"%":                                     {[]string{"idle%"}, "IDLE POWERING_DOWN", ""},
		"@":                                     {[]string{"idle@"}, "IDLE REBOOT_REQUESTED", ""},
		"$":                                     {[]string{"idle$"}, "IDLE MAINTENANCE", ""},
		"!":                                     {[]string{"idle!"}, "IDLE POWER_DOWN", ""},
		"^":                                     {[]string{"idle^"}, "IDLE REBOOT_ISSUED", ""},
		"two suffixes":                          {[]string{"idle*-"}, "IDLE NOT_RESPONDING PLANNED", ""},
		"a suffix outside the table":            {[]string{"idle?"}, "IDLE", "suffix ?"},
		"a suffix that is no ASCII":             {[]string{"idle†"}, "IDLE", "suffix †"},
		"words for people":                      {[]string{"drained"}, "IDLE DRAIN", ""},
		"draining":                              {[]string{"draining*"}, "ALLOCATED DRAIN NOT_RESPONDING", ""},
		"maint":                                 {[]string{"maint"}, "MAINTENANCE", ""},
		"inval":                                 {[]string{"IDLE+INVAL"}, "IDLE INVALID_REG", ""},
		"allocated and completing":              {[]string{"ALLOCATED+"}, "ALLOCATED COMPLETING", ""},
		"planned alone":                         {[]string{"PLANNED"}, "IDLE PLANNED", ""},
		"planned beside what nobody knows":      {[]string{"PLANNED", "NEWBASE"}, "PLANNED", "NEWBASE"},
		"planned mixed":                         {[]string{"MIXED", "PLANNED"}, "MIXED PLANNED", ""},
		"a drain within a reservation":          {[]string{"IDLE", "RESERVED", "DRAIN"}, "IDLE RESERVED DRAIN", ""},
		"what nobody knows, twice":              {[]string{"IDLE", "SHINY", "shiny"}, "IDLE", "SHINY"},
		"what nobody knows beside what counts":  {[]string{"IDLE+SHINY+DRAIN"}, "IDLE DRAIN", "SHINY"},
		"a power-saving counter of old":         {[]string{"idle", "PERFCTRS"}, "IDLE", "PERFCTRS"},
		"an unnamed bit":                        {[]string{"idle", "?"}, "IDLE", "suffix ?"},
		"spaces":                                {[]string{" IDLE + DRAIN "}, "IDLE DRAIN", ""},
		"the tokens that v0.0.44 and 45 added":  {[]string{"EXTERNAL", "BLOCKED", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE"}, "EXTERNAL BLOCKED POWER_DOWN_ASAP POWER_DOWN_FORCE", ""},
		"NUL and broken text in a strange word": {[]string{"IDLE", "A\x00\xffB"}, "IDLE", "AB"},
	} {
		states, unknown := normalise(c.in)
		if got := strings.Join(states.Tokens(), " "); got != c.tokens || strings.Join(unknown, ",") != c.unknown {
			t.Errorf("%s: %v give %q and unknown %q, want %q and %q", name, c.in, got, unknown, c.tokens, c.unknown)
		}
	}
}

func TestEveryTokenIsReadInEveryForm(t *testing.T) {
	t.Parallel()
	for i := range 34 {
		token := facts.SlurmStates(1 << i).Tokens()[0]
		for _, form := range []string{token, strings.ToLower(token), " " + token + " ", "IDLE+" + token} {
			states, unknown := normalise([]string{form})
			if !states.Has(1<<i) || len(unknown) > 0 {
				t.Errorf("%q gives %v, unknown %q", form, states.Tokens(), unknown)
			}
		}
	}
}

// Order, case and grouping carry no meaning, and nothing that is unknown is
// lost or believed.
func TestNormaliseIsASetOfItsParts(t *testing.T) {
	t.Parallel()
	var pool []string
	for i := range 34 {
		pool = append(pool, facts.SlurmStates(1 << i).Tokens()[0])
	}
	pool = append(pool, "SHINY", "idle*", "mix#", "down-")
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfN(rapid.SampledFrom(pool), 1, 8).Draw(t, "in")
		states, unknown := normalise(in)
		shuffled := rapid.Permutation(in).Draw(t, "order")
		if again, _ := normalise(shuffled); again != states {
			t.Fatalf("%v and %v differ", in, shuffled)
		}
		if joined, _ := normalise([]string{strings.Join(shuffled, "+")}); joined != states {
			t.Fatalf("%v joined differs", shuffled)
		}
		if strange := strings.Contains(strings.Join(in, " "), "SHINY"); strange != (len(unknown) > 0) {
			t.Fatalf("%v: unknown %v", in, unknown)
		}
	})
}

func TestUnknownTokensAreBounded(t *testing.T) {
	t.Parallel()
	var in []string
	for i := range 100 {
		in = append(in, fmt.Sprintf("X%d%s", i, strings.Repeat("Y", 500)))
	}
	_, unknown := normalise(in)
	if len(unknown) != maxUnknownTokens || len(unknown[0]) != maxTokenBytes {
		t.Errorf("%d tokens of %d bytes", len(unknown), len(unknown[0]))
	}
}
