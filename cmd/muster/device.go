package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
)

func (a *app) deviceCommand() *cobra.Command {
	return parent("device", "Look at devices", a.deviceListCommand(), a.deviceShowCommand(), a.devicePromoteCommand())
}

// deviceItem is what the tables show of a device.
type deviceItem struct {
	ID                   int64     `json:"id"`
	Name                 string    `json:"name"`
	Site                 string    `json:"site"`
	Rack                 *string   `json:"rack"`
	Position             *string   `json:"position"`
	Serial               *string   `json:"serial"`
	DeviceClass          string    `json:"device_class"`
	InventoryStatus      string    `json:"inventory_status"`
	OperationalStatus    string    `json:"operational_status"`
	HealthStatus         string    `json:"health_status"`
	CustomerReady        bool      `json:"customer_ready"`
	StatusFresh          bool      `json:"status_fresh"`
	Held                 bool      `json:"held"`
	Frozen               bool      `json:"frozen"`
	Rung                 *string   `json:"rung"`
	IronicProvisionState *string   `json:"ironic_provision_state"`
	SlurmStates          []string  `json:"slurm_states"`
	FailureReason        *string   `json:"failure_reason"`
	UpdatedAt            time.Time `json:"updated_at"`
}

func (a *app) deviceListCommand() *cobra.Command {
	var limit int
	filters := map[string]*[]string{}
	var ready, triage bool
	var retired string
	c := &cobra.Command{
		Use:   "list",
		Short: "List devices",
		Long:  "List lists devices. Values of one filter are alternatives, several filters all\nhold. A name may hold * for any text.",
		Args:  cobra.NoArgs,
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	for _, f := range []struct{ flag, parameter, says string }{
		{"name", "name", "names"}, {"site", "site", "sites"}, {"rack", "rack", "racks"}, {"class", "device_class", "classes"},
		{"status", "operational_status", "operational statuses"}, {"health", "health_status", "health statuses"},
		{"inventory", "inventory_status", "inventory statuses"}, {"slurm", "slurm_states", "states of SLURM, such as DRAIN"},
	} {
		filters[f.parameter] = c.Flags().StringSlice(f.flag, nil, "only these "+f.says)
	}
	c.Flags().BoolVar(&ready, "customer-ready", false, "only those that are ready for customers; =false: the others")
	c.Flags().BoolVar(&triage, "in-triage", false, "only those in triage; =false: the others")
	c.Flags().StringVar(&retired, "retired", "", "retired devices: true (only these), false (default), any")
	c.Flags().IntVar(&limit, "limit", 0, "at most so many (default all)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		query := url.Values{}
		for parameter, values := range filters {
			query[parameter] = append(query[parameter], *values...)
		}
		for flag, parameter := range map[string]string{"customer-ready": "customer_ready", "in-triage": "in_triage"} {
			if c.Flags().Changed(flag) {
				query.Set(parameter, c.Flags().Lookup(flag).Value.String())
			}
		}
		if retired != "" {
			query.Set("retired", retired)
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		if output.value == "json" {
			items, err := client.List[json.RawMessage](c.Context(), server, "/devices/", query, limit)
			if err != nil {
				return err
			}
			return render.JSON(a.stdout, items)
		}
		items, err := client.List[deviceItem](c.Context(), server, "/devices/", query, limit)
		if err != nil {
			return err
		}
		return render.Table(a.stdout, deviceHeader, deviceRows(items))
	}
	return c
}

var deviceHeader = []string{"ID", "NAME", "SITE", "RACK", "CLASS", "STATUS", "RUNG", "HEALTH", "READY", "INVENTORY", "IRONIC", "SLURM"}

func deviceRows(items []deviceItem) [][]string {
	var rows [][]string
	for i := range items {
		d := &items[i]
		rows = append(rows, []string{
			strconv.FormatInt(d.ID, 10), d.Name, d.Site, orEmpty(d.Rack), d.DeviceClass, d.OperationalStatus + mark(d), orEmpty(d.Rung), d.HealthStatus,
			render.YesNo(d.CustomerReady), d.InventoryStatus, orEmpty(d.IronicProvisionState), strings.Join(d.SlurmStates, "+"),
		})
	}
	return rows
}

// mark says in a word how far a status can be relied on.
func mark(d *deviceItem) string {
	switch {
	case d.Frozen:
		return " (frozen)"
	case d.Held:
		return " (held)"
	case !d.StatusFresh:
		return " (stale)"
	}
	return ""
}

func orEmpty(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

// deviceDetail is a device as its own address shows it.
type deviceDetail struct {
	deviceItem
	Conditions []struct {
		Type    string  `json:"type"`
		Status  string  `json:"status"`
		Reason  *string `json:"reason"`
		Message *string `json:"message"`
	} `json:"operational_status_conditions"`
	Stale []struct {
		Type     string `json:"type"`
		Reason   string `json:"reason"`
		PastHold bool   `json:"past_hold"`
	} `json:"stale_conditions"`
	Sources []struct {
		Source     string    `json:"source"`
		Ref        *string   `json:"ref"`
		RefGone    bool      `json:"ref_gone"`
		ObservedAt time.Time `json:"observed_at"`
		Unread     *struct {
			Reason string `json:"reason"`
		} `json:"unread"`
	} `json:"sources"`
}

func (a *app) deviceShowCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "show NAME|ID",
		Short: "Show one device, with the conditions that decided its status",
		Args:  cobra.ExactArgs(1),
	}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		id, err := device(c.Context(), server, args[0])
		if err != nil {
			return err
		}
		d, err := show[deviceDetail](c.Context(), a, server, fmt.Sprintf("/devices/%d/", id), nil, output.value)
		if err != nil || output.value == "json" {
			return err
		}
		return a.printDevice(&d)
	}
	return c
}

