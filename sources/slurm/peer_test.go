package slurm

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// capability is what an item of the suite needs of a peer.
type capability string

const (
	writes   capability = "writes"   // the API can drain
	tellAuth capability = "tellAuth" // the API tells a refused token from a dead controller
	jobs     capability = "jobs"     // work can be put on a node
	sockets  capability = "sockets"  // there is a unix socket that needs no token
	slurmds  capability = "slurmds"  // a slurmd can be stopped and started
	creates  capability = "creates"  // the API can make nodes
)

// peer is a cluster that the suite is run against.
type peer interface {
	has(capability) bool
	config(t *testing.T) Config
	nodes() int   // how many there are
	free() string // a node that no other item uses, idle
	version() string
	mint(t *testing.T, user string, life time.Duration) string
	// admin does what an administrator does: drain and resume as scontrol
	// spells them, with a reason for a drain if it is not empty.
	admin(t *testing.T, node, state, reason string)
	controller(t *testing.T, up bool)
	hang(t *testing.T, on bool)
	work(t *testing.T) (node string, end func()) // on a node that no other item uses
	socket() string
	live() []string // three nodes, each with a slurmd of its own
	slurmd(t *testing.T, node string, up bool)
	dynamic(t *testing.T, name string) // makes a dynamic node
}

// --- the fake

type fakePeer struct {
	*fake
	server *httptest.Server
	next   int
}

func newFakePeer(t *testing.T, generation int) *fakePeer {
	f := newFake(generation, 30)
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return &fakePeer{fake: f, server: server}
}

func (p *fakePeer) dynamic(_ *testing.T, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fake.dynamic(name)
}

func (p *fakePeer) has(c capability) bool {
	if c == creates {
		return p.generation > 42
	}
	return c != jobs && c != sockets && p.generation > 38
}

func (p *fakePeer) config(*testing.T) Config { return Config{URL: p.server.URL, Token: "good"} }
func (p *fakePeer) nodes() int               { return 30 }
func (p *fakePeer) free() string             { p.next++; return fmt.Sprintf("n%04d", 5+p.next) }
func (p *fakePeer) version() string          { return p.versions[len(p.versions)-1] }
func (p *fakePeer) socket() string           { return "" }
func (p *fakePeer) hang(*testing.T, bool)    {}

func (p *fakePeer) live() []string { return []string{"n0001", "n0002", "n0003"} }

func (p *fakePeer) slurmd(_ *testing.T, node string, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now += 60
	if up {
		p.answers(p.fake.nodes[node])
		return
	}
	p.silence(p.fake.nodes[node])
}

func (p *fakePeer) work(*testing.T) (string, func()) { return "", func() {} }

func (p *fakePeer) mint(_ *testing.T, user string, life time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	token := fmt.Sprintf("%s-%d", user, life)
	p.tokens[token] = life > 0
	return token
}

func (p *fakePeer) admin(_ *testing.T, node, state, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.fake.nodes[node]
	if state == "resume" {
		p.resume(n, "RESUME")
		return
	}
	p.drain(n)
	if reason != "" {
		n.reason, n.changed, n.setBy = reason, p.now, "root"
	}
}

func (p *fakePeer) controller(_ *testing.T, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = !up
}

// --- a real cluster, started by testdata/peers/slurm-up.sh

type realPeer struct {
	dir  string
	env  map[string]string
	next int
}

func openPeer(file string) (*realPeer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the peer's environment: %w", err)
	}
	p := &realPeer{dir: filepath.Dir(file), env: map[string]string{}}
	for _, line := range strings.Split(string(text), "\n") {
		if k, v, ok := strings.Cut(line, "="); ok {
			p.env[k] = strings.Trim(v, `"`)
		}
	}
	if p.env["SLURM_REST_URL"] == "" {
		return nil, errors.New(file + " has no SLURM_REST_URL")
	}
	return p, nil
}

func (p *realPeer) has(c capability) bool {
	switch c {
	case writes, tellAuth:
		return versionNumber(p.version()) >= firstWrites
	case creates:
		return versionNumber(p.version()) >= firstCreate
	}
	return true
}

func (p *realPeer) config(*testing.T) Config {
	return Config{URL: p.env["SLURM_REST_URL"], User: p.env["SLURM_REST_USER"], Token: p.env["SLURM_REST_TOKEN"]}
}

func (p *realPeer) nodes() int {
	n, err := strconv.Atoi(p.env["SLURM_NODES"])
	if err != nil {
		return 64 // what slurm-up.sh starts unless told otherwise
	}
	return n
}

// free gives simulated nodes, which no job is sent to.
func (p *realPeer) free() string { p.next++; return fmt.Sprintf("n%04d", 9+p.next) }

func (p *realPeer) version() string {
	all := strings.Fields(p.env["SLURM_API_VERSIONS"])
	return all[len(all)-1]
}

func (p *realPeer) socket() string { return p.env["SLURM_REST_SOCK"] }

func (p *realPeer) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(p.dir, program), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func (p *realPeer) admin(t *testing.T, node, state, reason string) {
	args := []string{"scontrol", "update", "nodename=" + node, "state=" + state}
	if reason != "" {
		args = append(args, "reason="+reason)
	}
	p.run(t, "slurm", args...)
}

func (p *realPeer) dynamic(t *testing.T, name string) {
	p.run(t, "slurm", "scontrol", "create", "nodename="+name, "state=cloud")
}

func (p *realPeer) controller(t *testing.T, up bool) {
	if up {
		p.run(t, "slurm-daemon", "start", "slurmctld")
	} else {
		p.run(t, "slurm-daemon", "term", "slurmctld")
	}
}

func (p *realPeer) hang(t *testing.T, on bool) {
	if on {
		p.run(t, "slurm-daemon", "pause", "slurmctld")
	} else {
		p.run(t, "slurm-daemon", "cont", "slurmctld")
	}
}

// live leaves out the node that work is put on.
func (p *realPeer) live() []string { return []string{"n0001", "n0003", "n0004"} }

func (p *realPeer) slurmd(t *testing.T, node string, up bool) {
	if up {
		p.run(t, "slurm-daemon", "start", "slurmd-"+node)
	} else {
		p.run(t, "slurm-daemon", "kill", "slurmd-"+node)
	}
}

func (p *realPeer) work(t *testing.T) (string, func()) {
	const node = "n0002"
	out := p.run(t, "slurm", "sbatch", "--parsable", "-p", "live", "-w", node, "-o", "/dev/null", "--chdir=/tmp", "--wrap", "sleep 600")
	lines := strings.Fields(out)
	id := lines[len(lines)-1]
	return node, func() { p.run(t, "slurm", "scancel", id) }
}

// mint signs a token as scontrol would, for a user and a life that may be over.
func (p *realPeer) mint(t *testing.T, user string, life time.Duration) string {
	t.Helper()
	key, err := os.ReadFile(p.env["SLURM_JWT_KEY"])
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Add(-time.Hour).Unix()
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." +
		encode(fmt.Appendf(nil, `{"exp":%d,"iat":%d,"sun":%q}`, time.Now().Add(life).Unix(), now, user))
	sign := hmac.New(sha256.New, key)
	_, _ = sign.Write([]byte(text))
	return text + "." + encode(sign.Sum(nil))
}
