package engine_test

import (
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
)

const goodSite = `
name: "ams1"
engagement_mode: "fully_managed"
inventory: "ironic"
trait_based: true
customer_ready_trait: "CUSTOM_CUSTOMER_READY"
sources: ironic: {url: "http://127.0.0.1:6385", interval: "5s"}
placement_enabled: false
lessees: {enrol: "", slurm: "slurm-project", maintenance: ""}
`

func TestDecodeFillsDefaultsAndTypes(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"site.cue":  goodSite,
		"site.yaml": "name: ams1\nengagement_mode: fully_managed\ninventory: ironic\ntrait_based: true\ncustomer_ready_trait: CUSTOM_CUSTOMER_READY\nsources:\n  ironic:\n    url: http://127.0.0.1:6385\n    interval: 5s\nplacement_enabled: false\nlessees: {enrol: \"\", slurm: slurm-project, maintenance: \"\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var spec fleet.SiteSpec
			if err := engine.Decode(os.DirFS(".."), "#Site", name, []byte(text), &spec); err != nil {
				t.Fatal(err)
			}
			if spec.Name != "ams1" || !spec.TraitBased || spec.Sources.Ironic.PageSize != 1000 || spec.Sources.Ironic.Auth != "none" {
				t.Errorf("decoded %+v with %+v", spec, spec.Sources.Ironic)
			}
		})
	}
}

func TestDecodeTellsEveryErrorWithItsPlace(t *testing.T) {
	t.Parallel()
	text := strings.NewReplacer(`"fully_managed"`, `"fully_managd"`, `interval: "5s"`, `intervall: "5s"`).Replace(goodSite)
	var spec fleet.SiteSpec
	err := engine.Decode(os.DirFS(".."), "#Site", "site.cue", []byte(text), &spec)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"site.cue:3:", "site.cue:7:", "engagement_mode", "intervall"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}
