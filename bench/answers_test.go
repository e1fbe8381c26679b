package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// tiny makes every race as short as it can be: what is tested are the answers.
var tiny = effort{rounds: 3, slice: time.Microsecond}

func TestEveryContenderGivesTheSameAnswers(t *testing.T) {
	t.Parallel()
	b, err := loadShipped()
	if err != nil {
		t.Fatal(err)
	}
	wide, err := loadWide()
	if err != nil {
		t.Fatal(err)
	}
	r := &report{said: io.Discard}
	if err := benchDerive(r, tiny, b, wide); err != nil {
		t.Error(err)
	}
	if err := benchObserve(r, tiny, b); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"CEL", "OPA", "expr-lang", "raw CUE", "to reach"} {
		if text := r.tables[0].markdown(); !strings.Contains(text, want) {
			t.Errorf("the table of derive does not mention %s:\n%s", want, text)
		}
	}
}

func TestQuantilesLieBetweenTheirNeighbours(t *testing.T) {
	t.Parallel()
	values := []float64{4, 1, 3, 2}
	for _, c := range []struct{ q, want float64 }{{0, 1}, {0.5, 2.5}, {1, 4}} {
		if got := quantile(values, c.q); got != c.want {
			t.Errorf("quantile %v is %v, want %v", c.q, got, c.want)
		}
	}
	if values[0] != 4 {
		t.Error("the values were put in order")
	}
}

func TestATargetIsReachedOnItsSideOnly(t *testing.T) {
	t.Parallel()
	var one table
	one.target("at most", 2, atMost, 1)
	one.target("at least", 2, atLeast, 1)
	if one.targets[0].reached || !one.targets[1].reached {
		t.Errorf("%+v", one.targets)
	}
}
