package keystone

import (
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

// named is a thing by its id or its name.
type named struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Domain *named `json:"domain"`
}

// login is the body of a request for a token.
type login struct {
	Auth *struct {
		Identity *struct {
			Methods  []string `json:"methods"`
			Password *struct {
				User struct {
					named
					Password string `json:"password"`
				} `json:"user"`
			} `json:"password"`
			Credential *struct {
				named
				Secret string `json:"secret"`
				User   *named `json:"user"`
			} `json:"application_credential"`
			Token *struct {
				ID string `json:"id"`
			} `json:"token"`
		} `json:"identity"`
		Scope *struct {
			Project *named `json:"project"`
			System  *struct {
				All bool `json:"all"`
			} `json:"system"`
		} `json:"scope"`
	} `json:"auth"`
}

// issue gives a token to who can say who he is.
func (c *call) issue() error {
	var in login
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil {
		return malformed("valid JSON in request body")
	}
	if in.Auth == nil || in.Auth.Identity == nil || len(in.Auth.Identity.Methods) == 0 {
		return malformed("auth in request body")
	}
	t := token{Method: in.Auth.Identity.Methods[0], Audit: audit()}
	if err := c.identify(&in, &t); err != nil {
		return err
	}
	if err := c.scope(&in, &t); err != nil {
		return err
	}
	t.Issued = c.world.Now().Truncate(time.Second)
	t.Expires = t.Issued.Add(lifetime)
	c.w.Header().Set("X-Subject-Token", c.seal(t))
	return c.send(http.StatusCreated, map[string]any{"token": c.document(t)})
}

// identify checks what a login proves.
func (c *call) identify(in *login, t *token) error {
	by := in.Auth.Identity
	switch t.Method {
	case "password":
		if by.Password == nil {
			return malformed("password in identity")
		}
		user := by.Password.User
		known := user.ID == c.UserID() || user.Name == c.User && ours(user.Domain)
		if !known || subtle.ConstantTimeCompare([]byte(user.Password), []byte(c.Password)) != 1 {
			return errUnauthorized
		}
	case "application_credential":
		if by.Credential == nil {
			return malformed("application_credential in identity")
		}
		made := c.credential(by.Credential.ID, by.Credential.Name)
		if made == nil {
			return missing("Application Credential", by.Credential.ID+by.Credential.Name)
		}
		if subtle.ConstantTimeCompare([]byte(made.Secret), []byte(by.Credential.Secret)) != 1 {
			return errUnauthorized
		}
		t.Credential, t.Project = made.ID, made.Project
	case "token":
		if by.Token == nil {
			return malformed("token in identity")
		}
		if _, ok := c.good(by.Token.ID); !ok {
			return errUnauthorized
		}
	default:
		return malformed(t.Method + " in identity")
	}
	return nil
}

// scope gives a token the project that was asked for.
func (c *call) scope(in *login, t *token) error {
	scope := in.Auth.Scope
	switch {
	case scope == nil || t.Credential != "":
		return nil
	case scope.System != nil:
		t.System = true
		return nil
	case scope.Project == nil:
		return malformed("a project or the system in scope")
	}
	ok := false
	c.world.Read(func(s *world.State) {
		var p world.Project
		if scope.Project.ID != "" {
			p, ok = s.Project(scope.Project.ID)
			ok = ok && p.ID == scope.Project.ID
		} else if ours(scope.Project.Domain) {
			p, ok = s.Project(scope.Project.Name)
			ok = ok && p.Name == scope.Project.Name
		}
		t.Project = p.ID
	})
	if !ok {
		return errUnauthorized
	}
	return nil
}

// ours tells whether a domain is the only one.
func ours(d *named) bool {
	return d != nil && (d.ID == "default" || d.ID == "" && strings.EqualFold(d.Name, "Default"))
}

const stamp = "2006-01-02T15:04:05.000000Z"

// document is what Keystone says of a token.
func (c *call) document(t token) map[string]any {
	doc := map[string]any{
		"methods": []string{t.Method}, "audit_ids": []string{t.Audit}, "expires_at": t.Expires.UTC().Format(stamp), "issued_at": t.Issued.UTC().Format(stamp),
		"user": map[string]any{"domain": defaultDomain, "id": c.UserID(), "name": c.User, "password_expires_at": nil},
	}
	switch {
	case t.System:
		doc["system"] = map[string]bool{"all": true}
	case t.Project != "":
		var p world.Project
		c.world.Read(func(s *world.State) { p, _ = s.Project(t.Project) })
		doc["project"] = map[string]any{"domain": defaultDomain, "id": p.ID, "name": p.Name}
		doc["is_domain"] = false
	default:
		return doc
	}
	doc["roles"], doc["catalog"] = roles(), c.catalog()
	return doc
}

