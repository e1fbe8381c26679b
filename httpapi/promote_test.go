package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/musterhq/muster/httpapi"
	"github.com/musterhq/muster/store"
)

func TestAPromotionIsForGoodAndAudited(t *testing.T) {
	w := newWorld(t)
	id := w.bear(w.lab, "gpu-1", node(ready))
	w.exec("update devices set inventory_only = true where id = $1", id)
	path := fmt.Sprintf("/devices/%d/promote/", id)
	for name, body := range map[string]any{"no reason": fields{}, "an empty one": fields{"reason": " "}, "another field": fields{"reason": "x", "force": true}} {
		if a := w.post(w.token, path, body); a.Status != http.StatusUnprocessableEntity && a.Status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, a.Status, a.Body)
		}
	}
	a := w.post(w.token, path, fields{"reason": "it is ours now"})
	if v := a.json(); a.Status != http.StatusOK || v["inventory_only"] != false || v["operational_status"] != "available" {
		t.Fatalf("answered %d %s", a.Status, a.Body)
	}
	if n := w.count("select count(*) from audit where action = 'device.promote' and principal = 'token:t1' and remote = '192.0.2.1' and detail ->> 'name' = 'gpu-1'"); n != 1 {
		t.Errorf("%d audit rows, want 1", n)
	}
	annex := w.makeToken(store.Token{Scopes: []string{httpapi.DeviceWrite}, Sites: []string{"annex"}})
	w.post(annex, path, fields{"reason": "x"}).refused(http.StatusNotFound, "device_not_found")
}
