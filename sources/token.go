package sources

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// tokenLimit bounds what is read of a file, in bytes.
const tokenLimit = 64 << 10

// Token is what a source is asked with: a value, or the content of a file that
// somebody renews. It may be used by many goroutines; its fields are set before.
type Token struct {
	Of     string // whose it is, for errors: "SLURM"
	Value  string // where there is no file
	File   string
	Prefix string // that may stand before the token in the file
	Hint   string // how to fill a file that does not hold one, for errors

	mu   sync.Mutex
	held string
	size int64
	mod  time.Time
}

// Current gives the token, from the file if that changed since it was read. A
// file that is being written is read at the next call; until then the token
// from before stands.
func (t *Token) Current() (string, error) {
	if t.File == "" {
		return t.Value, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Stat(t.File)
	if err == nil && t.held != "" && info.Size() == t.size && info.ModTime().Equal(t.mod) {
		return t.held, nil
	}
	if err == nil {
		err = t.read()
	}
	if err == nil {
		t.size, t.mod = info.Size(), info.ModTime()
	} else if t.held == "" {
		return "", fmt.Errorf("read the %s token: %w", t.Of, err)
	}
	return t.held, nil
}

// Renewed reads the file whatever its time says and reports whether it holds
// another token than the refused one.
func (t *Token) Renewed(refused string) bool {
	if t.File == "" {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.read() == nil && t.held != refused
}

func (t *Token) read() error {
	file, err := os.Open(t.File)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, tokenLimit))
	if err != nil {
		return err
	}
	value := strings.TrimPrefix(strings.TrimSpace(string(text)), t.Prefix)
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return fmt.Errorf("%s does not hold one token and nothing else%s", t.File, t.Hint)
	}
	t.held = value
	return nil
}
