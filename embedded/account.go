package embedded

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
)

// account is the user that a server runs as when this process is root, which
// PostgreSQL refuses to run as.
type account struct {
	uid, gid uint32
	name     string
}

// serverAccount returns the account for the cluster in data (which need not
// exist), nil when the server is to run as this process does. Without a name,
// an existing cluster keeps its owner, so that a user postgres created later
// changes nothing; a new one goes to postgres, else nobody.
func serverAccount(name, data string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, ownAccount(name)
	}
	if name != "" {
		return lookup(name)
	}
	if info, err := os.Stat(data); err == nil {
		if uid, gid, known := owner(info); known && uid != 0 {
			return &account{uid: uid, gid: gid, name: "uid " + strconv.Itoa(int(uid))}, nil
		}
	}
	for _, n := range []string{"postgres", "nobody"} {
		if a, err := lookup(n); err == nil {
			return a, nil
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no user postgres or nobody: create one, or run muster as another user")
}

// ownAccount refuses a user that a process without root cannot become.
func ownAccount(name string) error {
	if name == "" {
		return nil
	}
	if a, err := lookup(name); err == nil && int(a.uid) == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("only root can run PostgreSQL as user %q: leave the user out, or run as root", name)
}

func lookup(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("look up the user to run PostgreSQL as: %w", err)
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uerr, gerr); err != nil {
		return nil, fmt.Errorf("look up the user to run PostgreSQL as: %w", err)
	}
	if uid == 0 {
		return nil, fmt.Errorf("PostgreSQL refuses to run as user %s, which is root: name another", name)
	}
	return &account{uid: uint32(uid), gid: uint32(gid), name: name}, nil
}

// closedFolder returns the outermost existing folder on the way to path that
// the account may not pass by its mode bits, "" when there is none.
func closedFolder(a *account, path string) string {
	if a == nil {
		return ""
	}
	var closed string
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			uid, gid, known := owner(info)
			pass := os.FileMode(0o001)
			switch {
			case uid == a.uid:
				pass = 0o100
			case gid == a.gid:
				pass = 0o010
			}
			if known && info.Mode()&pass == 0 {
				closed = p
			}
		}
		if p == filepath.Dir(p) {
			return closed
		}
	}
}

// DefaultDir is where `muster dev` keeps its data when it is not told:
// $XDG_DATA_HOME/muster/dev, by default under ~/.local/share. Root's home is
// usually closed to the user that PostgreSQL then runs as (see PostgresOptions);
// in that case it is /var/lib/muster/dev. getenv is os.Getenv.
func DefaultDir(getenv func(string) string) (string, error) {
	base := getenv("XDG_DATA_HOME")
	if !filepath.IsAbs(base) {
		home := getenv("HOME")
		if !filepath.IsAbs(home) {
			return "", errors.New("neither XDG_DATA_HOME nor HOME is an absolute path: name the data directory")
		}
		base = filepath.Join(home, ".local", "share")
	}
	dir := filepath.Join(base, "muster", "dev")
	if as, err := serverAccount("", filepath.Join(dir, "postgres", dataName)); err == nil && closedFolder(as, dir) != "" {
		return "/var/lib/muster/dev", nil
	}
	return dir, nil
}
