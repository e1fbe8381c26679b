package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/embedded/pgtest"
)

const settle = 60 * time.Second // what the world did shows in muster within this, on a loaded machine

// muster is one `muster dev` process on a data directory of its own.
type muster struct {
	binary string
	data   string
	site   string // file
	listen string
	cmd    *exec.Cmd
	exited chan error
	log    *lockedBuffer
	url    string
	token  string
}

// The binary that every test runs, made by the first that wants it.
var (
	folder string
	made   = sync.OnceValues(func() (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		binary := filepath.Join(folder, "muster")
		out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/musterhq/muster/cmd/muster").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build: %w\n%s", err, out)
		}
		return binary, err
	})
)

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "muster-e2e-"); err == nil {
		err = flag.Set("test.parallel", "3") // they wait for peers most of the time
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pgtest.Main(m)
	_ = os.RemoveAll(folder)
}

func build(t *testing.T) string {
	t.Helper()
	binary, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// freeAddress is of this machine, and nobody listens there yet.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func newMuster(t *testing.T, binary, site string) *muster {
	t.Helper()
	listen := freeAddress(t)
	data := peerDir(t, "data")
	if err := os.Chmod(data, 0o755); err != nil { // the database server runs as another user
		t.Fatal(err)
	}
	m := &muster{binary: binary, data: filepath.Join(data, "d"), site: site, listen: listen, log: &lockedBuffer{}}
	t.Cleanup(func() {
		m.stop(t)
		if t.Failed() {
			t.Logf("muster said:\n%s", m.log.tail(200))
		}
	})
	m.start(t)
	return m
}

// start starts the process and waits until it answers.
func (m *muster) start(t *testing.T) {
	t.Helper()
	m.cmd = exec.Command(m.binary, "dev", "--data-dir", m.data, "--listen", m.listen, "--site", m.site)
	m.cmd.Stdout, m.cmd.Stderr = m.log, m.log
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(m.cmd, m.exited)
	m.until(t, "muster to be ready", func() error {
		select {
		case err := <-m.exited:
			m.exited <- err
			t.Fatalf("muster ended: %v\n%s", err, m.log.tail(60))
		default:
		}
		text, err := os.ReadFile(filepath.Join(m.data, "cli.json"))
		if err != nil {
			return err
		}
		var login struct{ URL, Token string }
		if err := json.Unmarshal(text, &login); err != nil {
			return err
		}
		m.url, m.token = strings.TrimSuffix(login.URL, "/"), login.Token
		response, err := http.Get(m.url + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", response.Status)
		}
		return nil
	})
}

// kill ends the process without a word, its database with it.
func (m *muster) kill(t *testing.T) {
	t.Helper()
	if err := m.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-m.exited
	m.cmd = nil
}

func (m *muster) stop(t *testing.T) {
	t.Helper()
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Signal(os.Interrupt)
	select {
	case <-m.exited:
	case <-time.After(time.Minute):
		t.Error("muster did not end within a minute of being asked to")
		_ = m.cmd.Process.Kill()
		<-m.exited
	}
	m.cmd = nil
}

// get reads one resource of the API.
func (m *muster) get(path string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/api/v1"+path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+m.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return json.Unmarshal(body, into)
}

// cli runs a command as an operator does, against the running server.
func (m *muster) cli(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.binary, args...)
	cmd.Env = append(os.Environ(), "MUSTER_URL="+m.url, "MUSTER_TOKEN="+m.token)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("muster %s: %v\n%s%s", strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// until tries f until it succeeds, for `settle` at most.
func (m *muster) until(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(settle)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s: %v", what, err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// lockedBuffer keeps what a process says.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// tail gives the last lines, those about our own questions left out.
func (b *lockedBuffer) tail(lines int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.DeleteFunc(strings.Split(strings.TrimSpace(b.text.String()), "\n"), func(line string) bool {
		return strings.Contains(line, "muster.api: request:") && strings.Contains(line, "status=200") ||
			strings.Contains(line, `"@module":"muster.api"`) && strings.Contains(line, `"status":200`)
	})
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
