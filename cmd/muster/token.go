package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

func (a *app) tokenCommand() *cobra.Command {
	return parent("token", "Make and end the tokens of the API", a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
}

func (a *app) tokenCreateCommand() *cobra.Command {
	var t store.Token
	var life time.Duration
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token and show it, once",
		Long: `Create makes a token and prints it on standard output. It is shown this once: the
database keeps its hash alone. Scopes: ` + strings.Join(httpapi.Scopes(), ", ") + `.`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(c)
	admin := a.adminFlags(c)
	c.Flags().StringSliceVar(&t.Scopes, "scope", []string{httpapi.DeviceRead, httpapi.ConditionRead, httpapi.PolicyRead}, "what it may do; comma-separated or repeated")
	c.Flags().StringSliceVar(&t.Sites, "site", nil, "the sites that exist for it (default: every one)")
	c.Flags().StringVar(&t.Writer, "writer", "", "the one writer whose conditions it may write")
	c.Flags().DurationVar(&life, "expires-in", 90*24*time.Hour, "how long it is good; 0 for ever")
	c.RunE = func(c *cobra.Command, args []string) error {
		t.Name = args[0]
		if err := checkToken(&t, life); err != nil {
			return err
		}
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			plain, hash := httpapi.NewToken()
			t.Hash, t.CreatedBy = hash, a.actor()
			if life > 0 {
				t.ExpiresAt = db.Now().Add(life)
			}
			err := db.Tx(c.Context(), func(tx pgx.Tx) (err error) {
				if t.ID, err = store.CreateToken(c.Context(), tx, t); err != nil {
					return err
				}
				return store.Audit(c.Context(), tx, store.AuditEntry{Principal: t.CreatedBy, Action: "token.create", Target: strconv.FormatInt(t.ID, 10),
					Detail: map[string]any{"name": t.Name, "scopes": t.Scopes, "sites": t.Sites, "writer": t.Writer}})
			})
			if err != nil {
				return err
			}
			if output.value == "json" {
				return render.JSON(a.stdout, struct {
					tokenItem
					Token string `json:"token"`
				}{itemOf(&t), plain})
			}
			fmt.Fprintf(a.stderr, "token %d, called %q, is shown this once\n", t.ID, t.Name)
			fmt.Fprintln(a.stdout, plain)
			return nil
		})
	}
	return c
}

// checkToken refuses what no request could use.
func checkToken(t *store.Token, life time.Duration) error {
	for _, scope := range t.Scopes {
		if !slices.Contains(httpapi.Scopes(), scope) {
			return usage("there is no scope %q: the scopes are %s", scope, strings.Join(httpapi.Scopes(), ", "))
		}
	}
	switch writes := slices.Contains(t.Scopes, httpapi.ConditionWrite); {
	case strings.TrimSpace(t.Name) == "":
		return usage("a token has a name: the audit log calls its holder by it")
	case len(t.Scopes) == 0:
		return usage("a token without a scope may do nothing: name one with --scope")
	case life < 0:
		return usage("--expires-in is not negative")
	case writes && t.Writer == "":
		return usage("the scope %s is bound to one writer: name it with --writer", httpapi.ConditionWrite)
	case !writes && t.Writer != "":
		return usage("--writer says nothing without the scope %s", httpapi.ConditionWrite)
	}
	return nil
}

// tokenItem is a token as it is shown: without its hash.
type tokenItem struct {
	ID        int64      `json:"id"`
	Name      string     `json:"name"`
	Scopes    []string   `json:"scopes"`
	Sites     []string   `json:"sites"`
	Writer    string     `json:"writer,omitempty"`
	CreatedAt *time.Time `json:"created_at,omitempty"`
	CreatedBy string     `json:"created_by"`
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

func itemOf(t *store.Token) tokenItem {
	at := func(i time.Time) *time.Time {
		if i.IsZero() {
			return nil
		}
		i = i.UTC()
		return &i
	}
	return tokenItem{t.ID, t.Name, t.Scopes, t.Sites, t.Writer, at(t.CreatedAt), t.CreatedBy, at(t.ExpiresAt), at(t.RevokedAt)}
}

func (a *app) tokenListCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the tokens, never their texts", Args: cobra.NoArgs}
	output := outputFlag(c)
	admin := a.adminFlags(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			tokens, err := store.Tokens(c.Context(), db)
			if err != nil {
				return err
			}
			if output.value == "json" {
				items := make([]tokenItem, len(tokens))
				for i := range tokens {
					items[i] = itemOf(&tokens[i])
				}
				return render.JSON(a.stdout, items)
			}
			var rows [][]string
			for i := range tokens {
				t := &tokens[i]
				rows = append(rows, []string{strconv.FormatInt(t.ID, 10), t.Name, state(t, db.Now()), sitesOf(t), t.Writer, strings.Join(t.Scopes, ","), t.CreatedBy})
			}
			return render.Table(a.stdout, []string{"ID", "NAME", "STATE", "SITES", "WRITER", "SCOPES", "MADE BY"}, rows)
		})
	}
	return c
}

func sitesOf(t *store.Token) string {
	if t.Sites == nil {
		return "all"
	}
	return strings.Join(t.Sites, ",")
}

func state(t *store.Token, now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case t.ExpiresAt.IsZero():
		return "good for ever"
	case !now.Before(t.ExpiresAt):
		return "expired"
	}
	return "good until " + t.ExpiresAt.UTC().Format(time.DateOnly)
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	c := &cobra.Command{Use: "revoke ID", Short: "End a token at once", Args: cobra.ExactArgs(1)}
	admin := a.adminFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		id, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return usage("%q is no id of a token: `muster token list` shows them", args[0])
		}
		return a.administer(c.Context(), admin, func(db *store.DB) error {
			err := db.Tx(c.Context(), func(tx pgx.Tx) error {
				if err := store.RevokeToken(c.Context(), tx, id); err != nil {
					return err
				}
				return store.Audit(c.Context(), tx, store.AuditEntry{Principal: a.actor(), Action: "token.revoke", Target: args[0]})
			})
			if errors.Is(err, store.ErrNotFound) {
				return nope("token %d is not there, or was revoked before: `muster token list` shows them", id)
			} else if err != nil {
				return err
			}
			fmt.Fprintf(a.stdout, "token %d is revoked\n", id)
			return nil
		})
	}
	return c
}
