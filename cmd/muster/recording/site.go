package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/format"
	cuejson "cuelang.org/go/encoding/json"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
)

const siteFile = "site.cue"

// sourceNames are the sources that a folder may hold.
var sourceNames = []string{"ironic", "placement", "slurm", "netbox", "bmc", "file"}

// ReadSite reads one site from a CUE, YAML or JSON file. Recordings that it
// names are relative to the file; the spec has their absolute paths.
func ReadSite(path string) (fleet.SiteSpec, error) {
	var spec fleet.SiteSpec
	data, err := os.ReadFile(path)
	if err != nil {
		return spec, fmt.Errorf("read the site: %w", err)
	}
	if err := engine.Decode(muster.Bundle(), "#Site", path, data, &spec); err != nil {
		return spec, err
	}
	for source, recording := range spec.Sources.Recorded {
		if !filepath.IsAbs(recording) {
			recording = filepath.Join(filepath.Dir(path), recording)
		}
		if spec.Sources.Recorded[source], err = filepath.Abs(recording); err != nil {
			return spec, fmt.Errorf("read the site: %w", err)
		}
	}
	return spec, nil
}

// Sites reads every site of a folder of recordings, in the order of names. Its
// sources are the recordings that lie beside site.cue; endpoints of the live
// ones are left out.
func Sites(dir string) ([]fleet.SiteSpec, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read the recorded facts: %w", err)
	}
	var specs []fleet.SiteSpec
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name(), siteFile)
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || !entry.IsDir() {
			continue
		}
		spec, err := recordedSite(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if spec.Name != entry.Name() {
			errs = append(errs, fmt.Errorf("%s: the site is called %q, its folder %q: name them alike", path, spec.Name, entry.Name()))
		}
		specs = append(specs, spec)
	}
	if len(errs) == 0 && len(specs) == 0 {
		return nil, fmt.Errorf("%s holds no SITE/%s: `muster snapshot DIR` writes such a folder", dir, siteFile)
	}
	return specs, errors.Join(errs...)
}

func recordedSite(path string) (fleet.SiteSpec, error) {
	spec, err := ReadSite(path)
	if err != nil {
		return spec, err
	}
	spec.Sources = fleet.Sources{Recorded: map[string]string{}}
	for _, source := range sourceNames {
		recording, err := filepath.Abs(filepath.Join(filepath.Dir(path), source+".json"))
		if err != nil {
			return spec, fmt.Errorf("read the recorded facts: %w", err)
		}
		if _, err := os.Stat(recording); err == nil {
			spec.Sources.Recorded[source] = recording
		}
	}
	if !spec.Has(spec.InventorySource()) {
		return spec, fmt.Errorf("%s: its inventory is %q, but there is no %s.json beside it", path, spec.InventorySource(), spec.InventorySource())
	}
	if spec.Has("placement") && spec.Sources.Recorded["placement"] == "" {
		return spec, fmt.Errorf("%s: the site has Placement, but there is no placement.json beside it", path)
	}
	return spec, nil
}

// writeSite writes site.cue of a snapshot. Its sources are the recordings.
func writeSite(dir string, spec fleet.SiteSpec, sources []string) error {
	recorded := map[string]string{}
	for _, source := range sources {
		recorded[source] = source + ".json"
	}
	spec.Sources = fleet.Sources{Recorded: recorded}
	body, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	path := filepath.Join(dir, spec.Name, siteFile)
	expr, err := cuejson.Extract(path, body)
	if err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	text, err := format.Node(expr)
	if err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	unwrapped := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(string(text)), "{"), "}")
	if text, err = format.Source([]byte(unwrapped)); err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return fmt.Errorf("write site %s: %w", spec.Name, err)
	}
	return nil
}