// subject is what is done with the token of X-Subject-Token.
func (c *call) subject() error {
	sealed := c.r.Header.Get("X-Subject-Token")
	t, ok := c.good(sealed)
	switch {
	case !ok:
		return &problem{http.StatusNotFound, "Could not recognize Fernet token"}
	case c.r.Method == http.MethodDelete:
		c.revoke(t)
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	c.w.Header().Set("X-Subject-Token", sealed)
	return c.send(http.StatusOK, map[string]any{"token": c.document(t)})
}

func (c *call) credential(id, name string) (made *world.AppCredential) {
	c.world.Read(func(s *world.State) {
		for key, one := range s.Credentials.All() {
			if key == id || id == "" && one.Name == name {
				made = one
			}
		}
	})
	return made
}

// credentials are the application credentials of a user.
func (c *call) credentials(t token, user string, rest []string) error {
	if user != c.UserID() {
		return &problem{http.StatusForbidden, "You are not authorized to perform the requested action: identity:list_application_credentials."}
	}
	switch {
	case len(rest) == 0 && c.r.Method == http.MethodPost:
		return c.createCredential(t)
	case len(rest) == 0:
		all := []any{}
		c.world.Read(func(s *world.State) {
			for _, one := range s.Credentials.All() {
				all = append(all, c.credentialDocument(one))
			}
		})
		return c.send(http.StatusOK, map[string]any{"application_credentials": all, "links": map[string]any{"self": c.base + c.r.URL.Path, "next": nil, "previous": nil}})
	}
	made := c.credential(rest[0], "")
	if made == nil {
		return missing("Application Credential", rest[0])
	}
	if c.r.Method != http.MethodDelete {
		return c.send(http.StatusOK, map[string]any{"application_credential": c.credentialDocument(made)})
	}
	err := c.world.Do(world.Effect{Face: "keystone", Op: "delete application credential", Subject: made.Name}, func(s *world.State) error {
		if s.Credentials.Get(made.ID) == nil {
			return missing("Application Credential", rest[0])
		}
		s.Credentials.Delete(made.ID)
		return nil
	})
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (c *call) createCredential(t token) error {
	var in struct {
		Credential struct {
			Name   string `json:"name"`
			Secret string `json:"secret"`
		} `json:"application_credential"`
	}
	if err := json.NewDecoder(c.r.Body).Decode(&in); err != nil || in.Credential.Name == "" {
		return malformed("application_credential in request body")
	}
	if t.Project == "" || t.Credential != "" {
		return &problem{http.StatusForbidden, "You are not authorized to perform the requested action: identity:create_application_credential."}
	}
	made := &world.AppCredential{ID: id("credential", in.Credential.Name, audit()), Name: in.Credential.Name, Secret: in.Credential.Secret, User: c.UserID(), Project: t.Project}
	if made.Secret == "" {
		made.Secret = audit() + audit()
	}
	err := c.world.Do(world.Effect{Face: "keystone", Op: "create application credential", Subject: made.Name}, func(s *world.State) error {
		for _, other := range s.Credentials.All() {
			if other.Name == made.Name {
				return &problem{http.StatusConflict, "Conflict occurred attempting to store application_credential - Duplicate entry found with name " + made.Name + "."}
			}
		}
		made.Created = s.Now
		s.Credentials.Put(made.ID, made)
		return nil
	})
	if err != nil {
		return err
	}
	doc := c.credentialDocument(made)
	doc["secret"] = made.Secret
	return c.send(http.StatusCreated, map[string]any{"application_credential": doc})
}

func (c *call) credentialDocument(made *world.AppCredential) map[string]any {
	granted := slices.Clone(roles())
	return map[string]any{
		"id": made.ID, "name": made.Name, "description": nil, "user_id": made.User, "project_id": made.Project, "system": nil, "expires_at": nil,
		"unrestricted": nil, "roles": granted, "links": map[string]string{"self": c.base + "/application_credentials/" + made.ID},
	}
}
