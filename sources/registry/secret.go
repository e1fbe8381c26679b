package registry

import (
	"fmt"
	"io"
	"os"
	"strings"
)

const secretLimit = 64 << 10 // bytes

// Secret resolves a reference, file:PATH or env:NAME. White space around what a
// file holds is no part of it. The error names the reference, never its value.
func Secret(ref string) (string, error) {
	if name, ok := strings.CutPrefix(ref, "env:"); ok {
		value, set := os.LookupEnv(name)
		if !set || value == "" {
			return "", fmt.Errorf("read the secret %s: the variable is not set in the environment of muster", ref)
		}
		return value, nil
	}
	path, ok := secretFile(ref)
	if !ok {
		return "", fmt.Errorf("read a secret: its reference must be file:PATH or env:NAME")
	}
	handle, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the secret %s: %w", ref, err)
	}
	defer func() { _ = handle.Close() }()
	data, err := io.ReadAll(io.LimitReader(handle, secretLimit+1))
	if err != nil {
		return "", fmt.Errorf("read the secret %s: %w", ref, err)
	}
	value := strings.TrimSpace(string(data))
	if value == "" || len(data) > secretLimit {
		return "", fmt.Errorf("read the secret %s: the file is empty or beyond %d bytes", ref, secretLimit)
	}
	return value, nil
}

func secretFile(ref string) (string, bool) { return strings.CutPrefix(ref, "file:") }
