package operations

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/jobs"
	"github.com/musterhq/muster/operations/report"
	"github.com/musterhq/muster/store"
)

// Bounds of a request.
const (
	MaxRacks    = 100
	MaxNamed    = 5_000              // components, or exclusions
	MaxFirmware = 32                 // images
	MaxQueueFor = 7 * 24 * time.Hour // that a task may wait
)

// What a request may say of a device that others hold.
const (
	ConflictRefuse = "refuse"
	ConflictQueue  = "queue"
)

// Firmware is an image for the components of one type.
type Firmware = report.Firmware

// Request asks for an operation on racks.
type Request struct {
	OperationType string
	Operation     string
	Racks         []jobs.Ref
	Site          string     // where names are looked for; "": in every site that may be seen
	Components    []jobs.Ref // devices, or by name whole component types; none: all that the rule is for
	Exclude       []jobs.Ref // likewise: what is left out
	RuleID        int64      // 0: the rack's, else the default, else the built-in one
	Conflict      string     // "": the policy's default
	QueueFor      time.Duration
	Reason        string
	Override      *string // why machines are taken from their users
	Firmware      []Firmware
	Visible       []string // names of the sites that exist for who asks; nil: every one

	Force          bool // who asks may override
	By             devices.Caller
	IdempotencyKey string // "": none
}

// Submitted is an accepted request.
type Submitted struct {
	Tasks    []fleet.Task // in the order of racks
	Repeated bool         // nothing is new: an earlier request made all of them
}

// clean makes a copy of what the caller wrote that the database takes.
func (r *Request) clean() Request {
	c := *r
	refs := func(all []jobs.Ref) []jobs.Ref {
		all = slices.Clone(all)
		for i := range all {
			all[i].Name = strings.TrimSpace(store.Clean(all[i].Name))
		}
		return all
	}
	c.Racks, c.Components, c.Exclude = refs(r.Racks), refs(r.Components), refs(r.Exclude)
	c.Site, c.Operation, c.Reason, c.IdempotencyKey = store.Clean(r.Site), store.Clean(r.Operation), strings.TrimSpace(store.Clean(r.Reason)), store.Clean(r.IdempotencyKey)
	if r.Override != nil {
		why := strings.TrimSpace(store.Clean(*r.Override))
		c.Override = &why
	}
	c.Firmware = slices.Clone(r.Firmware)
	for i := range c.Firmware {
		f := &c.Firmware[i]
		f.ComponentType = componentType(f.ComponentType)
		f.SHA256 = strings.ToLower(f.SHA256)
		f.URI = store.Clean(f.URI)
	}
	slices.SortStableFunc(c.Firmware, func(a, b Firmware) int { return strings.Compare(a.ComponentType, b.ComponentType) })
	return c
}

// componentType is a component type in its one spelling.
func componentType(name string) string {
	if name = strings.ToLower(strings.TrimSpace(store.Clean(name))); name == "nvlswitch" {
		return "nvswitch"
	}
	return name
}

// hash tells requests apart: equal ones ask for the same.
func (r *Request) hash() []byte {
	body, _ := json.Marshal([]any{r.OperationType, r.Operation, r.Racks, r.Site, r.Components, r.Exclude, r.RuleID, r.Conflict, r.QueueFor, r.Reason, r.Override, r.Firmware}) // plain values: cannot fail
	sum := sha256.Sum256(body)
	return sum[:]
}

// overrides tells whether machines may be taken from their users.
func (r *Request) overrides() bool { return r.Override != nil }

