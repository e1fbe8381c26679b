package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"testing"
	"time"
)

// realNetBox is a NetBox with a site of our own in it, and a user whose rights
// we give and take.
type realNetBox struct {
	url, token string // an administrator's
	site       string // slug
	ids        map[string]int
}

func findNetBox(t *testing.T) *realNetBox {
	t.Helper()
	file := os.Getenv("MUSTER_PEER_NETBOX")
	if file == "" {
		t.Skip("MUSTER_PEER_NETBOX is not set: it names the netbox.env that testdata/peers/netbox-up.sh writes")
	}
	env := readEnv(t, file)
	return &realNetBox{url: env["NETBOX_URL"], token: env["NETBOX_TOKEN"], site: fmt.Sprintf("e2e-%d", time.Now().UnixNano()), ids: map[string]int{}}
}

// send makes one request below /api and gives the object's id and its token, if
// it has one.
func (n *realNetBox) send(t *testing.T, method, path string, body any) (id int, token string) {
	t.Helper()
	var text []byte // NetBox takes a null for data that lacks all fields
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // a test that ends sends too
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, n.url+"/api/"+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Token "+n.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %s %v", method, path, response.Status, answer, err)
	}
	var made struct {
		ID    int
		Token string
	}
	if bytes.HasPrefix(answer, []byte("{")) {
		if err := json.Unmarshal(answer, &made); err != nil {
			t.Fatal(err)
		}
	}
	return made.ID, made.Token
}

// make creates an object once under a name of ours.
func (n *realNetBox) make(t *testing.T, name, path string, body map[string]any) int {
	t.Helper()
	n.ids[name], _ = n.send(t, http.MethodPost, path, body)
	return n.ids[name]
}

func (n *realNetBox) at(name, path string) string { return fmt.Sprintf("%s%d/", path, n.ids[name]) }

// get reads an object as it is.
func (n *realNetBox) get(t *testing.T, path string, into any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/api/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Token "+n.token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %v", path, response.Status, err)
	}
}

// tag makes a tag that another run may have made already.
func (n *realNetBox) tag(t *testing.T, slug string) {
	t.Helper()
	var found struct{ Count int }
	if n.get(t, "extras/tags/?slug="+slug, &found); found.Count == 0 {
		n.make(t, slug, "extras/tags/", map[string]any{"name": slug, "slug": slug})
	}
}

// furnish makes the site with one rack and what devices need.
func (n *realNetBox) furnish(t *testing.T) { n.furnishAs(t, "gpu-node") }

// furnishAs makes the site with one rack, and a role with the slug for what
// stands in it.
func (n *realNetBox) furnishAs(t *testing.T, role string) {
	t.Helper()
	n.make(t, "site", "dcim/sites/", map[string]any{"name": n.site, "slug": n.site, "status": "active"})
	n.make(t, "rack", "dcim/racks/", map[string]any{"name": "R7", "site": n.ids["site"], "status": "active", "u_height": 48})
	n.make(t, "maker", "dcim/manufacturers/", map[string]any{"name": n.site, "slug": n.site})
	n.make(t, "type", "dcim/device-types/", map[string]any{"manufacturer": n.ids["maker"], "model": n.site, "slug": n.site, "u_height": 1})
	n.make(t, "role", "dcim/device-roles/", map[string]any{"name": n.site, "slug": role, "color": "2196f3"})
	t.Cleanup(func() { // another run wants the role's slug
		n.role(t, "was-"+n.site)
	})
}

func (n *realNetBox) role(t *testing.T, slug string) {
	t.Helper()
	n.send(t, http.MethodPatch, n.at("role", "dcim/device-roles/"), map[string]any{"slug": slug})
}

func (n *realNetBox) standing(name, serial string, position int) map[string]any {
	return map[string]any{
		"name": name, "serial": serial, "site": n.ids["site"], "rack": n.ids["rack"], "position": position, "face": "front",
		"role": n.ids["role"], "device_type": n.ids["type"], "status": "active",
	}
}

func (n *realNetBox) device(t *testing.T, name, serial string, position int) {
	t.Helper()
	n.make(t, name, "dcim/devices/", n.standing(name, serial, position))
}

// fill puts more devices into the rack, from a position to another.
func (n *realNetBox) fill(t *testing.T, from, to int) {
	t.Helper()
	var many []any
	for i := from; i <= to; i++ {
		many = append(many, n.standing(fmt.Sprintf("t%d", i), fmt.Sprintf("E2E%04d", i), i))
	}
	n.send(t, http.MethodPost, "dcim/devices/", many)
}

func (n *realNetBox) remove(t *testing.T, name string) {
	t.Helper()
	n.send(t, http.MethodDelete, n.at(name, "dcim/devices/"), nil)
}

var sight = []string{"dcim.device", "dcim.rack", "dcim.site", "dcim.location", "dcim.devicerole", "dcim.devicetype"}

// reader makes a user who sees what muster reads, and gives a token of theirs.
func (n *realNetBox) reader(t *testing.T) (token string) {
	t.Helper()
	n.make(t, "user", "users/users/", map[string]any{"username": n.site, "password": "Never-used-here-1"})
	n.make(t, "sight", "users/permissions/", map[string]any{"name": n.site, "object_types": sight, "actions": []string{"view"}, "users": []int{n.ids["user"]}})
	return n.another(t)
}

// worker makes a user who may what muster's workflows need, and no more, and gives
// a token of theirs.
func (n *realNetBox) worker(t *testing.T) (token string) {
	t.Helper()
	n.make(t, "user", "users/users/", map[string]any{"username": n.site, "password": "Never-used-here-1"})
	n.make(t, "sight", "users/permissions/", map[string]any{"name": n.site, "object_types": append([]string{"dcim.interface", "extras.tag"}, sight...), "actions": []string{"view"}, "users": []int{n.ids["user"]}})
	n.make(t, "hand", "users/permissions/", map[string]any{"name": n.site + "-hand", "object_types": []string{"dcim.device"}, "actions": []string{"change"}, "users": []int{n.ids["user"]}})
	return n.mint(t, true)
}

func (n *realNetBox) another(t *testing.T) (token string) {
	t.Helper()
	return n.mint(t, false)
}

func (n *realNetBox) mint(t *testing.T, writes bool) (token string) {
	t.Helper()
	n.ids["token"], token = n.send(t, http.MethodPost, "users/tokens/", map[string]any{"user": n.ids["user"], "version": 1, "write_enabled": writes})
	if token == "" {
		t.Fatal("NetBox does not tell the token that it made")
	}
	return token
}

// sees changes what the reader may see.
func (n *realNetBox) sees(t *testing.T, change map[string]any) {
	t.Helper()
	n.send(t, http.MethodPatch, n.at("sight", "users/permissions/"), change)
}
