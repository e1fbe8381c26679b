package embedded

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// A program runs until it is told to end; what it says is passed on and is in
// the error when it ends by itself.
func TestAProgramEndsWhenItIsTold(t *testing.T) {
	t.Parallel()
	p, err := StartProgram(nil, "sleep", "600")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Done():
	default:
		t.Error("it is stopped and not done")
	}
	var said bytes.Buffer
	p, err = StartProgram(&said, "sh", "-c", "echo too bad; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := p.Err(); !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "too bad") || said.String() != "too bad\n" {
		t.Errorf("%v, %q", err, said.String())
	}
	if _, err := StartProgram(nil, "/no/such/program"); err == nil {
		t.Error("what is not there has started")
	}
}
