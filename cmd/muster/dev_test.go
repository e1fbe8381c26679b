package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/cmd/muster/bundle"
)

const patience = 60 * time.Second // what a loaded machine may need for one step under the race detector

// development is a `muster dev` on folders of its own, with sources that are
// read every second.
type development struct {
	binary, data, facts, policies string // no facts: on a simulated fleet
	cmd                           *exec.Cmd
	exited                        chan error
	url                           string
	log                           *tee
}

// tee keeps what a process logs.
type tee struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *tee) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String gives the log without what was asked.
func (b *tee) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.SplitAfter(b.text.String(), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, "api: request: ") }), "")
}

// newDevelopment lays out the folders. The database's user must be able to come
// to the data, so they lie outside of the test's own closed folder.
func newDevelopment(t *testing.T) *development {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-dev-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &development{
		binary: musterBinary(t), data: filepath.Join(dir, "data"), facts: filepath.Join(dir, "facts"), policies: filepath.Join(dir, "policies"), log: &tee{},
	}
	if err := os.CopyFS(d.facts, os.DirFS("../../testdata/fleet")); err != nil {
		t.Fatal(err)
	}
	if err := bundle.Write(muster.Bundle(), d.policies); err != nil {
		t.Fatal(err)
	}
	d.edit(t, "policies/limits/limits.cue", `interval: +"[0-9a-z]+"`, `interval: "1s"`)
	return d
}

// edit replaces a pattern in a policy file.
func (d *development) edit(t *testing.T, name, pattern, by string) {
	t.Helper()
	replaceIn(t, filepath.Join(d.policies, filepath.FromSlash(name)), pattern, by)
}

func replaceIn(t *testing.T, path, pattern, by string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(pattern).ReplaceAll(text, []byte(by))
	if bytes.Equal(changed, text) {
		t.Fatalf("%s does not hold %s", path, pattern)
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		t.Fatal(err)
	}
}

// start starts the server on an address and waits until it says that it is
// ready; it gives what it prints until then.
func (d *development) start(t *testing.T, listen string, more ...string) string {
	t.Helper()
	args := append([]string{"dev", "--data-dir", d.data, "--policies", d.policies, "--listen", listen}, more...)
	if d.facts != "" {
		args = append(args, "--facts", d.facts)
	}
	d.cmd = exec.Command(d.binary, args...)
	d.cmd.Stderr = d.log
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	d.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan<- error) {
		lines := bufio.NewReader(out)
		var text strings.Builder
		for {
			line, err := lines.ReadString('\n')
			text.WriteString(line)
			if strings.Contains(line, " vet ") {
				said <- text.String()
			}
			if err != nil {
				break
			}
		}
		_, _ = io.Copy(io.Discard, lines)
		exited <- cmd.Wait()
	}(d.cmd, d.exited)
	select {
	case text := <-said:
		d.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(text)
		return text
	case err := <-d.exited:
		d.cmd = nil
		t.Fatalf("muster dev ended: %v\n%s", err, d.log)
	case <-time.After(2 * patience):
		t.Fatalf("muster dev was not ready in time\n%s", d.log)
	}
	return ""
}

// end signals the server and waits for its end.
func (d *development) end(t *testing.T, signal os.Signal) error {
	t.Helper()
	if d.cmd == nil {
		return nil
	}
	if err := d.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-d.exited:
		d.cmd = nil
		return err
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		t.Fatalf("muster dev did not end in time\n%s", d.log)
		return nil
	}
}

// run runs a command against the server and gives its output and exit code.
func (d *development) run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(d.binary, args...)
	cmd.Env = append(os.Environ(), "MUSTER_DATA_DIR="+d.data)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// must runs a command that must succeed.
func (d *development) must(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := d.run(t, args...)
	if code != 0 {
		t.Fatalf("muster %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// devices lists the fleet by name.
func (d *development) devices(t *testing.T) map[string]deviceItem {
	t.Helper()
	var items []deviceItem
	if err := json.Unmarshal([]byte(d.must(t, "device", "list", "-o", "json")), &items); err != nil {
		t.Fatal(err)
	}
	fleet := map[string]deviceItem{}
	for _, item := range items {
		fleet[item.Name] = item
	}
	return fleet
}

// until waits for a device to be as wanted.
func (d *development) until(t *testing.T, name, status, rung string) deviceItem {
	t.Helper()
	var last deviceItem
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		last = d.devices(t)[name]
		if last.OperationalStatus == status && orEmpty(last.Rung) == rung && !last.Held {
			return last
		}
		<-time.After(100 * time.Millisecond)
	}
	t.Fatalf("%s never was %s by rung %s: it is %+v\n%s", name, status, rung, last, d.log)
	return last
}
