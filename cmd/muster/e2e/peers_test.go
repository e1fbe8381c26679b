package e2e

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/sources/ironic/ironictest"
	"github.com/musterhq/muster/sources/slurm"
)

const (
	scripts     = "../../../testdata/peers"
	slurmPorts  = "26960"
	startPeer   = 10 * time.Minute // packages may have to be fetched
	operatePeer = 2 * time.Minute
)

// realIronic is one Ironic process of our own.
type realIronic struct {
	*ironictest.Ironic
	dir  string
	port string
	url  string
	env  []string // of ironic-up.sh
}

// realSlurm is one SLURM cluster of our own.
type realSlurm struct {
	*slurm.Client
	dir   string
	url   string
	token string // file
}

func needPeers(t *testing.T) {
	t.Helper()
	if os.Getenv("MUSTER_PEERS") == "" {
		t.Skip("MUSTER_PEERS is not set: run `make test-peers`")
	}
}

// peerDir is short, since SLURM's sockets lie below it.
func peerDir(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-"+name+"-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func script(t testing.TB, timeout time.Duration, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(scripts, name), args...)
	cmd.Env = append(os.Environ(), env...)
	// The daemons that a script leaves behind keep its streams: files do not wait for them.
	out, err := os.CreateTemp(t.TempDir(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func startIronic(t *testing.T, env ...string) *realIronic {
	t.Helper()
	_, port, err := net.SplitHostPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &realIronic{dir: peerDir(t, "ironic"), port: port, env: env}
	t.Cleanup(func() { script(t, operatePeer, nil, "ironic-down.sh", r.dir) })
	r.start(t)
	if r.Ironic, err = ironictest.New(r.url, "", ""); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *realIronic) start(t *testing.T) {
	t.Helper()
	out := strings.Fields(script(t, startPeer, r.env, "ironic-up.sh", r.dir, r.port))
	r.url = out[len(out)-1]
}

// kill ends the process without a word.
func (r *realIronic) kill(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "ironic.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func startSlurm(t *testing.T) *realSlurm {
	t.Helper()
	r := &realSlurm{dir: peerDir(t, "slurm")}
	roots := os.Getenv("SLURM_ROOTS")
	if roots == "" {
		roots = filepath.Join(os.TempDir(), "muster-slurm-roots")
	}
	t.Cleanup(func() { script(t, operatePeer, nil, "slurm-down.sh", r.dir) })
	script(t, startPeer, []string{
		"SLURM_ROOTS=" + roots, "SLURM_BASE_PORT=" + slurmPorts, "SLURM_NODES=8", "SLURM_LIVE=2", "SLURM_SUITE=trixie",
	}, "slurm-up.sh", r.dir)
	env := readEnv(t, filepath.Join(r.dir, "slurm.env"))
	r.url, r.token = env["SLURM_REST_URL"], filepath.Join(r.dir, "token")
	if err := os.WriteFile(r.token, []byte(env["SLURM_REST_TOKEN"]), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	r.Client, err = slurm.New(slurm.Config{URL: r.url, User: env["SLURM_REST_USER"], TokenFile: r.token}, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// daemon does one of start, term, kill, pause, cont to one daemon of the cluster.
func (r *realSlurm) daemon(t *testing.T, verb, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), operatePeer)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.dir, "slurm-daemon"), verb, name)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("slurm-daemon %s %s: %v", verb, name, err)
	}
}

func readEnv(t *testing.T, file string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			env[name] = strings.Trim(value, `"`)
		}
	}
	return env
}
