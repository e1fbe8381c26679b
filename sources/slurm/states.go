package slurm

import (
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// suffixes are the characters that sinfo and scontrol put after a state.
var suffixes = map[byte]facts.SlurmStates{
	'*': facts.SlurmNotResponding,
	'~': facts.SlurmPoweredDown,
	'#': facts.SlurmPoweringUp,
	'%': facts.SlurmPoweringDown,
	'!': facts.SlurmPowerDown,
	'$': facts.SlurmMaintenance,
	'@': facts.SlurmRebootRequested,
	'^': facts.SlurmRebootIssued,
	'-': facts.SlurmPlanned,
}

// words are spellings for people; the tokens themselves are in package facts.
var words = map[string]facts.SlurmStates{
	"ALLOC":      facts.SlurmAllocated,
	"BLOCK":      facts.SlurmBlocked,
	"BOOT":       facts.SlurmRebootIssued,
	"COMP":       facts.SlurmCompleting,
	"DRAINED":    facts.SlurmIdle | facts.SlurmDrain,
	"DRAINING":   facts.SlurmAllocated | facts.SlurmDrain,
	"DRNG":       facts.SlurmAllocated | facts.SlurmDrain,
	"FAILING":    facts.SlurmAllocated | facts.SlurmFail,
	"FAILG":      facts.SlurmAllocated | facts.SlurmFail,
	"FUTR":       facts.SlurmFuture,
	"INVAL":      facts.SlurmInvalidReg,
	"MAINT":      facts.SlurmMaintenance,
	"MIX":        facts.SlurmMixed,
	"NO_RESPOND": facts.SlurmNotResponding,
	"PLND":       facts.SlurmPlanned,
	"POW_DN":     facts.SlurmPoweringDown,
	"POW_UP":     facts.SlurmPoweringUp,
	"REBOOT":     facts.SlurmRebootIssued,
	"RESV":       facts.SlurmReserved,
	"UNK":        facts.SlurmUnknown,
}

const bases = facts.SlurmInvalid | facts.SlurmUnknown | facts.SlurmDown | facts.SlurmIdle | facts.SlurmAllocated |
	facts.SlurmError | facts.SlurmMixed | facts.SlurmFuture | facts.SlurmExternal

const (
	maxUnknownTokens = 16
	maxTokenBytes    = 64
)

// normalise makes one set of tokens of a node's state in any spelling and any
// order: words, compounds such as IDLE+DRAIN, suffix characters. What it does
// not know is listed, upper case, once each, bounded.
func normalise(spellings []string) (states facts.SlurmStates, unknown []string) {
	strange := func(token string) {
		token = sources.CleanText(token, maxTokenBytes)
		for _, known := range unknown {
			if known == token {
				return
			}
		}
		if token != "" && len(unknown) < maxUnknownTokens {
			unknown = append(unknown, token)
		}
	}
	for _, spelling := range spellings {
		spelling = strings.ToUpper(strings.TrimSpace(sources.CleanText(spelling, maxText)))
		if strings.HasSuffix(spelling, "+") { // ALLOCATED+: jobs are completing as well
			states |= facts.SlurmCompleting
		}
		for _, word := range strings.Split(spelling, "+") {
			word = strings.TrimSpace(word)
			bare := bareWord(word)
			for _, mark := range word[len(bare):] {
				flag, ok := facts.SlurmStates(0), false
				if mark < 128 {
					flag, ok = suffixes[byte(mark)]
				}
				if !ok {
					strange("suffix " + string(mark))
				}
				states |= flag
			}
			if bare == "" {
				continue
			}
			if token, ok := facts.SlurmToken(bare); ok {
				states |= token
			} else if set, ok := words[bare]; ok {
				states |= set
			} else {
				strange(bare)
			}
		}
	}
	if states&bases == 0 && states.Has(facts.SlurmPlanned) && len(unknown) == 0 {
		states |= facts.SlurmIdle // PLANNED is shown in place of IDLE
	}
	return states, unknown
}

// bareWord gives an upper-case word without the characters after it.
func bareWord(word string) string {
	return strings.TrimRightFunc(word, func(r rune) bool {
		return r != '_' && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
}
