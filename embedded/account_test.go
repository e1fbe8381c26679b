package embedded

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asRoot is for tests of what only root can do.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: dropping privileges cannot be shown by another user")
	}
}

func TestRootRunsTheServerAsNobodyWhenTold(t *testing.T) {
	t.Parallel()
	asRoot(t)
	nobody, err := lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	o := options(folder(t))
	o.User = "nobody"
	p, err := StartPostgres(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(o.Dir, dataName))
	if err != nil {
		t.Fatal(err)
	}
	if uid, _, _ := owner(info); uid != nobody.uid {
		t.Errorf("the cluster belongs to uid %d, want nobody's %d", uid, nobody.uid)
	}
	o.User = "" // the cluster keeps its owner although user postgres may exist
	query[int](t, start(t, o).URL(), "SELECT 1")
}

func TestAnotherUserRunsTheServerAsItself(t *testing.T) {
	t.Parallel()
	asRoot(t)
	nobody, err := lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	program := filepath.Join(dir, "owner")
	copyProgram(t, self, program)
	home := filepath.Join(dir, "h")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, int(nobody.uid), int(nobody.gid)); err != nil {
		t.Fatal(err)
	}
	a := startOwner(t, home, nobody, program).announced(t)
	query[int](t, a.URL, "SELECT 1")
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestClosedFolderIsNamed(t *testing.T) {
	t.Parallel()
	asRoot(t)
	closed := filepath.Join(folder(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := StartPostgres(t.Context(), options(filepath.Join(closed, "in")))
	if err == nil || !strings.Contains(err.Error(), "may not enter "+closed+",") || !strings.Contains(err.Error(), "chmod o+x") {
		t.Errorf("start: %v, want the closed folder and the remedy", err)
	}
}

func TestServerUser(t *testing.T) {
	t.Parallel()
	asRoot(t)
	for name, want := range map[string]string{"root": "refuses to run as user root", "no-such-user": "look up the user"} {
		if _, err := serverAccount(name, "/nonexistent"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("user %s: %v, want %q", name, err, want)
		}
	}
}

func TestDefaultDir(t *testing.T) {
	t.Parallel()
	open := folder(t)
	closed := filepath.Join(open, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	closedWant := filepath.Join(closed, ".local/share/muster/dev")
	if os.Geteuid() == 0 {
		closedWant = "/var/lib/muster/dev"
	}
	tests := []struct {
		name string
		env  map[string]string
		want string
	}{
		{"XDG_DATA_HOME", map[string]string{"XDG_DATA_HOME": open, "HOME": closed}, filepath.Join(open, "muster/dev")},
		{"home", map[string]string{"HOME": open}, filepath.Join(open, ".local/share/muster/dev")},
		{"relative XDG_DATA_HOME", map[string]string{"XDG_DATA_HOME": "x", "HOME": open}, filepath.Join(open, ".local/share/muster/dev")},
		{"home that the server's user may not enter", map[string]string{"HOME": closed}, closedWant},
		{"nothing", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := DefaultDir(func(name string) string { return tt.env[name] })
			if got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
