package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/musterhq/muster/store"
)

const (
	streamsMost = 200              // at a time
	streamFor   = time.Hour        // of one connection: who watches on connects anew
	streamLook  = time.Second      // between looks at what is followed
	streamBeat  = 15 * time.Second // of silence, until a comment shows that the connection lives
	streamWrite = 15 * time.Second // that one event may take: a reader that is slower is let go
)

// streamHandler answers with events for as long as there are any. What it
// refuses before the first it gives as an error.
type streamHandler func(w http.ResponseWriter, r *request) error

// streaming tells the addresses that answer with events: nothing but their
// handlers ends them.
func streaming(path string) bool { return strings.HasSuffix(path, "/events/") }

// jobEvent is what a watcher of a job is told: first the whole, then what
// changed.
type jobEvent struct {
	Job     jobView         `json:"job"`
	Devices []jobDeviceView `json:"devices"`
}

// events writes server-sent events to one connection.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	wrote   time.Time
}

// followJob tells how a job goes until it has ended. Each connection begins with
// a snapshot; of a job that has ended there is nothing to tell.
func (s *Server) followJob(w http.ResponseWriter, r *request) error {
	row, err := s.job(r)
	if err != nil {
		return err
	}
	if row.Status.Ended() {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead {
		openEvents(w)
		return nil
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	devices, err := s.jobDevices(r.Context(), row.ID)
	if err != nil {
		return err
	}
	out := openEvents(w)
	last := jobEvent{viewJob(&row), devices}
	if out.send("snapshot", last) != nil {
		return nil // the watcher is gone
	}
	s.followOn(out, r, last)
	return nil
}

// enter takes a place among those who follow events; leave gives it back.
func (s *Server) enter() (leave func(), err error) {
	select {
	case s.streams <- struct{}{}:
		return func() { <-s.streams }, nil
	default:
		return nil, refuse(http.StatusServiceUnavailable, "too_many_streams", "%d connections follow events here already: ask for the job itself instead", streamsMost).set("Retry-After", "10")
	}
}

// followOn sends what changes until the job has ended, the watcher is gone or
// this server ends.
func (s *Server) followOn(out *events, r *request, last jobEvent) {
	tick := time.NewTicker(streamLook)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.ending:
			return
		case <-tick.C:
		}
		row, err := s.jobByID(r, last.Job.ID)
		if err != nil {
			return // it connects anew and learns why
		}
		devices, err := s.jobDevices(r.Context(), row.ID)
		if err != nil {
			return
		}
		now := jobEvent{viewJob(&row), devices}
		name, told := "change", jobEvent{now.Job, changed(last.Devices, devices)}
		if row.Status.Ended() {
			name = "end"
		}
		switch {
		case name == "end" || len(told.Devices) > 0 || !reflect.DeepEqual(now.Job, last.Job):
			err = out.send(name, told)
		default:
			err = out.beat()
		}
		if err != nil || name == "end" {
			return
		}
		last = now
	}
}

// jobDevices reads every device of a job.
func (s *Server) jobDevices(ctx context.Context, id int64) ([]jobDeviceView, error) {
	views, after := []jobDeviceView{}, int64(0)
	for {
		rows, err := store.JobDevices(ctx, s.DB, id, after, maxLimit)
		if err != nil {
			return nil, err
		}
		views = append(views, viewJobDevices(rows, s.Policies.Current())...)
		if len(rows) < maxLimit {
			return views, nil
		}
		after = rows[len(rows)-1].DeviceID
	}
}

// changed gives the devices that are not as they were. A job has the same ones
// in the same order always.
func changed(before, now []jobDeviceView) []jobDeviceView {
	differ := []jobDeviceView{}
	for i := range now {
		if i >= len(before) || !reflect.DeepEqual(before[i], now[i]) {
			differ = append(differ, now[i])
		}
	}
	return differ
}

func openEvents(w http.ResponseWriter) *events {
	e := &events{w: w, control: http.NewResponseController(w), wrote: time.Now()}
	_ = e.control.SetReadDeadline(time.Time{}) // the request was read; where it cannot be set there is none
	head := w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // a proxy passes each event on as it comes
	w.WriteHeader(http.StatusOK)
	return e
}

func (e *events) send(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, data))
}

// beat shows after a while of silence that the connection lives.
func (e *events) beat() error {
	if time.Since(e.wrote) < streamBeat {
		return nil
	}
	return e.write(": still here\n\n")
}

func (e *events) write(text string) error {
	e.wrote = time.Now()
	_ = e.control.SetWriteDeadline(e.wrote.Add(streamWrite)) // a recorder of tests has none
	if _, err := e.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if err := e.control.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}
