package redfish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stmcginnis/gofish"
	"github.com/stmcginnis/gofish/schemas"

	"github.com/musterhq/muster/sources"
)

// ErrNoUpdateMethod says that a BMC takes firmware in no way that muster has: it
// is to be asked for before anything is drained for an update.
var ErrNoUpdateMethod = errors.New("no_supported_update_method: the BMC has neither SimpleUpdate nor a multipart push")

// UpdateMethods are the ways in which a BMC takes firmware.
type UpdateMethods struct {
	Simple    string // where SimpleUpdate is sent, "" where it has none
	Multipart string // where an image is pushed, "" where it cannot be
}

// UpdateMethods asks a BMC in which ways it takes firmware; ErrNoUpdateMethod
// where there is none.
func (c *Client) UpdateMethods(ctx context.Context, target Target) (UpdateMethods, error) {
	op := "ask how " + target.Name + " takes firmware"
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return UpdateMethods{}, fault
	}
	defer b.close()
	methods, err := b.methods(ctx)
	if err != nil {
		return UpdateMethods{}, c.classified(op, nil, err)
	}
	return methods, nil
}

func (b *bmc) methods(ctx context.Context) (UpdateMethods, error) {
	if err := b.root(ctx); err != nil {
		return UpdateMethods{}, err
	}
	a, err := b.get(ctx, b.service("UpdateService"))
	if ClassOf(err) == ClassMissing {
		return UpdateMethods{}, ErrNoUpdateMethod
	}
	if err != nil {
		return UpdateMethods{}, err
	}
	var m UpdateMethods
	if uri := a.doc.object("Actions").object("#UpdateService.SimpleUpdate").text("target"); uri != "" {
		if m.Simple, err = b.path(uri); err != nil {
			return UpdateMethods{}, err
		}
	}
	if uri := a.doc.text("MultipartHttpPushUri"); uri != "" {
		if m.Multipart, err = b.path(uri); err != nil {
			return UpdateMethods{}, err
		}
	}
	if on, known := a.doc.boolean("ServiceEnabled"); known && !on || m == (UpdateMethods{}) {
		return m, ErrNoUpdateMethod
	}
	return m, nil
}

// Firmware reads the versions of a BMC's inventory now, by part.
func (c *Client) Firmware(ctx context.Context, target Target) (map[string]string, error) {
	op := "read the firmware of " + target.Name
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return nil, fault
	}
	defer b.close()
	err := b.root(ctx)
	var found map[string]string
	if err == nil {
		found, err = b.firmware(ctx)
	}
	if err != nil {
		return nil, c.failure(op, nil, err)
	}
	return found, nil
}

// Image is firmware that the BMC fetches itself.
type Image struct {
	URI      string
	Protocol string   // TransferProtocol; "" leaves it to the URI
	Targets  []string // of the BMC's inventory; none: what the image is for
}

// Update starts an update from a URI. A lost answer is ErrUnknownOutcome:
// nothing is sent again, Updates and Firmware tell what became of it.
func (c *Client) Update(ctx context.Context, target Target, image Image) (Task, error) {
	return c.start(ctx, "start the update of "+target.Name, target, c.config.Timeout, func(m UpdateMethods) (string, bool) { return m.Simple, m.Simple != "" },
		func(api *gofish.APIClient, path string) (*http.Response, error) {
			return api.Post(path, schemas.UpdateServiceSimpleUpdateParameters{
				ImageURI: image.URI, Targets: image.Targets, TransferProtocol: schemas.TransferProtocolType(image.Protocol),
			})
		})
}

// Upload is firmware that is pushed to the BMC.
type Upload struct {
	Name    string // of the file
	Size    int64  // of Content
	Content io.Reader
	Targets []string
}

// Push starts an update from an image that is sent along, streamed. A lost
// answer is ErrUnknownOutcome.
func (c *Client) Push(ctx context.Context, target Target, u Upload) (Task, error) {
	op := "push an update to " + target.Name
	form, kind, err := u.form()
	if err != nil {
		return Task{}, refusedf(op, err, "%s", err)
	}
	limit := c.config.Timeout + time.Duration(u.Size/slowestPush)*time.Second
	return c.start(ctx, op, target, limit, func(m UpdateMethods) (string, bool) { return m.Multipart, m.Multipart != "" },
		func(api *gofish.APIClient, path string) (*http.Response, error) {
			return api.RunRawRequestWithHeaders(http.MethodPost, path, form, kind, map[string]string{"Content-Length": strconv.FormatInt(form.size, 10)})
		})
}

// slowestPush is how many bytes a second a BMC takes at least.
const slowestPush = 256 << 10

// once is a body that is read once, of a known size.
type once struct {
	io.Reader
	size int64
}

func (once) Seek(int64, int) (int64, error) { return 0, errors.New("the body is sent once") }

