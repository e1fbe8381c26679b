package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"github.com/musterhq/muster/cmd/muster/client"
)

// show asks for one thing. For machines it prints the answer as it came and
// gives it back all the same.
func show[T any](ctx context.Context, a *app, server *client.Client, path string, query url.Values, output string) (T, error) {
	var raw json.RawMessage
	var value T
	if err := server.Get(ctx, path, query, &raw); err != nil {
		return value, err
	}
	if output == "json" {
		var out bytes.Buffer
		if err := json.Indent(&out, raw, "", "  "); err != nil {
			return value, fmt.Errorf("read the answer: %w", err)
		}
		out.WriteByte('\n')
		if _, err := a.stdout.Write(out.Bytes()); err != nil {
			return value, err
		}
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, fmt.Errorf("read the answer: %w: is the server of the same version?", err)
	}
	return value, nil
}

// device finds the id of a device by its name or its id.
func device(ctx context.Context, server *client.Client, nameOrID string) (int64, error) {
	if id, err := strconv.ParseInt(nameOrID, 10, 64); err == nil && id > 0 {
		return id, nil
	}
	found, err := client.List[deviceItem](ctx, server, "/devices/", url.Values{"name": {nameOrID}, "retired": {"any"}}, 10)
	if err != nil {
		return 0, err
	}
	switch len(found) {
	case 0:
		return 0, nope("no device is called %q: `muster device list` shows them", nameOrID)
	case 1:
		return found[0].ID, nil
	}
	text := fmt.Sprintf("%d devices or more are called %q, name one by its id:", len(found), nameOrID)
	for _, d := range found {
		text += fmt.Sprintf("\n  %d  %s at %s", d.ID, d.Name, d.Site)
	}
	return 0, nope("%s", text)
}
