package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

// watching is a job that somebody follows.
type watching struct {
	app     *app
	job     jobItem
	devices []jobDeviceItem
	at      map[int64]int   // device → place
	live    *render.Redrawn // nil: not on a terminal
	raw     bool            // events as they come, a line each
}

// watchJob follows a job until it has ended, and says in the end whether it
// succeeded.
func (a *app) watchJob(ctx context.Context, server *client.Client, id int64, output string) error {
	w := &watching{app: a, at: map[int64]int{}, raw: output == "json"}
	if onTerminal(a.stdout) && !w.raw {
		w.live = render.NewRedrawn(a.stdout)
	}
	err := server.Follow(ctx, jobPath(id)+"events/", w.event)
	if ctx.Err() != nil {
		fmt.Fprintf(a.stderr, "job %d goes on: `muster job watch %d` follows it again, `muster job cancel %d` ends it\n", id, id, id)
		return ctx.Err()
	}
	if err != nil {
		return err
	}
	if err := w.settle(ctx, server, id); err != nil {
		return err
	}
	return w.job.succeeded(ctx)
}

// onTerminal tells whether a person looks at what is written.
func onTerminal(w any) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (w *watching) event(e client.Event) (last bool, err error) {
	if w.raw {
		fmt.Fprintf(w.app.stdout, "{\"event\":%q,\"data\":%s}\n", e.Name, e.Data)
	}
	var told struct {
		Job     jobItem         `json:"job"`
		Devices []jobDeviceItem `json:"devices"`
	}
	if err := json.Unmarshal(e.Data, &told); err != nil {
		return true, fmt.Errorf("read an event: %w: is the server of the same version?", err)
	}
	w.take(told.Job, told.Devices)
	return e.Name == "end", nil
}

// settle reads how the job ended, for who comes when it is over.
func (w *watching) settle(ctx context.Context, server *client.Client, id int64) error {
	if w.job.Ended {
		return nil
	}
	var raw json.RawMessage
	if err := server.Get(ctx, jobPath(id), nil, &raw); err != nil {
		return err
	}
	if w.raw {
		fmt.Fprintf(w.app.stdout, "{\"event\":\"end\",\"data\":{\"job\":%s,\"devices\":[]}}\n", raw)
		return json.Unmarshal(raw, &w.job)
	}
	var job jobItem
	if err := json.Unmarshal(raw, &job); err != nil {
		return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
	}
	devices, err := client.List[jobDeviceItem](ctx, server, jobPath(id)+"devices/", url.Values{}, 0)
	if err != nil {
		return err
	}
	w.take(job, devices)
	return nil
}

// take notes and prints what is new.
func (w *watching) take(job jobItem, devices []jobDeviceItem) {
	var lines []string
	for i := range devices {
		d := &devices[i]
		place, known := w.at[d.DeviceID]
		if !known {
			place = len(w.devices)
			w.at[d.DeviceID] = place
			w.devices = append(w.devices, jobDeviceItem{})
		}
		if text := d.line(); text != w.devices[place].line() {
			lines = append(lines, text)
		}
		w.devices[place] = *d
	}
	if text := job.line(); text != w.job.line() {
		lines = append(lines, text)
	}
	w.job = job
	switch {
	case w.raw:
	case w.live != nil:
		w.live.Draw(w.picture())
	default:
		for _, line := range lines {
			fmt.Fprintf(w.app.stdout, "%s  %s\n", w.app.now().UTC().Format("15:04:05"), line)
		}
	}
}

func (j *jobItem) line() string {
	if j.ID == 0 {
		return ""
	}
	text := fmt.Sprintf("job %d %s is %s", j.ID, j.Workflow, j.Status)
	if waits := j.waits(); waits != "" && !j.Ended {
		text += ", waits for " + waits
	}
	return render.Line(text)
}

func (d *jobDeviceItem) line() string {
	if d.DeviceID == 0 {
		return ""
	}
	text := fmt.Sprintf("%s %s", d.Name, d.Status)
	if d.Status == "running" {
		text += fmt.Sprintf(" %d %% %s", d.Progress, orEmpty(d.Phase))
	}
	if f := d.Failure; f != nil {
		text += ": " + strings.TrimRight(f.Code+" "+orEmpty(f.Message), " ")
		if f.Hint != nil {
			text += " (" + *f.Hint + ")"
		}
	}
	return strings.TrimRight(render.Line(text), " ")
}

// shownAtOnce is how many devices a terminal shows, those that need a look
// first.
const shownAtOnce = 20

// picture draws the job as it is now.
func (w *watching) picture() []string {
	lines := []string{w.job.line()}
	shown := 0
	for _, status := range []string{"failed", "timed_out", "terminated", "running", "cancelled", "waiting", "succeeded"} {
		for i := range w.devices {
			if d := &w.devices[i]; d.Status == status && shown < shownAtOnce {
				shown++
				lines = append(lines, "  "+render.Bar(d.Progress)+" "+d.line())
			}
		}
	}
	if more := len(w.devices) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("  … and %s: %s", render.Plural(more, "device"), w.job.counts()))
	}
	return lines
}
