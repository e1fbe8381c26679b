package redfish

import (
	"encoding/base64"
	"net/http"
	"testing"
)

// Who may do what: an account that only reads resets nothing and changes its own
// password alone; the fleet's password can be changed, and is kept in the world.
func TestAccounts(t *testing.T) {
	t.Parallel()
	f := serve(t, Options{})
	made := f.ask(http.MethodPost, tray, accountsPath, object{"UserName": "reader", "Password": "reads-only", "RoleId": "ReadOnly"})
	if made.status != http.StatusCreated {
		t.Fatalf("a new account answers %d %v", made.status, made.body)
	}
	own := made.header.Get("Location")
	reader := func(password string) []string { return []string{"Authorization", basic("reader", password)} }
	change := func(path, password, as string) int {
		etag := f.ask(http.MethodGet, tray, path, nil, "Authorization", as).header.Get("ETag")
		return f.ask(http.MethodPatch, tray, path, object{"Password": password}, "If-Match", etag, "Authorization", as).status
	}
	if g := f.ask(http.MethodGet, tray, systemPath, nil, reader("reads-only")...); g.status != http.StatusOK {
		t.Errorf("it reads with %d", g.status)
	}
	for name, g := range map[string]*got{
		"a reset":        f.ask(http.MethodPost, tray, resetPath, object{"ResetType": "ForceOff"}, reader("reads-only")...),
		"a new account":  f.ask(http.MethodPost, tray, accountsPath, object{"UserName": "x", "Password": "12345678", "RoleId": "Administrator"}, reader("reads-only")...),
		"its own end":    f.ask(http.MethodDelete, tray, own, nil, reader("reads-only")...),
		"another's role": f.ask(http.MethodPatch, tray, accountsPath+"/1", object{"RoleId": "ReadOnly"}, reader("reads-only")...),
	} {
		if g.status != http.StatusForbidden {
			t.Errorf("%s by a reader answers %d %s", name, g.status, g.messageID())
		}
	}
	if status := change(own, "a-new-one", basic("reader", "reads-only")); status != http.StatusOK {
		t.Errorf("its own password answers %d", status)
	}
	if g := f.ask(http.MethodGet, tray, systemPath, nil, reader("reads-only")...); g.status != http.StatusUnauthorized {
		t.Errorf("with the old one it reads with %d", g.status)
	}
	if status := change(accountsPath+"/1", "rotated-now", basic("admin", "simulator-0")); status != http.StatusOK {
		t.Errorf("the fleet's password answers %d", status)
	}
	if f.machine(tray).BMC.Own != "rotated-now" {
		t.Error("the world does not have it")
	}
	if g := f.ask(http.MethodGet, tray, systemPath, nil); g.status != http.StatusUnauthorized {
		t.Errorf("with the old one it answers %d", g.status)
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}
