package component_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/operations/component"
	face "github.com/musterhq/muster/simulator/redfish"
	"github.com/musterhq/muster/simulator/world"
	"github.com/musterhq/muster/workflows/act"
)

func contextFor(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}

// store serves one image, and counts how often it is fetched.
func imageStore(t *testing.T, content string) (uri, sum string, fetched *atomic.Int64) {
	t.Helper()
	fetched = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fetched.Add(1)
		if strings.Contains(r.URL.Path, "gone") {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, content)
	}))
	t.Cleanup(s.Close)
	hash := sha256.Sum256([]byte(content))
	return s.URL, hex.EncodeToString(hash[:]), fetched
}

func ended(t *testing.T, m component.Firmware, p component.Part, i component.Image, u component.Update) component.Progress {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		seen, err := m.LookAtUpdate(t.Context(), p, i, u)
		if err != nil {
			t.Fatal(err)
		}
		if seen.Done || seen.Failed {
			return seen
		}
	}
	t.Fatal("it does not end")
	return component.Progress{}
}

func TestAnUpdateIsFollowedToItsVersions(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	uri, sum, _ := imageStore(t, "firmware")
	for _, p := range []component.Part{f.part("c", 1), f.part("n", 1), f.part("p", 1)} {
		m := f.managers[p.Type].Firmware
		part := ""
		for name := range f.machine(p).Firmware {
			part = max(part, name)
		}
		image := component.Image{URI: uri + "/" + part + "@9.9.9.fwpkg", SHA256: sum, Versions: map[string]string{part: "9.9.9"}}
		before, err := m.BeforeUpdate(t.Context(), p, image)
		if err != nil || before.There || len(before.Tasks) != 0 {
			t.Fatalf("%s: before %+v, %v", p.Name, before, err)
		}
		u, err := m.StartUpdate(t.Context(), p, image)
		if err != nil || u.There || u.URI == "" {
			t.Fatalf("%s: %+v, %v", p.Name, u, err)
		}
		if _, err := m.StartUpdate(t.Context(), p, image); act.Code(err) != codes.FirmwareBusy {
			t.Errorf("%s: a second start: %v", p.Name, err)
		}
		if seen := ended(t, m, p, image, u); !seen.Done {
			t.Errorf("%s ended %+v", p.Name, seen)
		}
		if missing, err := m.Differs(t.Context(), p, image); missing != "" || err != nil {
			t.Errorf("%s: %s, %v", p.Name, missing, err)
		}
		if u, err := m.StartUpdate(t.Context(), p, image); !u.There || err != nil {
			t.Errorf("%s: what is there is started again: %+v, %v", p.Name, u, err)
		}
		if tasks := len(f.machine(p).Tasks); tasks != 1 {
			t.Errorf("%s had %d updates", p.Name, tasks)
		}
	}
}

func TestAStartWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	uri, sum, _ := imageStore(t, "firmware")
	for name, c := range map[string]struct {
		tray       int
		lose, drop int64
		found      bool
	}{"it began": {6, 1, 0, true}, "it did not": {7, 0, 1, false}} {
		p := f.part("c", c.tray)
		m := f.managers["compute"].Firmware
		image := component.Image{URI: uri + "/HGX_FW_BMC_0@9.9.9.fwpkg", SHA256: sum, Versions: map[string]string{"HGX_FW_BMC_0": "9.9.9"}}
		before, err := m.BeforeUpdate(t.Context(), p, image)
		if err != nil {
			t.Fatal(err)
		}
		f.lose.Store(c.lose)
		f.drop.Store(c.drop)
		if _, err := m.StartUpdate(t.Context(), p, image); act.Code(err) != codes.FirmwareStartUnknown || !act.IsFinal(err) {
			t.Fatalf("%s: %v", name, err)
		}
		f.lose.Store(0)
		f.drop.Store(0)
		ctx, cancel := contextFor(t, time.Second)
		u, err := m.FindUpdate(ctx, p, image, before)
		cancel()
		switch {
		case c.found && (err != nil || u.URI == ""):
			t.Errorf("%s: %+v, %v", name, u, err)
		case c.found:
			if seen := ended(t, m, p, image, u); !seen.Done {
				t.Errorf("%s: %+v", name, seen)
			}
		case act.Code(err) != codes.FirmwareStartUnknown || !act.IsFinal(err):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnUpdateThatTheBMCFails(t *testing.T) {
	t.Parallel()
	f := newFleet(t, face.Options{})
	p := f.part("c", 8)
	f.edit(t, p, func(m *world.Machine) { m.BMC.BadImage = true })
	image := component.Image{URI: "http://images/HGX_FW_BMC_0@9.9.9.fwpkg", Versions: map[string]string{"HGX_FW_BMC_0": "9.9.9"}}
	m := f.managers["compute"].Firmware
	u, err := m.StartUpdate(t.Context(), p, image)
	if err != nil {
		t.Fatal(err)
	}
	if seen := ended(t, m, p, image, u); !seen.Failed || !strings.Contains(seen.Text, "verify") {
		t.Errorf("it ended %+v", seen)
	}
	if missing, _ := m.Differs(t.Context(), p, image); !strings.Contains(missing, "HGX_FW_BMC_0") {
		t.Errorf("it differs by %q", missing)
	}
}

// A wrong image is not sent to any BMC, and a right one is looked at once for all.
func TestAnImageIsComparedWithItsChecksum(t *testing.T) {
	t.Parallel()
	uri, sum, fetched := imageStore(t, "firmware")
	images := component.NewImages(time.Now)
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if err := images.Check(t.Context(), uri+"/a", strings.ToUpper(sum)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if fetched.Load() != 1 {
		t.Errorf("it was fetched %d times", fetched.Load())
	}
	for name, c := range map[string]struct{ uri, sum string }{
		"another checksum": {uri + "/a", strings.Repeat("0", 64)}, "not there": {uri + "/gone", sum}, "not by HTTP": {"tftp://x/y", sum}, "no address": {"http://a b/", sum},
	} {
		if err := images.Check(t.Context(), c.uri, c.sum); act.Code(err) != codes.FirmwareImageInvalid || !act.IsFinal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	content, size, drop, err := images.Fetch(t.Context(), uri+"/a", sum)
	if err != nil || size != 8 {
		t.Fatalf("%d bytes, %v", size, err)
	}
	defer drop()
	if text, _ := io.ReadAll(content); string(text) != "firmware" {
		t.Errorf("it is %q", text)
	}
}