// form lays an upload out as DSP0266 says: the parameters first, then the file.
func (u Upload) form() (once, string, error) {
	var head bytes.Buffer
	w := multipart.NewWriter(&head)
	targets := u.Targets
	if targets == nil {
		targets = []string{}
	}
	parameters, err := json.Marshal(map[string]any{"Targets": targets})
	if err != nil {
		return once{}, "", err
	}
	part, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="UpdateParameters"`}, "Content-Type": {"application/json"}})
	if err == nil {
		_, err = part.Write(parameters)
	}
	if err == nil {
		_, err = w.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {fmt.Sprintf(`form-data; name="UpdateFile"; filename=%q`, u.Name)}, "Content-Type": {"application/octet-stream"}})
	}
	if err != nil {
		return once{}, "", err
	}
	before := head.Len()
	if err := w.Close(); err != nil {
		return once{}, "", err
	}
	all := head.Bytes()
	return once{
		Reader: io.MultiReader(bytes.NewReader(all[:before]), io.LimitReader(u.Content, u.Size), bytes.NewReader(all[before:])),
		size:   int64(len(all)) + u.Size,
	}, w.FormDataContentType(), nil
}

func (c *Client) start(ctx context.Context, op string, target Target, limit time.Duration, pick func(UpdateMethods) (string, bool),
	post func(*gofish.APIClient, string) (*http.Response, error)) (Task, error) {
	b, fault := c.acting(ctx, op, target)
	if fault != nil {
		return Task{}, fault
	}
	defer b.close()
	methods, err := b.methods(ctx)
	if err != nil {
		return Task{}, c.classified(op, nil, err)
	}
	path, has := pick(methods)
	if !has {
		return Task{}, c.classified(op, nil, fmt.Errorf("%w of this kind", ErrNoUpdateMethod))
	}
	task := Task{Mode: ByVersion, Started: c.clock()}
	outcome := b.send(ctx, limit, func(api *gofish.APIClient) error {
		resp, err := post(api, path)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // the status has said that it began
		task = b.task(resp.Header, parse(body), task.Started)
		return nil
	})
	switch {
	case outcome.lost:
		return Task{}, unknown(op, outcome.err)
	case outcome.err != nil:
		return Task{}, c.classified(op, nil, outcome.err)
	}
	return task, nil
}

// Budget bounds the wait for an update. Queueing and running have their own:
// controllers put updates behind each other for long.
type Budget struct {
	Queue time.Duration // until it begins, default 30 min
	Run   time.Duration // from then on, default 30 min
	Gap   time.Duration // without any answer, as while the BMC restarts, default 10 min
	Pause time.Duration // between two looks, default 10 s
}

func (b Budget) withDefaults() Budget {
	for d, v := range map[*time.Duration]time.Duration{&b.Queue: 30 * time.Minute, &b.Run: 30 * time.Minute, &b.Gap: 10 * time.Minute, &b.Pause: 10 * time.Second} {
		if *d <= 0 {
			*d = v
		}
	}
	return b
}

// ErrUpdateFailed says that the BMC reports the update as failed.
var ErrUpdateFailed = errors.New("the BMC reports that the update failed")

// ErrVersionMismatch says that the update ended and other versions are read.
var ErrVersionMismatch = errors.New("firmware_version_mismatch: other versions are read than were asked for")

// Await waits for an update's end and reads the versions back: they decide, by
// equality, whatever the task says at its end; a part that is missing is not
// there yet. Nothing is ever sent again because a task is gone. Without wanted
// versions the task's own word is taken, and a task that is gone without one is
// ErrUnknownOutcome.
func (c *Client) Await(ctx context.Context, target Target, task Task, want map[string]string, budget Budget) error {
	op := "wait for the update of " + target.Name
	budget = budget.withDefaults()
	last, err := c.follow(ctx, op, target, task, budget)
	if err != nil {
		return err
	}
	if last.Stage == StageFailed {
		return &sources.Error{Kind: sources.KindConflict, Op: op, Message: fmt.Sprintf("%s (%s): %s", ErrUpdateFailed, last.State, last.Text), Err: ErrUpdateFailed}
	}
	if len(want) == 0 {
		if last.Stage == StageSucceeded {
			return nil
		}
		return unknown(op, nil)
	}
	within := budget.Gap
	if last.Stage == StageGone {
		within = budget.Run
	}
	missing := ""
	done, _ := c.until(ctx, within, budget.Pause, func(ctx context.Context) (bool, error) {
		found, err := c.Firmware(ctx, target)
		if err != nil {
			return false, nil // the BMC may be restarting
		}
		missing = differ(found, want)
		return missing == "", nil
	})
	if !done {
		return &sources.Error{Kind: sources.KindConflict, Op: op, Message: ErrVersionMismatch.Error() + ": " + missing, Err: ErrVersionMismatch}
	}
	c.firmware.forget(target.Address)
	return nil
}

func differ(found, want map[string]string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if found[name] != want[name] {
			parts = append(parts, fmt.Sprintf("%s is %q and not %q", name, found[name], want[name]))
		}
	}
	return strings.Join(parts, "; ")
}

// follow looks at a task until it ends, is gone, or a budget is spent.
func (c *Client) follow(ctx context.Context, op string, target Target, task Task, budget Budget) (Progress, error) {
	began, heard := time.Now(), time.Now()
	var running time.Time
	for wait := max(task.Wait, 0); ; {
		timer := time.NewTimer(min(wait, budget.Gap))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return Progress{}, sources.Failure(op, ctx.Err())
		}
		p, err := c.TaskProgress(ctx, target, task)
		now := time.Now()
		wait = max(budget.Pause, p.Wait)
		switch {
		case err != nil && sources.KindOf(err) == sources.KindForbidden:
			return Progress{}, err
		case err != nil && now.Sub(heard) > budget.Gap:
			return Progress{Stage: StageGone}, nil
		case err != nil:
			continue
		case p.Stage == StageSucceeded || p.Stage == StageFailed || p.Stage == StageGone:
			return p, nil
		case p.Stage == StageRunning && running.IsZero():
			running = now
		}
		heard = now
		if p.Stage == StageQueued && now.Sub(began) > budget.Queue || !running.IsZero() && now.Sub(running) > budget.Run {
			return Progress{}, &sources.Error{Kind: sources.KindTransient, Op: op, Message: fmt.Sprintf("it is still %s after %s", p.State, now.Sub(began).Round(time.Second))}
		}
	}
}
