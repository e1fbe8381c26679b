package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

func (a *app) sourceCommand() *cobra.Command {
	return parent("source", "Look at how well sites are read", a.sourceListCommand(), a.sourceShowCommand(), a.sourceConfirmCommand())
}

// sourceItem is how well one source of a site is read.
type sourceItem struct {
	Site          string         `json:"site"`
	Source        string         `json:"source"`
	State         string         `json:"state"`
	ReadAt        *time.Time     `json:"read_at"`
	Stale         bool           `json:"stale"`
	FailingSince  *time.Time     `json:"failing_since"`
	Reason        *string        `json:"reason"`
	Alert         *string        `json:"alert"`
	FindingCounts map[string]int `json:"finding_counts"`
}

// sourceDetail adds what a person should know of it.
type sourceDetail struct {
	sourceItem
	Missing *struct {
		Hash  string   `json:"hash"`
		Count int      `json:"count"`
		Refs  []string `json:"refs"`
	} `json:"missing"`
	Findings []struct {
		Kind     string          `json:"kind"`
		Ref      string          `json:"ref"`
		DeviceID *int64          `json:"device_id"`
		Detail   json.RawMessage `json:"detail"`
		Since    time.Time       `json:"since"`
	} `json:"findings"`
	Next *string `json:"next"`
}

func sourcePath(site, source string) string {
	return "/sites/" + url.PathEscape(site) + "/sources/" + url.PathEscape(source) + "/"
}

func (a *app) sourceListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list [SITE]", Short: "List the sources, of one site or of all", Args: cobra.MaximumNArgs(1)}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		sites := args
		if len(sites) == 0 {
			all, err := client.All[struct {
				Name string `json:"name"`
			}](c.Context(), server, "/sites/")
			if err != nil {
				return err
			}
			for _, site := range all {
				sites = append(sites, site.Name)
			}
		}
		raw := []json.RawMessage{}
		for _, site := range sites {
			items, err := client.All[json.RawMessage](c.Context(), server, "/sites/"+url.PathEscape(site)+"/sources/")
			if err != nil {
				return err
			}
			raw = append(raw, items...)
		}
		if output.value == "json" {
			return render.JSON(a.stdout, raw)
		}
		return a.printSources(raw)
	}
	return c
}

func (a *app) printSources(raw []json.RawMessage) error {
	var rows [][]string
	for _, one := range raw {
		var s sourceItem
		if err := json.Unmarshal(one, &s); err != nil {
			return fmt.Errorf("read the answer: %w", err)
		}
		rows = append(rows, []string{s.Site, s.Source, a.ago(s.ReadAt), a.standing(&s), findingCounts(s.FindingCounts), orEmpty(s.Alert)})
	}
	return render.Table(a.stdout, []string{"SITE", "SOURCE", "READ", "STATE", "FINDINGS", "ALERT"}, rows)
}

func (a *app) ago(at *time.Time) string {
	if at == nil {
		return "never"
	}
	return render.Age(*at, a.now())
}

// standing says in a word how a source is.
func (a *app) standing(s *sourceItem) string {
	var words []string
	if s.State == "waiting" || s.Alert != nil {
		words = append(words, "waits for a person")
	}
	if s.Stale {
		words = append(words, "stale")
	}
	if s.FailingSince != nil {
		words = append(words, "failing since "+a.ago(s.FailingSince))
	}
	if s.Reason != nil {
		words = append(words, *s.Reason)
	}
	if len(words) == 0 {
		return "good"
	}
	return strings.Join(words, ", ")
}

func findingCounts(counts map[string]int) string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %d", kind, counts[kind]))
	}
	return strings.Join(words, ", ")
}

func (a *app) sourceShowCommand() *cobra.Command {
	c := &cobra.Command{Use: "show SITE SOURCE", Short: "Show one source, with what a person should know of it", Args: cobra.ExactArgs(2)}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		s, err := show[sourceDetail](c.Context(), a, server, sourcePath(args[0], args[1]), url.Values{"limit": {"1000"}}, output.value)
		if err != nil || output.value == "json" {
			return err
		}
		return a.printSource(&s)
	}
	return c
}

func (a *app) printSource(s *sourceDetail) error {
	rows := [][]string{
		{"source", s.Source + " of site " + s.Site}, {"read", a.ago(s.ReadAt)}, {"state", a.standing(&s.sourceItem)},
	}
	if s.Alert != nil {
		rows = append(rows, []string{"alert", *s.Alert})
	}
	if s.Missing != nil {
		refs := strings.Join(s.Missing.Refs[:min(len(s.Missing.Refs), 20)], ", ")
		rows = append(rows, []string{"missing", fmt.Sprintf("%d: %s", s.Missing.Count, refs)},
			[]string{"confirm", fmt.Sprintf("if they are really gone: muster source confirm %s %s --hash %s", s.Site, s.Source, s.Missing.Hash)})
	}
	if err := render.Pairs(a.stdout, rows); err != nil || len(s.Findings) == 0 {
		return err
	}
	var findings [][]string
	for _, f := range s.Findings {
		device := ""
		if f.DeviceID != nil {
			device = fmt.Sprint(*f.DeviceID)
		}
		findings = append(findings, []string{f.Kind, f.Ref, device, a.ago(&f.Since), detailText(f.Detail)})
	}
	fmt.Fprintln(a.stdout)
	if err := render.Table(a.stdout, []string{"FINDING", "REF", "DEVICE", "SINCE", "DETAIL"}, findings); err != nil {
		return err
	}
	if s.Next != nil {
		fmt.Fprintf(a.stderr, "there are more findings: %s\n", *s.Next)
	}
	return nil
}

// detailText spells what a finding says in words: an object as its fields in
// the order of their names.
func detailText(detail json.RawMessage) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(detail, &fields) != nil || len(fields) == 0 {
		return strings.Trim(string(detail), "{}")
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		words = append(words, name+" "+valueText(fields[name]))
	}
	return strings.Join(words, ", ")
}

func valueText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return strconv.Quote(text)
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) == nil {
		return "(" + detailText(value) + ")"
	}
	return string(value)
}

func (a *app) sourceConfirmCommand() *cobra.Command {
	var hash string
	c := &cobra.Command{
		Use:   "confirm SITE SOURCE",
		Short: "Say that what a source lists no more is really gone",
		Long: `Confirm says that exactly the records which a source lacks now, as ` + "`muster source show`" + `
prints them with their hash, are gone. If it lacks others by now, nothing is
confirmed (exit code 1).`,
		Args: cobra.ExactArgs(2),
	}
	conn := a.connectFlags(c)
	c.Flags().StringVar(&hash, "hash", "", "of the missing set that you looked at")
	c.RunE = func(c *cobra.Command, args []string) error {
		if hash == "" {
			return usage("look first: `muster source show %s %s` prints what is missing and the --hash of it", args[0], args[1])
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var answer struct {
			Confirmed int `json:"confirmed"`
		}
		if err := server.Post(c.Context(), sourcePath(args[0], args[1])+"confirm/", map[string]string{"hash": hash}, &answer); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "confirmed for %s: it counts from the next listing on that still says the same\n", render.Plural(answer.Confirmed, "record"))
		return nil
	}
	return c
}
