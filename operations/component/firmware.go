package component

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources/redfish"
	"github.com/musterhq/muster/workflows/act"
)

// Image is firmware for a component, and the versions that it brings.
type Image struct {
	URI      string            `json:"uri"`
	SHA256   string            `json:"sha256,omitempty"` // "": not checked
	Versions map[string]string `json:"versions"`         // by part of the BMC's inventory; not empty
	Override bool              `json:"override,omitempty"`
}

// Before is what is so before an update.
type Before struct {
	There bool     `json:"there,omitempty"` // every version asked for is read
	Tasks []string `json:"tasks,omitempty"` // updates that are under way, by their URI
}

// Update is an update under way.
type Update struct {
	There bool             `json:"there,omitempty"` // it was there already
	Task  redfish.TaskMode `json:"task,omitempty"`
	URI   string           `json:"uri,omitempty"` // of the task
}

// Progress is one look at an update.
type Progress struct {
	Done    bool   `json:"done,omitempty"`
	Failed  bool   `json:"failed,omitempty"`
	State   string `json:"state,omitempty"`
	Percent int    `json:"percent,omitempty"` // -1 where it does not say
	Text    string `json:"text,omitempty"`
	// Gone: the BMC has no task of it, and none under way, and the versions are not
	// there: it may be through and wait for a restart.
	Gone bool `json:"gone,omitempty"`
}

// Firmware updates components.
type Firmware interface {
	// BeforeUpdate reads what is so before an update is started.
	BeforeUpdate(ctx context.Context, p Part, i Image) (Before, error)
	// StartUpdate starts an update, once. It fails with FIRMWARE_START_UNKNOWN where
	// nothing tells whether it began; with any other code that may be tried again
	// nothing was sent.
	StartUpdate(ctx context.Context, p Part, i Image) (Update, error)
	// FindUpdate tells what became of a start whose answer was lost. It fails with
	// FIRMWARE_START_UNKNOWN, to stay, where nothing tells.
	FindUpdate(ctx context.Context, p Part, i Image, before Before) (Update, error)
	// LookAtUpdate looks at an update once. That it is done says nothing of the
	// versions that run.
	LookAtUpdate(ctx context.Context, p Part, i Image, u Update) (Progress, error)
	// Differs reads the versions back and tells which of those asked for are not
	// read, "" none.
	Differs(ctx context.Context, p Part, i Image) (string, error)
}

// Updater is what a BMC has for updates.
type Updater interface {
	Firmware(ctx context.Context, target redfish.Target) (map[string]string, error)
	UpdateMethods(ctx context.Context, target redfish.Target) (redfish.UpdateMethods, error)
	Update(ctx context.Context, target redfish.Target, image redfish.Image) (redfish.Task, error)
	Push(ctx context.Context, target redfish.Target, u redfish.Upload) (redfish.Task, error)
	Updates(ctx context.Context, target redfish.Target) ([]redfish.Progress, error)
	TaskProgress(ctx context.Context, target redfish.Target, task redfish.Task) (redfish.Progress, error)
}

// findWithin is how long after a lost answer an update is looked for.
const findWithin = time.Minute

// Differs reads the versions back.
func (b *bmcs) Differs(ctx context.Context, p Part, i Image) (string, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return "", err
	}
	defer release()
	return differs(ctx, client, &p, &i)
}

func differs(ctx context.Context, client BMC, p *Part, i *Image) (string, error) {
	found, err := client.Firmware(ctx, p.target())
	if err != nil {
		return "", failed(ctx, err, codes.BMCUnreachable)
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(i.Versions)) {
		switch version, has := found[name]; {
		case !has:
			parts = append(parts, fmt.Sprintf("%s is not read, %q was asked for", name, i.Versions[name]))
		case version != i.Versions[name]:
			parts = append(parts, fmt.Sprintf("%s is %q, %q was asked for", name, version, i.Versions[name]))
		}
	}
	if len(i.Versions) == 0 {
		return "no version was asked for", nil
	}
	return strings.Join(parts, "; "), nil
}

// BeforeUpdate reads the versions and the updates under way.
func (b *bmcs) BeforeUpdate(ctx context.Context, p Part, i Image) (Before, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Before{}, err
	}
	defer release()
	missing, err := differs(ctx, client, &p, &i)
	if err != nil || missing == "" {
		return Before{There: err == nil}, err
	}
	tasks, err := updates(ctx, client, &p)
	return Before{Tasks: tasks}, err
}

func updates(ctx context.Context, client BMC, p *Part) ([]string, error) {
	running, err := client.Updates(ctx, p.target())
	if err != nil {
		return nil, failed(ctx, err, codes.BMCUnreachable)
	}
	var uris []string
	for i := range running {
		uris = append(uris, running[i].URI)
	}
	slices.Sort(uris)
	return uris, nil
}

