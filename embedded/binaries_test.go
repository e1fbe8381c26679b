package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// installation makes programs that only know their version.
func installation(t *testing.T, dir, version string) string {
	t.Helper()
	for _, name := range []string{"initdb", "postgres"} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho '"+version+"'\n")
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestChooseBinaries(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	old := installation(t, filepath.Join(root, "old"), "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)")
	beta := installation(t, filepath.Join(root, "beta"), "postgres (PostgreSQL) 19beta1")
	broken := installation(t, filepath.Join(root, "broken"), "cannot open shared object")
	tests := []struct {
		name    string
		dirs    []string
		want    int
		version string
		err     string
	}{
		{"newest for a new cluster", []string{old, beta}, 0, "19beta1", ""},
		{"the cluster's own", []string{old, beta}, 15, "15.18", ""},
		{"newest when the cluster's own is gone", []string{old, beta}, 14, "19beta1", ""},
		{"a broken one is passed over", []string{broken, old}, 0, "15.18", ""},
		{"only a broken one", []string{broken}, 0, "", "cannot open shared object"},
		{"none", nil, 0, "", "apt-get install postgresql"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b, err := choose(t.Context(), tt.dirs, tt.want)
			if b.Version != tt.version {
				t.Errorf("chose %+v, want version %q", b, tt.version)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q in it", err, tt.err)
			}
			if tt.err == "" && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNamedBinaries(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	bin := installation(t, filepath.Join(root, "pg", "bin"), "postgres (PostgreSQL) 18.4")
	for _, given := range []string{bin, filepath.Dir(bin)} {
		b, err := FindPostgres(t.Context(), given, root)
		if err != nil || b != (Binaries{Dir: bin, Version: "18.4", Major: 18}) {
			t.Errorf("in %s: %+v, %v", given, b, err)
		}
	}
	if _, err := FindPostgres(t.Context(), root, root); err == nil || !strings.Contains(err.Error(), root) {
		t.Errorf("in a folder without programs: %v, want an error that names it", err)
	}
}
