package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/client"
	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/operations/rule"
)

const rulesPath = "/operation-rules/"

// ruleItem is what is shown of a stored rule.
type ruleItem struct {
	ID            int64     `json:"id"`
	Name          string    `json:"name"`
	Description   *string   `json:"description"`
	OperationType string    `json:"operation_type"`
	Operation     string    `json:"operation"`
	IsDefault     bool      `json:"is_default"`
	Racks         []int64   `json:"racks"`
	Revision      int       `json:"revision"`
	Rule          rule.Rule `json:"rule"`
	UpdatedAt     time.Time `json:"updated_at"`
	UpdatedBy     string    `json:"updated_by"`
}

// storeRules sends checked rules to the server.
func (a *app) storeRules(ctx context.Context, conn *connection, flags *ruleFlags, checked *rule.Checked, output string) error {
	server, err := a.connect(conn)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if flags.fromYAML == "" {
		body := map[string]any{"rule": checked.Rules[0], "is_default": flags.isDefault}
		if err := server.Post(ctx, rulesPath, body, &raw); err != nil {
			return err
		}
		var item ruleItem
		if err := json.Unmarshal(raw, &item); err != nil {
			return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
		}
		if output == "json" {
			return render.JSON(a.stdout, raw)
		}
		fmt.Fprintf(a.stdout, "rule %d for %s is stored%s\n", item.ID, item.Operation, map[bool]string{true: " and the default"}[item.IsDefault])
		return nil
	}
	body := map[string]any{"batch": map[string]any{"version": "v1", "rules": checked.Rules}, "overwrite": flags.overwrite}
	if err := server.Post(ctx, rulesPath+"import/", body, &raw); err != nil {
		return err
	}
	if output == "json" {
		return render.JSON(a.stdout, raw)
	}
	var done struct {
		Rules []struct {
			Outcome string   `json:"outcome"`
			Rule    ruleItem `json:"rule"`
		} `json:"rules"`
	}
	if err := json.Unmarshal(raw, &done); err != nil {
		return fmt.Errorf("read the answer: %w: is the server of the same version?", err)
	}
	var rows [][]string
	for _, one := range done.Rules {
		outcome := one.Outcome
		if outcome == "skipped" {
			outcome += ": there is a rule, --overwrite replaces it"
		}
		rows = append(rows, []string{strconv.FormatInt(one.Rule.ID, 10), one.Rule.Operation, outcome, render.Line(one.Rule.Name)})
	}
	return render.Table(a.stdout, []string{"ID", "OPERATION", "OUTCOME", "NAME"}, rows)
}

func (a *app) ruleListCommand() *cobra.Command {
	var operation string
	var rack int64
	c := &cobra.Command{Use: "list", Short: "List the stored operation rules, or those that a rack goes by", Args: cobra.NoArgs}
	output := outputFlag(c)
	conn := a.connectFlags(c)
	c.Flags().StringVar(&operation, "operation", "", "only rules for this operation")
	c.Flags().Int64Var(&rack, "rack-id", 0, "only rules of its own that the rack with this id goes by")
	c.MarkFlagsMutuallyExclusive("operation", "rack-id")
	c.RunE = func(c *cobra.Command, _ []string) error {
		path := rulesPath
		if c.Flags().Changed("rack-id") {
			if rack < 1 {
				return usage("--rack-id %d: racks have ids from 1 on", rack)
			}
			path = fmt.Sprintf("/racks/%d/operation-rules/", rack)
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		query := url.Values{}
		if operation != "" {
			query.Set("operation", operation)
		}
		if output.value == "json" {
			items, err := client.List[json.RawMessage](c.Context(), server, path, query, 0)
			if err != nil {
				return err
			}
			return render.JSON(a.stdout, items)
		}
		items, err := client.List[ruleItem](c.Context(), server, path, query, 0)
		if err != nil {
			return err
		}
		var rows [][]string
		for i := range items {
			r := &items[i]
			rows = append(rows, []string{
				strconv.FormatInt(r.ID, 10), r.OperationType, r.Operation, render.YesNo(r.IsDefault), strconv.Itoa(len(r.Racks)), strconv.Itoa(r.Revision), r.UpdatedBy, render.Age(r.UpdatedAt, a.now()), render.Line(r.Name),
			})
		}
		return render.Table(a.stdout, []string{"ID", "TYPE", "OPERATION", "DEFAULT", "RACKS", "REVISION", "BY", "UPDATED", "NAME"}, rows)
	}
	return c
}

// ruleIDFlag lets a command take the id of a rule, as --id or by itself.
func ruleIDFlag(c *cobra.Command) func(args []string) (int64, error) {
	var id int64
	c.Use += " --id ID"
	c.Args = cobra.MaximumNArgs(1)
	c.Flags().Int64Var(&id, "id", 0, "id of the rule, as `muster rule list` shows it")
	return func(args []string) (int64, error) {
		if len(args) == 1 {
			n, err := strconv.ParseInt(args[0], 10, 64)
			if err != nil || id != 0 {
				return 0, usage("%q is no rule: rules have numbers, `muster rule list` shows them", args[0])
			}
			id = n
		}
		if id < 1 {
			return 0, usage("which rule? Say it as --id ID: `muster rule list` shows them")
		}
		return id, nil
	}
}

func rulePath(id int64) string { return fmt.Sprintf("%s%d/", rulesPath, id) }

func (a *app) ruleGetCommand() *cobra.Command {
	c := &cobra.Command{Use: "get", Short: "Show one operation rule, as JSON"}
	take := ruleIDFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := take(args)
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		_, err = show[json.RawMessage](c.Context(), a, server, rulePath(id), nil, "json")
		return err
	}
	return c
}