func (a *app) devicePromoteCommand() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use:   "promote NAME|ID",
		Short: "Make an inventory-only device one that is observed and derived, for good",
		Args:  cobra.ExactArgs(1),
	}
	conn := a.connectFlags(c)
	c.Flags().StringVar(&reason, "reason", "", "why, for the history and the audit log (required)")
	c.RunE = func(c *cobra.Command, args []string) error {
		if strings.TrimSpace(reason) == "" {
			return usage("say why with --reason: a promotion is for good, and audited")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		id, err := device(c.Context(), server, args[0])
		if err != nil {
			return err
		}
		var d deviceItem
		if err := server.Post(c.Context(), fmt.Sprintf("/devices/%d/promote/", id), map[string]string{"reason": reason}, &d); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "%s of site %s is derived from now on: %s\n", d.Name, d.Site, d.OperationalStatus)
		return nil
	}
	return c
}

func (a *app) printDevice(d *deviceDetail) error {
	rows := [][]string{
		{"device", fmt.Sprintf("%s, id %d, site %s", d.Name, d.ID, d.Site)},
		{"rack", strings.TrimSpace(orEmpty(d.Rack) + " " + orEmpty(d.Position))},
		{"serial", orEmpty(d.Serial)},
		{"class", d.DeviceClass},
		{"status", d.OperationalStatus + mark(&d.deviceItem)},
		{"rung", orEmpty(d.Rung)},
		{"health", d.HealthStatus},
		{"inventory", d.InventoryStatus},
		{"customer ready", render.YesNo(d.CustomerReady)},
		{"ironic", orEmpty(d.IronicProvisionState)},
		{"slurm", strings.Join(d.SlurmStates, "+")},
	}
	if d.FailureReason != nil {
		rows = append(rows, []string{"failure", *d.FailureReason})
	}
	for _, c := range d.Conditions {
		rows = append(rows, []string{"decided by", strings.TrimRight(c.Type+" "+c.Status+" "+orEmpty(c.Reason)+" "+orEmpty(c.Message), " ")})
	}
	for _, s := range d.Stale {
		text := s.Type + ": " + s.Reason
		if s.PastHold {
			text += ", past its hold limit"
		}
		rows = append(rows, []string{"stale", text})
	}
	for _, s := range d.Sources {
		says := s.Source + " as " + orEmpty(s.Ref)
		switch {
		case s.Ref == nil:
			says = s.Source + " does not have it"
		case s.RefGone:
			says = s.Source + " has it no more (" + *s.Ref + ")"
		}
		if s.Unread != nil {
			says += ", unread: " + s.Unread.Reason
		}
		rows = append(rows, []string{"source", fmt.Sprintf("%s, observed %s", says, render.Age(s.ObservedAt, a.now()))})
	}
	return render.Pairs(a.stdout, rows)
}
