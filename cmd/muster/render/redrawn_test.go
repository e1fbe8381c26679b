package render_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/muster/render"
)

func TestAPictureTakesThePlaceOfTheLast(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := render.NewRedrawn(&out)
	r.Draw([]string{"a", "b"})
	first := out.Len()
	r.Draw([]string{strings.Repeat("x", 500)})
	if again := out.String()[first:]; !strings.HasPrefix(again, "\x1b[2A\x1b[J") || strings.Count(again, "x") != 159 {
		t.Errorf("drawn again as %q", again)
	}
	if strings.Contains(out.String()[:first], "A") {
		t.Errorf("the first moves up: %q", out.String()[:first])
	}
	for percent, want := range map[int]int{-5: 0, 0: 0, 50: 10, 99: 19, 100: 20, 300: 20} {
		if got := strings.Count(render.Bar(percent), "█"); got != want {
			t.Errorf("%d %% is %d wide, want %d", percent, got, want)
		}
	}
}
