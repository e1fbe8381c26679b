package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// The folder of a muster that has its Temporal beside it, made by the first that
// wants it.
var working = sync.OnceValues(func() (string, error) {
	temporal, err := filepath.Abs(temporalProgram())
	if err != nil {
		return "", err
	}
	binary, err := made()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(folder, "with-temporal")
	beside := filepath.Join(dir, "muster")
	return beside, errors.Join(os.Mkdir(dir, 0o755), os.Link(binary, beside), os.Symlink(temporal, filepath.Join(dir, "muster-temporal")))
})

func temporalProgram() string {
	if program := os.Getenv("MUSTER_TEMPORAL_BIN"); program != "" {
		return program
	}
	return "../../../bin/muster-temporal"
}

// buildWorking gives the binary of a muster that runs jobs.
func buildWorking(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(temporalProgram()); err != nil {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN: jobs run on a real Temporal only")
	}
	binary, err := working()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// ask runs a command that may say no, and gives all that it says.
func (m *muster) ask(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.binary, args...)
	cmd.Env = append(os.Environ(), "MUSTER_URL="+m.url, "MUSTER_TOKEN="+m.token)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("muster %s: %v", strings.Join(args, " "), err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// work is what is read of a job of one device.
type work struct {
	Status string
	Ended  bool
	Unit   struct {
		Status   string
		Phase    *string
		Progress int
		Failure  *struct{ Code, Message string }
	}
}

func (m *muster) work(job int64) (w work, err error) {
	if err := m.get(fmt.Sprintf("/jobs/%d/", job), &w); err != nil {
		return w, err
	}
	var units struct{ Items []json.RawMessage }
	if err := m.get(fmt.Sprintf("/jobs/%d/devices/", job), &units); err != nil {
		return w, err
	}
	if len(units.Items) != 1 {
		return w, fmt.Errorf("job %d is of %d devices", job, len(units.Items))
	}
	return w, json.Unmarshal(units.Items[0], &w.Unit)
}

// submit gives the job that a workflow on a device becomes.
func (m *muster) submit(t *testing.T, workflow, device string, more ...string) int64 {
	t.Helper()
	var made struct{ ID int64 }
	if err := json.Unmarshal([]byte(m.cli(t, append([]string{"job", "submit", workflow, device, "--output", "json"}, more...)...)), &made); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// refused submits what must not be admitted, by a code.
func (m *muster) refused(t *testing.T, code, workflow, device string, more ...string) {
	t.Helper()
	said, exit := m.ask(t, append([]string{"job", "submit", workflow, device}, more...)...)
	if exit != 1 || !strings.Contains(said, code) {
		t.Errorf("%s on %s exits with %d and says\n%s\nwant %s", workflow, device, exit, said, code)
	}
}

// reaches waits until a job is in a phase.
func (m *muster) reaches(t *testing.T, job int64, phase string) {
	t.Helper()
	m.until(t, fmt.Sprintf("job %d to %s", job, phase), func() error {
		w, err := m.work(job)
		switch {
		case err != nil:
			return err
		case w.Ended:
			t.Fatalf("job %d has ended before it came to %s: %+v, %+v", job, phase, w.Unit, w.Unit.Failure)
		case said(w.Unit.Phase) != phase:
			return fmt.Errorf("it is at %s", said(w.Unit.Phase))
		}
		return nil
	})
}

// ends waits until a job has ended as it should: by a failure code, if it failed.
func (m *muster) ends(t *testing.T, job int64, status, code string) (message string) {
	t.Helper()
	var w work
	for deadline := time.Now().Add(3 * settle); ; <-time.After(100 * time.Millisecond) {
		var err error
		if w, err = m.work(job); err == nil && w.Ended {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("job %d does not end: %+v, %v", job, w, err)
		}
	}
	is := ""
	if w.Unit.Failure != nil {
		is, message = w.Unit.Failure.Code, w.Unit.Failure.Message
	}
	if w.Status != status || w.Unit.Status != status || is != code {
		t.Fatalf("job %d is %s, its device %s %s (%s), at %s; want %s %s", job, w.Status, w.Unit.Status, is, message, said(w.Unit.Phase), status, code)
	}
	if status == "succeeded" && w.Unit.Progress != 100 {
		t.Errorf("job %d succeeded at %d %%", job, w.Unit.Progress)
	}
	return message
}

// frees waits until a job that was cancelled has let go of its device.
func (m *muster) frees(t *testing.T, job int64, workflow, device string) {
	t.Helper()
	m.until(t, fmt.Sprintf("job %d to let go of %s", job, device), func() error {
		if said, code := m.ask(t, "eligibility", workflow, device); code != 0 {
			return errors.New(said)
		}
		return nil
	})
}

// does runs a workflow on a device, which must succeed.
func (m *muster) does(t *testing.T, workflow, device string, more ...string) {
	t.Helper()
	m.ends(t, m.submit(t, workflow, device, more...), "succeeded", "")
}
