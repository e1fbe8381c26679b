package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Binaries is one installation of PostgreSQL's programs.
type Binaries struct {
	Dir     string // absolute; holds initdb and postgres
	Version string // as the programs say it: "15.18", "18beta1"
	Major   int    // 15: clusters are readable within one major version
}

// errNoPostgres says what to install where nothing was found.
var errNoPostgres = errors.New("no PostgreSQL programs (initdb, postgres) on this machine: install the package postgresql" +
	" (Debian, Ubuntu: apt-get install postgresql) or postgresql-server (Fedora, RHEL: dnf install postgresql-server)," +
	" or name their directory with --postgres-bin")

const (
	// probeTimeout bounds one `postgres --version`.
	probeTimeout = 30 * time.Second
	// maxInstallations bounds how many installations are asked for their version.
	maxInstallations = 16
)

// FindPostgres returns the programs to run the cluster of dir (the Dir of
// PostgresOptions; it need not exist) with. binDir names them, or the folder
// above their bin; when it is empty, the distributions' versioned folders,
// PATH and the usual folders are searched, and programs of the cluster's own
// major version are preferred to newer ones. Whether they suit the cluster is
// for StartPostgres to judge.
func FindPostgres(ctx context.Context, binDir, dir string) (Binaries, error) {
	if binDir != "" {
		return namedBinaries(ctx, binDir)
	}
	want, err := clusterMajor(filepath.Join(dir, dataName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Binaries{}, err
	}
	return choose(ctx, installations(), want)
}

// choose returns the programs of major version want, else the newest.
func choose(ctx context.Context, dirs []string, want int) (Binaries, error) {
	var newest Binaries
	var broken error
	for i, d := range dirs {
		if i == maxInstallations {
			break
		}
		b, err := probe(ctx, d)
		if err != nil {
			broken = errors.Join(broken, err)
			continue
		}
		if b.Major == want {
			return b, nil
		}
		if b.Major > newest.Major {
			newest = b
		}
	}
	switch {
	case newest.Dir != "":
		return newest, nil
	case broken != nil:
		return Binaries{}, broken
	}
	return Binaries{}, errNoPostgres
}

func namedBinaries(ctx context.Context, binDir string) (Binaries, error) {
	abs, err := filepath.Abs(binDir)
	if err != nil {
		return Binaries{}, fmt.Errorf("find PostgreSQL programs: %w", err)
	}
	for _, d := range []string{abs, filepath.Join(abs, "bin")} {
		if installed(d) {
			return probe(ctx, d)
		}
	}
	return Binaries{}, fmt.Errorf("%s holds no PostgreSQL programs (initdb, postgres): name the directory that does", abs)
}

// installations lists the folders that hold both programs, each once.
func installations() []string {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		found, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, found...)
		}
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	dirs = append(dirs, "/usr/bin", "/usr/local/bin", "/usr/local/pgsql/bin")
	seen := map[string]bool{}
	var out []string
	for _, d := range dirs {
		if filepath.IsAbs(d) && !seen[d] && installed(d) {
			out = append(out, d)
		}
		seen[d] = true
	}
	return out
}

func installed(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

var versionText = regexp.MustCompile(`\(PostgreSQL\) ((\d+)\S*)`)

// probe asks an installation for its version.
func probe(ctx context.Context, dir string) (Binaries, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	program := filepath.Join(dir, "postgres")
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env, cmd.WaitDelay = environment(), time.Second
	out, err := cmd.Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return Binaries{}, fmt.Errorf("ask %s for its version: it answers %q", program, strings.TrimSpace(string(out)))
	}
	major, err := strconv.Atoi(string(m[2]))
	if err != nil {
		return Binaries{}, fmt.Errorf("ask %s for its version: %w", program, err)
	}
	return Binaries{Dir: dir, Version: string(m[1]), Major: major}, nil
}

// environment is what PostgreSQL's programs get of ours. The operator's
// PGPORT, PGDATA, PGOPTIONS or language must not reach a private server.
func environment() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
