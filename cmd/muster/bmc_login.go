package main

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) bmcAllowLoginCommand() *cobra.Command {
	var named string
	var all bool
	c := &cobra.Command{
		Use:   "allow-login SITE [ADDRESS]",
		Short: "Let the credential of a BMC be tried again that it has refused",
		Long: `A credential that a BMC refused three times in a row is not tried there again,
so that no account is locked: ` + "`muster source show SITE bmc`" + ` lists the BMC as refused.
It is tried again when its content changes, or when allow-login says so: of the
BMC at an address, of that of a device, or of all BMCs of the site.`,
		Args: cobra.RangeArgs(1, 2),
	}
	conn := a.connectFlags(c)
	c.Flags().StringVar(&named, "device", "", "the device, by NAME or ID, in place of an address")
	c.Flags().BoolVar(&all, "all", false, "every BMC of the site")
	c.RunE = func(c *cobra.Command, args []string) error {
		ways := 0
		for _, way := range []bool{len(args) == 2, named != "", all} {
			if way {
				ways++
			}
		}
		if ways != 1 {
			return usage("say at which BMC: an ADDRESS, --device NAME or --all")
		}
		server, err := a.connect(conn)
		if err != nil {
			return err
		}
		body := map[string]any{}
		switch {
		case all:
			body["all"] = true
		case named != "":
			if body["device_id"], err = device(c.Context(), server, named); err != nil {
				return err
			}
		default:
			body["address"] = args[1]
		}
		var answer struct {
			Addresses []string `json:"addresses"`
		}
		if err := server.Post(c.Context(), "/sites/"+url.PathEscape(args[0])+"/sources/bmc/allow-login/", body, &answer); err != nil {
			return err
		}
		where := "every BMC of site " + args[0]
		if len(answer.Addresses) > 0 {
			where = strings.Join(answer.Addresses, ", ")
		}
		fmt.Fprintf(a.stdout, "from the next round on the credential is tried again at %s\n", where)
		return nil
	}
	return c
}