func (a *app) ruleDeleteCommand() *cobra.Command {
	c := &cobra.Command{Use: "delete", Short: "Delete an operation rule that nothing stands on"}
	take := ruleIDFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := take(args)
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		if err := server.Delete(c.Context(), rulePath(id)); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "rule %d is deleted\n", id)
		return nil
	}
	return c
}

func (a *app) ruleSetDefaultCommand() *cobra.Command {
	c := &cobra.Command{Use: "set-default", Short: "Make a rule the default of its operation, in the place of another"}
	take := ruleIDFlag(c)
	conn := a.connectFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := take(args)
		if err != nil {
			return err
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var item ruleItem
		if err := server.Post(c.Context(), rulePath(id)+"set-default/", map[string]string{}, &item); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "rule %d is the default of %s\n", id, item.Operation)
		return nil
	}
	return c
}

func rackRulePath(rack int64, operation string) string {
	return fmt.Sprintf("/racks/%d/operation-rules/%s/", rack, url.PathEscape(operation))
}

func (a *app) ruleAssociateCommand() *cobra.Command {
	var rack, id int64
	c := &cobra.Command{
		Use:   "associate --rack-id ID --rule-id ID",
		Short: "Let a rack do an operation by a rule of its own",
		Args:  cobra.NoArgs,
	}
	conn := a.connectFlags(c)
	c.Flags().Int64Var(&rack, "rack-id", 0, "id of the rack")
	c.Flags().Int64Var(&id, "rule-id", 0, "id of the rule, which says for which operation")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if rack < 1 || id < 1 {
			return usage("which rack, by which rule? Say it as --rack-id ID --rule-id ID")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		var item ruleItem
		if err := server.Get(c.Context(), rulePath(id), nil, &item); err != nil {
			return err
		}
		if err := server.Put(c.Context(), rackRulePath(rack, item.Operation), map[string]int64{"rule_id": id}, &item); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "rack %d does %s by rule %d\n", rack, item.Operation, id)
		return nil
	}
	return c
}

func (a *app) ruleDisassociateCommand() *cobra.Command {
	var rack int64
	var operation string
	c := &cobra.Command{
		Use:   "disassociate --rack-id ID --operation CODE",
		Short: "Take its own rule for an operation from a rack",
		Args:  cobra.NoArgs,
	}
	conn := a.connectFlags(c)
	c.Flags().Int64Var(&rack, "rack-id", 0, "id of the rack")
	c.Flags().StringVar(&operation, "operation", "", "the operation's code, such as power_on")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if rack < 1 || operation == "" {
			return usage("which rack, for which operation? Say it as --rack-id ID --operation CODE")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		if err := server.Delete(c.Context(), rackRulePath(rack, operation)); err != nil {
			return err
		}
		fmt.Fprintf(a.stdout, "rack %d does %s by the default again\n", rack, operation)
		return nil
	}
	return c
}

// planForRack lets the server count the components of a rack.
func (a *app) planForRack(ctx context.Context, conn *connection, flags *planFlags, v *rule.Validator, name, output string) error {
	bodies := []map[string]any{{"rack_id": flags.rack, "operation": flags.operation}}
	if name == "" {
		if _, err := flags.kind(v); err != nil {
			return err
		}
	} else {
		checked, err := flags.read(v, name)
		var invalid *rule.Invalid
		switch {
		case errors.As(err, &invalid):
			return a.refusedRules(err)
		case err != nil:
			return err
		}
		a.warnOfRules(name, checked.Warnings)
		bodies = nil
		for i := range checked.Rules {
			bodies = append(bodies, map[string]any{"rack_id": flags.rack, "rule": checked.Rules[i]})
		}
	}
	server, err := a.connect(conn)
	if err != nil {
		return err
	}
	var results []planResult
	missing := false
	for _, body := range bodies {
		var result planResult
		if err := server.Post(ctx, rulesPath+"plan/", body, &result); err != nil {
			return err
		}
		missing = missing || len(result.Missing) > 0
		results = append(results, result)
	}
	return a.printPlanned(results, missing, output)
}
