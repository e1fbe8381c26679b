package render

import (
	"fmt"
	"io"
	"strings"
)

const barWidth = 20 // characters

// Bar draws a share of a hundred.
func Bar(percent int) string {
	full := min(max(percent, 0), 100) * barWidth / 100
	return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full)
}

// Redrawn is a block of lines at the end of a terminal that is drawn again and
// again.
type Redrawn struct {
	w     io.Writer
	lines int // drawn last
}

// NewRedrawn begins where the cursor is.
func NewRedrawn(w io.Writer) *Redrawn { return &Redrawn{w: w} }

// widest is how much of a line is drawn: one that wraps would be two.
const widest = 160 // characters

// Draw puts lines in the place of those drawn last.
func (r *Redrawn) Draw(lines []string) {
	var b strings.Builder
	if r.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", r.lines)
	}
	b.WriteString("\x1b[J") // what is below is of the last picture
	for _, line := range lines {
		if runes := []rune(line); len(runes) > widest {
			line = string(runes[:widest-1]) + "…"
		}
		b.WriteString("\x1b[?7l" + line + "\x1b[?7h\n") // no line wraps
	}
	r.lines = len(lines)
	_, _ = io.WriteString(r.w, b.String()) // nobody looks where this fails
}
