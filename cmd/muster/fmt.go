package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/bundle"
)

func (a *app) fmtCommand() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use:   "fmt [PATH…]",
		Short: "Format CUE files as `cue fmt` does",
		Long:  "Fmt formats the CUE files at the paths, folders with all that is in them\n(default: here), and prints the names of those that it changed.",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			changed, err := bundle.Format(args, !check)
			for _, name := range changed {
				fmt.Fprintln(a.stdout, name)
			}
			if err != nil {
				return err
			}
			if check && len(changed) > 0 {
				return no()
			}
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "change nothing, exit 1 when something is not formatted")
	return c
}
