package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/migrations"
)

// replica is one `muster serve`.
type replica struct {
	cmd    *exec.Cmd
	exited chan error
	log    *tee
}

func serve(t *testing.T, database string, args ...string) *replica {
	t.Helper()
	r := &replica{cmd: exec.Command(musterBinary(t), append([]string{"serve"}, args...)...), exited: make(chan error, 1), log: &tee{}}
	r.cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+database)
	r.cmd.Stderr = r.log
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.exited <- r.cmd.Wait() }()
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

// says waits until a replica logs a pattern.
func (r *replica) says(t *testing.T, pattern string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		if found := regexp.MustCompile(pattern).FindString(r.log.String()); found != "" {
			return found
		}
	}
	t.Fatalf("it never says %s", pattern)
	return ""
}

// ends asks a replica to end, which it does in order.
func (r *replica) ends(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.exited:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("it did not end")
	}
}

func TestReplicasShareTheRoles(t *testing.T) {
	t.Parallel()
	database := pgtest.Template(t, "migrated", func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	})
	fleet, err := filepath.Abs("../../testdata/fleet")
	if err != nil {
		t.Fatal(err)
	}
	sites := []string{"--site", filepath.Join(fleet, "hel1", "site.cue"), "--site", filepath.Join(fleet, "lul1", "site.cue")}
	api := serve(t, database, append(sites, "--roles", "api", "--listen", "127.0.0.1:0")...)
	worker := serve(t, database, append(sites, "--roles", "reconciler", "--listen", "127.0.0.1:0")...)
	url := regexp.MustCompile(`http://[0-9.:]+`).FindString(api.says(t, `"@message":"serving".*`))

	run := func(args ...string) (string, int) {
		cmd := exec.Command(musterBinary(t), args...)
		cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+database, "MUSTER_URL="+url)
		out, _ := cmd.Output()
		return string(out), cmd.ProcessState.ExitCode()
	}
	if _, code := run("device", "list"); code != 1 {
		t.Errorf("without a token: exit code %d", code)
	}
	token, _ := run("token", "create", "test")
	var devices []deviceItem
	for deadline := time.Now().Add(patience); len(devices) < 48; <-time.After(100 * time.Millisecond) {
		// Until the policy is loaded there is no list.
		out, code := run("device", "list", "-o", "json", "--token", strings.TrimSpace(token))
		err := json.Unmarshal([]byte(out), &devices)
		if code == 0 && err != nil || time.Now().After(deadline) {
			t.Fatalf("%d devices, %v: %s\n%s", len(devices), err, out, worker.log)
		}
	}
	if out, _ := run("site", "list"); !strings.Contains(out, "hel1  1 ") || !strings.Contains(out, "lul1  1 ") {
		t.Errorf("two replicas that begin together apply each site once:\n%s", out)
	}
	// A replica without the API still tells how it fares.
	own := regexp.MustCompile(`http://[0-9.:]+`).FindString(worker.says(t, `"@message":"serving".*`))
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/api/v1/devices/": 404, "/ui/": 404} {
		response, err := http.Get(own + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil || response.StatusCode != want {
			t.Errorf("%s of a reconciler: %s, %v, want %d", path, response.Status, err, want)
		}
	}
	worker.ends(t)
	api.ends(t)
}