// complete fills in defaults and says everything that is wrong with the request
// by itself.
func (s *Service) complete(r *Request, bundle *engine.Bundle) ([]jobs.Refusal, error) {
	var all []jobs.Refusal
	bad := func(path, actual, expected, format string, args ...any) {
		all = append(all, jobs.Refusal{Code: jobs.CodeParameterInvalid, Path: path, Actual: actual, Expected: expected, Message: fmt.Sprintf(format, args...)})
	}
	codes := s.rules.Operations(r.OperationType)
	if !slices.Contains(codes, r.Operation) {
		bad("operation", r.Operation, strings.Join(codes, ", "), "%q is no operation of this kind: there are %s", r.Operation, strings.Join(codes, ", "))
	}
	defaults := bundle.OperationDefaults()
	if r.Conflict == "" {
		r.Conflict = defaults.Conflict
	}
	if r.Conflict != ConflictRefuse && r.Conflict != ConflictQueue {
		bad("conflict", r.Conflict, "refuse, queue", "conflict is refuse or queue")
	}
	switch {
	case r.QueueFor == 0:
		r.QueueFor = defaults.QueueFor
	case r.Conflict != ConflictQueue:
		bad("queue_for", r.QueueFor.String(), "conflict queue", "queue_for goes with conflict: queue")
	case r.QueueFor < 0 || r.QueueFor > MaxQueueFor:
		bad("queue_for", r.QueueFor.String(), "more than 0, at most 168h", "a task waits for more than nothing and for at most a week")
	}
	if n := len(r.Racks); n == 0 || n > MaxRacks {
		bad("racks", fmt.Sprint(n), fmt.Sprintf("1 to %d", MaxRacks), "a request is for 1 to %d racks", MaxRacks)
	}
	for path, n := range map[string]int{"components": len(r.Components), "exclude": len(r.Exclude)} {
		if n > MaxNamed {
			bad(path, fmt.Sprint(n), fmt.Sprintf("at most %d", MaxNamed), "a request names at most %d components", MaxNamed)
		}
	}
	s.firmware(r, bad)
	if r.Reason == "" {
		all = append(all, jobs.Refusal{Code: jobs.CodeReasonMissing, Path: "reason", Expected: "a text", Message: "an operation needs a reason: say why, for whoever asks later what the rack went through"})
	}
	if r.overrides() {
		if !r.Force {
			return nil, refuse(jobs.CodeScopeMissing, "an override may take machines from their customers: that needs the scope operation:force")
		}
		if *r.Override == "" {
			all = append(all, jobs.Refusal{Code: jobs.CodeReasonMissing, Path: "override.reason", Expected: "a text", Message: "an override needs a reason: say why the machines may be taken from their customers"})
		}
	}
	return all, nil
}

func (s *Service) firmware(r *Request, bad func(path, actual, expected, format string, args ...any)) {
	updates := r.OperationType == "firmware_control"
	switch {
	case !updates && len(r.Firmware) > 0:
		bad("firmware", "", "none", "firmware goes with firmware operations only")
	case updates && len(r.Firmware) == 0 || len(r.Firmware) > MaxFirmware:
		bad("firmware", fmt.Sprint(len(r.Firmware)), fmt.Sprintf("1 to %d images", MaxFirmware), "a firmware operation needs firmware: an image and the versions it brings, for each component type")
	}
	types, seen := s.rules.ComponentTypes(), map[string]bool{}
	for i, f := range r.Firmware {
		path := fmt.Sprintf("firmware[%d]", i)
		if !slices.Contains(types, f.ComponentType) {
			bad(path+".component_type", f.ComponentType, strings.Join(types, ", "), "%q is no component type", f.ComponentType)
		}
		if seen[f.ComponentType] {
			bad(path+".component_type", f.ComponentType, "one image for each component type", "there are two images for %s: give one here, and submit the other when it is through", f.ComponentType)
		}
		seen[f.ComponentType] = true
		if u, err := url.Parse(f.URI); err != nil || !slices.Contains([]string{"http", "https"}, u.Scheme) || u.Host == "" || u.User != nil {
			bad(path+".uri", "", "http(s)://host/path without a password", "the image is fetched by an address of http or https that holds no password")
		}
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size {
			bad(path+".sha256", f.SHA256, "64 hexadecimal digits", "sha256 is the image's checksum, in 64 hexadecimal digits")
		}
		for part, version := range f.Versions {
			if part == "" || version == "" || store.Clean(part) != part || store.Clean(version) != version {
				bad(path+".versions", fmt.Sprintf("%q: %q", part, version), "texts", "a part and its version are texts that are not empty and hold no control characters")
			}
		}
		if len(f.Versions) == 0 {
			bad(path+".versions", "", "at least one version", "versions says what is read back afterwards: without it nothing shows that the update took")
		}
	}
}

// pick is what a list of components says: single devices and whole types.
type pick struct {
	ids   map[int64]bool
	names map[string]bool // normalised
	types map[string]bool
}

func (s *Service) pick(refs []jobs.Ref) pick {
	p := pick{map[int64]bool{}, map[string]bool{}, map[string]bool{}}
	types := s.rules.ComponentTypes()
	for _, ref := range refs {
		switch kind := componentType(ref.Name); {
		case ref.ID != 0:
			p.ids[ref.ID] = true
		case slices.Contains(types, kind):
			p.types[kind] = true
		default:
			p.names[fleet.NameKey(ref.Name)] = true
		}
	}
	return p
}

// single tells whether the device itself is named.
func (p *pick) single(d *fleet.Device) bool { return p.ids[d.ID] || p.names[fleet.NameKey(d.Name)] }

func (p *pick) empty() bool { return len(p.ids)+len(p.names)+len(p.types) == 0 }
