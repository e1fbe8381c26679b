package netbox

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// token is a NetBox API token given as a value, or by a file that somebody
// renews.
type token struct {
	file string

	mu    sync.Mutex
	value string
	size  int64
	mod   time.Time
}

// current gives the token, from the file if that changed since it was read.
func (t *token) current() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == "" {
		return t.value, nil
	}
	info, err := os.Stat(t.file)
	if err == nil && t.value != "" && info.Size() == t.size && info.ModTime().Equal(t.mod) {
		return t.value, nil
	}
	if err == nil {
		err = t.read()
	}
	if err == nil {
		t.size, t.mod = info.Size(), info.ModTime()
	} else if t.value == "" {
		return "", fmt.Errorf("read the NetBox token: %w", err)
	}
	// A file that is being written is read at the next call; until then the
	// token from before stands.
	return t.value, nil
}

// renewed reads the file whatever its time says and reports whether it holds
// another token than the refused one.
func (t *token) renewed(refused string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.file != "" && t.read() == nil && t.value != refused
}

func (t *token) read() error {
	text, err := os.ReadFile(t.file)
	if err != nil {
		return err
	}
	value := strings.TrimSpace(string(text))
	if value == "" || strings.ContainsAny(value, " \t\r\n") {
		return fmt.Errorf("%s does not hold one token and nothing else", t.file)
	}
	t.value = value
	return nil
}

// authorization gives the header for a token: up to 4.4 only Token is known,
// from 4.5 on the prefix of a v2 token decides.
func authorization(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return "Bearer " + token
	}
	return "Token " + token
}
