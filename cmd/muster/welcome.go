package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/dev"
	"github.com/musterhq/muster/embedded"
)

const (
	firstDevices = 10 * time.Second // how long the welcome waits for devices
	firstDrained = 2 * time.Second  // of that, for one that is drained
	firstFleet   = 8 * time.Second  // the same where a simulated fleet is read for the first time
	firstPause   = 250 * time.Millisecond
)

// welcome says where the server is and what to do next. It waits a moment for
// the first devices, so that the commands it shows name one that is there.
func (a *app) welcome(ctx context.Context, r dev.Running, facts string) {
	patience := firstDrained
	if r.Fleet {
		patience = firstFleet
	}
	name := firstName(ctx, r.Credentials, patience)
	if ctx.Err() != nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "muster is ready at %s\n\n", r.URL)
	if r.Moved != "" {
		fmt.Fprintf(&b, "  what was here before is in %s\n", r.Moved)
	}
	fmt.Fprintf(&b, "  policies  %s  (edit one and save: it decides from then on)\n", r.Policies)
	if facts != "" {
		fmt.Fprintf(&b, "  facts     %s  (edit a file: the world has changed)\n", facts)
	}
	if r.Fleet {
		fmt.Fprintf(&b, "  fleet     simulated, it lives by itself  (`%s simulator --help`: make it misbehave)\n", a.args[0])
	}
	fmt.Fprintf(&b, "  jobs      %s\n", r.Temporal)
	fmt.Fprintf(&b, "  data      %s\n", r.DataDir)
	fmt.Fprintf(&b, "\nOpen it:\n\n  %s/ui/login/?token=%s\n", r.URL, r.Token)
	fmt.Fprintf(&b, "\nAsk it:\n\n  curl -H 'Authorization: Bearer %s' %s/api/v1/fleet/summary/\n", r.Token, r.URL)
	program := a.args[0]
	where := ""
	if usual, err := embedded.DefaultDir(a.getenv); err != nil || usual != r.DataDir {
		where = " --data-dir " + quoted(r.DataDir)
	}
	b.WriteString("\nNext:\n\n")
	for _, next := range a.next(ctx, r, facts, name) {
		fmt.Fprintf(&b, "  %s %s\n", program, strings.Replace(next, atDir, where, 1))
	}
	fmt.Fprintln(a.stdout, b.String())
}

// atDir stands in a command for the flag that names the data directory.
const atDir = " @"

// next gives three commands that fit what runs.
func (a *app) next(ctx context.Context, r dev.Running, facts, name string) []string {
	switch {
	case r.Fleet:
		return []string{
			"explain device " + quoted(name) + atDir,
			"simulator fault health " + quoted(healthyName(ctx, r.Credentials)) + " --part gpus --state Critical" + atDir + "  (and see it react)",
			"vet " + quoted(r.Policies) + "  (after an edit of policies/status/operational.cue)",
		}
	case facts == "" && name == noName:
		return []string{"device list" + atDir, "explain device " + quoted(name) + atDir, "site apply FILE" + atDir}
	}
	return []string{"device list" + atDir, "explain device " + quoted(name) + atDir, "vet " + quoted(r.Policies)}
}

// healthyName gives the name of a device that a customer has, if possible a
// healthy one, so that a fault of it is seen.
func healthyName(ctx context.Context, credentials client.Credentials) string {
	server, err := client.New(credentials)
	if err != nil {
		return noName
	}
	for _, query := range []url.Values{
		{"operational_status": {"in_use"}, "health_status": {"healthy"}},
		{"operational_status": {"in_use"}}, // BMCs are read last
	} {
		if found, err := client.List[deviceItem](ctx, server, "/devices/", query, 1); err == nil && len(found) > 0 {
			return found[0].Name
		}
	}
	return "sim1-r01-c01"
}

// noName stands for a device where there is none yet.
const noName = "NAME"

// firstName gives the name of a device worth explaining: one in quarantine if
// there is any, if possible one that SLURM has drained.
func firstName(ctx context.Context, credentials client.Credentials, drained time.Duration) string {
	server, err := client.New(credentials)
	if err != nil {
		return noName
	}
	if sites, err := client.All[struct{}](ctx, server, "/sites/"); err != nil || len(sites) == 0 {
		return noName
	}
	began := time.Now()
	for ctx.Err() == nil && time.Since(began) < firstDevices {
		query := url.Values{"operational_status": {"quarantine"}}
		if time.Since(began) < drained {
			query.Set("slurm_states", "DRAIN")
		}
		if found, err := client.List[deviceItem](ctx, server, "/devices/", query, 1); err == nil && len(found) > 0 {
			return found[0].Name
		}
		select {
		case <-ctx.Done():
		case <-time.After(firstPause):
		}
	}
	return noName
}

// quoted spells a word for a shell.
func quoted(word string) string {
	if word != "" && strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:@%+=-") == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
