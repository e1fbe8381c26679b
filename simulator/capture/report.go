package capture

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Report tells what a redaction left as it was.
type Report struct {
	Kept       map[string]map[string]map[string]int // kind → property → value → how often
	Pseudonyms int                                  // strings that were replaced
}

func newReport() *Report { return &Report{Kept: map[string]map[string]map[string]int{}} }

func (r *Report) keep(kind, property, value string) {
	of := r.Kept[kind]
	if of == nil {
		of = map[string]map[string]int{}
		r.Kept[kind] = of
	}
	if of[property] == nil {
		of[property] = map[string]int{}
	}
	of[property][value]++
}

// Write tells every value that was left, to be read before the file is passed
// on.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d strings have pseudonyms. Left as they are, besides numbers, booleans and property names:\n", r.Pseudonyms)
	for _, kind := range slices.Sorted(maps.Keys(r.Kept)) {
		for _, property := range slices.Sorted(maps.Keys(r.Kept[kind])) {
			values := slices.Sorted(maps.Keys(r.Kept[kind][property]))
			fmt.Fprintf(&b, "%s, %s:", kind, property)
			for _, value := range values {
				fmt.Fprintf(&b, " %q", value)
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