// StartUpdate starts an update in the way that the BMC has.
func (b *bmcs) StartUpdate(ctx context.Context, p Part, i Image) (Update, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Update{}, err
	}
	defer release()
	if missing, err := differs(ctx, client, &p, &i); err != nil || missing == "" {
		return Update{There: err == nil}, err
	}
	switch others, err := updates(ctx, client, &p); {
	case err != nil:
		return Update{}, err
	case len(others) > 0:
		return Update{}, act.Retry(codes.FirmwareBusy, "another update began on %s: %s", p.Name, strings.Join(others, ", "))
	}
	methods, err := client.UpdateMethods(ctx, p.target())
	if err != nil {
		return Update{}, failed(ctx, err, codes.FirmwareUpdateRefused)
	}
	var task redfish.Task
	if methods.Simple != "" {
		task, err = b.pull(ctx, client, &p, &i)
	} else {
		task, err = b.push(ctx, client, &p, &i)
	}
	switch {
	case errors.Is(err, redfish.ErrUnknownOutcome):
		return Update{}, act.Final(codes.FirmwareStartUnknown, "%v", err)
	case err != nil:
		return Update{}, failed(ctx, err, codes.FirmwareUpdateRefused)
	}
	return Update{Task: task.Mode, URI: task.URI}, nil
}

// pull has the BMC fetch the image, which was found to be the right one.
func (b *bmcs) pull(ctx context.Context, client BMC, p *Part, i *Image) (redfish.Task, error) {
	if i.SHA256 != "" {
		fetching, cancel := fetchTime(ctx)
		defer cancel()
		if err := b.Images.Check(fetching, i.URI, i.SHA256); err != nil {
			return redfish.Task{}, err
		}
	}
	protocol := strings.ToUpper(i.URI[:max(0, strings.Index(i.URI, "://"))])
	return client.Update(ctx, p.target(), redfish.Image{URI: i.URI, Protocol: protocol})
}

// fetchTime is what of an activity's time an image may take: one that takes longer
// is told as that, and not as a start whose answer was lost.
func fetchTime(ctx context.Context) (context.Context, context.CancelFunc) {
	inner, cancel, _ := inTime(ctx, longest)
	until, bounded := inner.Deadline()
	if !bounded {
		return inner, cancel
	}
	shorter, stop := context.WithTimeout(inner, time.Until(until)*8/10)
	return shorter, func() { stop(); cancel() }
}

// push sends the image along.
func (b *bmcs) push(ctx context.Context, client BMC, p *Part, i *Image) (redfish.Task, error) {
	fetching, cancel := fetchTime(ctx)
	defer cancel()
	content, size, drop, err := b.Images.Fetch(fetching, i.URI, i.SHA256)
	if err != nil {
		return redfish.Task{}, err
	}
	defer drop()
	return client.Push(ctx, p.target(), redfish.Upload{Name: path.Base(i.URI), Size: size, Content: content})
}

// FindUpdate looks for what a start whose answer was lost has done: the versions,
// or an update that was not under way before.
func (b *bmcs) FindUpdate(ctx context.Context, p Part, i Image, before Before) (Update, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Update{}, err
	}
	defer release()
	inner, cancel, within := inTime(ctx, findWithin)
	defer cancel()
	var last error
	for began := time.Now(); ; {
		u, found, err := b.find(inner, client, &p, &i, before)
		if last = err; found {
			return u, nil
		}
		if time.Since(began) >= within || !act.Wait(inner, b.pause()) {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return Update{}, ctx.Err()
	case last != nil && !act.IsFinal(last):
		return Update{}, act.Retry(codes.FirmwareStartUnknown, "the answer to the start of the update was lost, and %s cannot be read: %v", p.Name, last)
	}
	return Update{}, act.Final(codes.FirmwareStartUnknown, "the answer to the start of the update was lost; %s shows neither an update nor the versions", p.Name)
}

func (b *bmcs) find(ctx context.Context, client BMC, p *Part, i *Image, before Before) (Update, bool, error) {
	missing, err := differs(ctx, client, p, i)
	if err != nil || missing == "" {
		return Update{There: true}, err == nil, err
	}
	tasks, err := updates(ctx, client, p)
	for _, uri := range tasks {
		if !slices.Contains(before.Tasks, uri) {
			return Update{Task: redfish.ByTask, URI: uri}, true, nil
		}
	}
	return Update{}, false, err
}

// LookAtUpdate looks at an update once. Where the BMC has no word on it the
// versions decide.
func (b *bmcs) LookAtUpdate(ctx context.Context, p Part, i Image, u Update) (Progress, error) {
	client, release, err := b.unit(ctx, &p)
	if err != nil {
		return Progress{}, err
	}
	defer release()
	seen, err := client.TaskProgress(ctx, p.target(), redfish.Task{Mode: u.Task, URI: u.URI})
	if err != nil {
		return Progress{}, failed(ctx, err, codes.BMCUnreachable)
	}
	now := Progress{State: seen.State, Percent: seen.Percent, Text: seen.Text}
	switch seen.Stage {
	case redfish.StageSucceeded:
		now.Done = true
	case redfish.StageFailed:
		now.Failed = true
	case redfish.StageGone:
		missing, err := differs(ctx, client, &p, &i)
		if err != nil {
			return Progress{}, err
		}
		if now.Done = missing == ""; !now.Done {
			others, err := updates(ctx, client, &p)
			now.Gone, now.Text = err == nil && len(others) == 0, "the BMC has no task of it; "+missing
		}
	}
	return now, nil
}
