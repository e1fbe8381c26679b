package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/jobs"
)

// browser is a real one, spoken to over its debugging pipe.
type browser struct {
	t       testing.TB
	in      *os.File
	out     *bufio.Reader
	id      int
	session string
	errors  []string // that pages logged
}

// startBrowser starts a headless Chromium, where there is one.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no Chromium is installed: the pages' script is not tried")
	}
	hears, in, err := os.Pipe()
	must(t, err)
	out, speaks, err := os.Pipe()
	must(t, err)
	must(t, out.SetReadDeadline(time.Now().Add(2*time.Minute)))
	home := t.TempDir()
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--remote-debugging-pipe", "--user-data-dir="+home, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home)
	cmd.ExtraFiles = []*os.File{hears, speaks}
	must(t, cmd.Start())
	_, _ = hears.Close(), speaks.Close() // the browser has its own
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close() // it ends, and its children with it, when nobody speaks to it
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // killed or not, it is gone
		late.Stop()
		_ = out.Close()
	})
	return b
}

// do gives a command to the browser and waits for its answer.
func (b *browser) do(method string, parameters fields) map[string]any {
	b.t.Helper()
	b.id++
	order := fields{"id": b.id, "method": method, "params": parameters}
	if b.session != "" {
		order["sessionId"] = b.session
	}
	text, err := json.Marshal(order)
	must(b.t, err)
	_, err = b.in.Write(append(text, 0))
	must(b.t, err)
	for {
		text, err := b.out.ReadBytes(0)
		must(b.t, err)
		var said struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
			Result map[string]any  `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		must(b.t, json.Unmarshal(text[:len(text)-1], &said))
		if said.Method == "Log.entryAdded" || said.Method == "Runtime.exceptionThrown" {
			b.errors = append(b.errors, string(said.Params))
		}
		if said.ID != b.id {
			continue
		}
		if said.Error != nil {
			b.t.Fatalf("%s: %s", method, said.Error.Message)
		}
		return said.Result
	}
}

// open shows an address.
func (b *browser) open(address string) {
	b.t.Helper()
	target := b.do("Target.createTarget", fields{"url": "about:blank"})["targetId"]
	b.session = b.do("Target.attachToTarget", fields{"targetId": target, "flatten": true})["sessionId"].(string)
	b.do("Log.enable", fields{})
	b.do("Runtime.enable", fields{})
	b.do("Page.navigate", fields{"url": address})
}

// visit shows another address in the same tab.
func (b *browser) visit(address string) { b.t.Helper(); b.do("Page.navigate", fields{"url": address}) }

// run runs a script.
func (b *browser) run(script string) {
	b.t.Helper()
	if said := b.do("Runtime.evaluate", fields{"expression": script, "userGesture": true}); said["exceptionDetails"] != nil {
		b.t.Fatalf("%s: %v", script, said["exceptionDetails"])
	}
}

// shows waits until a script gives a text.
func (b *browser) shows(script, want string) {
	b.t.Helper()
	got := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		result, _ := b.do("Runtime.evaluate", fields{"expression": script, "returnByValue": true})["result"].(map[string]any)
		if got, _ = result["value"].(string); strings.Contains(got, want) {
			return
		}
	}
	b.t.Fatalf("%s is %q, want %q; the browser says %v", script, got, want, b.errors)
}

// A person runs a workflow by the page of a device, follows it and cancels it.
func TestAWorkflowIsRunAndCancelledInABrowser(t *testing.T) {
	w := newWorld(t)
	b := startBrowser(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	b.open(fmt.Sprintf("%s/ui/login/?token=%s", server.URL, w.token))
	b.shows("document.querySelector('h1').innerText", "Fleet")
	b.visit(fmt.Sprintf("%s/ui/devices/%d/", server.URL, id))
	form := `document.querySelector("input[name=workflow][value=verify_connectivity]").closest("form")`
	b.shows(form+".querySelector('button').textContent", "Run verify_connectivity")
	b.run(form + ".closest('details').open = true; " + form + ".reason.value = 'is it there'; const button = " + form + ".querySelector('button'); button.click(); button.click()")
	b.shows("document.querySelector('h1').innerText", "Job 1: verify_connectivity pending")
	b.shows("document.querySelector('main').innerText", "is it there")
	b.run("document.querySelector('form.run').requestSubmit()") // without a reason
	b.shows("document.activeElement.name", "reason")
	b.run("document.querySelector('form.run').reason.value = 'enough'; document.querySelector('form.run button').click()")
	b.shows("document.querySelector('main').innerText", "enough")
	b.shows("document.querySelector('h1').innerText", "cancelled")
	if n := w.count("select count(*) from jobs"); n != 1 || len(b.errors) > 0 {
		t.Errorf("a double click made %d jobs; the browser says %v", n, b.errors)
	}
}

func TestTheJobPageFollowsTheJobInABrowser(t *testing.T) {
	w := newWorld(t, func(d *httpapi.Deps) { d.Auth = nil })
	b := startBrowser(t)
	one, two := w.bear(w.lab, "gpu-1", node(ready)), w.bear(w.lab, "gpu-2", node(ready))
	submitted, err := w.jobs.Submit(w.ctx(), jobs.Submission{Request: jobs.Request{Workflow: "verify_connectivity", Devices: []jobs.Ref{{ID: one}, {ID: two}}}})
	must(t, err)
	job := submitted.Job.ID
	server := httptest.NewServer(w.handler)
	t.Cleanup(server.Close)
	b.open(fmt.Sprintf("%s/ui/jobs/%d/", server.URL, job))
	row := fmt.Sprintf(`document.querySelector("#device-%d").innerText`, one)
	b.shows(row, "waiting")
	b.do("Runtime.evaluate", fields{"expression": "window.loaded = 'once'"})
	w.starts(job, one)
	must(t, w.jobs.Progress(w.ctx(), job, one, "login", 40))
	b.shows(row, "running")
	b.shows(row, "login")
	b.shows(fmt.Sprintf(`String(document.querySelector("#device-%d progress").value)`, one), "40")
	b.shows("String(window.loaded)", "once") // it is the same page
	w.ends(job, one, jobs.Ending{Status: fleet.DeviceFailed, Message: "<b>no</b> answer"})
	b.shows(row, "<b>no</b> answer")
	w.starts(job, two)
	w.ends(job, two, jobs.Ending{Status: fleet.DeviceSucceeded})
	b.shows(`document.querySelector("h1").innerText`, "partially_failed")
	b.shows("String(window.loaded)", "undefined") // the end was shown by the server
	if len(b.errors) > 0 {
		t.Errorf("the browser says %v", b.errors)
	}
}
