package sources

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestATokenFollowsItsFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	token := &Token{Of: "SLURM", File: file, Prefix: "SLURM_JWT=", Hint: ": write it anew"}
	if _, err := token.Current(); err == nil || !strings.Contains(err.Error(), "read the SLURM token") {
		t.Errorf("no file: %v", err)
	}
	day := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	for i, c := range []struct {
		name, text, want string
	}{
		{"a token", "one\n", "one"},
		{"renewed, with the prefix", "SLURM_JWT=two", "two"},
		{"half written: the one before stands", "", "two"},
		{"more than a token", "a b", "two"},
		{"renewed again", " three ", "three"},
	} {
		write(t, file, c.text, day.Add(time.Duration(i)*time.Second))
		if got, err := token.Current(); err != nil || got != c.want {
			t.Errorf("%s: %q %v", c.name, got, err)
		}
	}
	write(t, file, "seven", day.Add(4*time.Second)) // the time is the one of before: a refused token is reason enough to look
	if !token.Renewed("three") || token.Renewed("seven") {
		t.Error("what the file holds now is not told from the refused token")
	}
}

func TestAFileThatNeverHeldATokenIsToldWithTheRemedy(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "one two", time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC))
	token := &Token{Of: "NetBox", File: file, Hint: ": write it anew"}
	if _, err := token.Current(); err == nil || !strings.HasSuffix(err.Error(), file+" does not hold one token and nothing else: write it anew") {
		t.Errorf("%v", err)
	}
}

func TestATokenWithoutAFileStays(t *testing.T) {
	t.Parallel()
	token := &Token{Value: "one"}
	if got, err := token.Current(); got != "one" || err != nil || token.Renewed("one") {
		t.Errorf("%q %v", got, err)
	}
}

func write(t *testing.T, file, text string, at time.Time) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(file, at, at); err != nil {
		t.Fatal(err)
	}
}
