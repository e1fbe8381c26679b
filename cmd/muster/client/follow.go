package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	eventMost     = 64 << 20         // bytes of one event
	silenceMost   = 45 * time.Second // the server shows every 15 s that the connection lives
	followTries   = 60               // in a row without an event
	followBetween = time.Second
)

// Event is one thing that a server tells of what is followed.
type Event struct {
	Name string
	Data []byte
}

// Once makes a client whose posts the server takes once only under this key; ""
// is the client itself.
func (c *Client) Once(key string) *Client {
	if key == "" {
		return c
	}
	once := *c
	once.key = key
	return &once
}

// Follow gives the events of a path below /api/v1 to f until f says that it has
// seen the last, or the server has nothing (more) to tell. A connection that
// breaks is made anew: f sees another snapshot.
func (c *Client) Follow(ctx context.Context, path string, f func(Event) (last bool, err error)) error {
	for failures := 0; ; {
		told, ended, err := c.follow(ctx, path, f)
		switch {
		case ended:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case told:
			failures = 0
		}
		if failures++; failures > followTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(followBetween):
		}
	}
}

// follow reads one connection. ended says that it is no use to make another one.
func (c *Client) follow(ctx context.Context, path string, f func(Event) (bool, error)) (told, ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(silenceMost, cancel)
	defer silence.Stop()
	r, err := c.request(ctx, http.MethodGet, apiRoot+path, nil)
	if err != nil {
		return false, true, err
	}
	answer, err := c.stream.Do(r)
	if err != nil {
		return false, false, fmt.Errorf("%w at %s: is it running? (%w)", ErrUnreachable, c.base, err)
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode == http.StatusNoContent:
		return false, true, nil
	case answer.StatusCode != http.StatusOK:
		data, _ := io.ReadAll(io.LimitReader(answer.Body, eventMost)) // what came of it tells
		return false, answer.StatusCode < http.StatusInternalServerError, problem(c.base+path, answer, data)
	}
	lines := bufio.NewReader(answer.Body)
	var event Event
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return told, false, fmt.Errorf("%w at %s: its events broke off: %w", ErrUnreachable, c.base, err)
		}
		silence.Reset(silenceMost)
		line = bytes.TrimRight(line, "\r\n")
		switch field, value, _ := strings.Cut(string(line), ": "); {
		case field == "event":
			event.Name = value
		case field == "data":
			event.Data = append(event.Data, value...)
		case len(line) == 0 && event.Name != "":
			told = true
			last, err := f(event)
			if last || err != nil {
				return told, true, err
			}
			event = Event{}
		}
		if len(event.Data) > eventMost {
			return told, true, errors.New("follow: an event of the server is too large")
		}
	}
}
