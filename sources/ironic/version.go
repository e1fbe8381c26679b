package ironic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// The versions of Ironic's API that matter here, as the minor of 1.x.
const (
	newest = 82 // the newest that is understood
	oldest = 37 // traits: without them a site's customer-ready trait cannot be read
)

// gained lists the facts that Ironic serves only from a version on.
var gained = []struct {
	fact  string
	since int
}{{"fault", 42}, {"owner", 50}, {"lessee", 65}}

const always = "uuid,name,provision_state,target_provision_state,maintenance,maintenance_reason,last_error,power_state," +
	"target_power_state,instance_uuid,resource_class,driver,driver_info,reservation,extra,properties,traits,provision_updated_at"

// fieldsAt gives the fields to ask for at a version: a field that the version
// lacks would be refused.
func fieldsAt(minor int) string {
	fields := always
	for _, g := range gained {
		if minor >= g.since {
			fields += "," + g.fact
		}
	}
	return fields
}

// lostAt names what a version does not serve.
func lostAt(minor int) []string {
	var lost []string
	for _, g := range gained {
		if minor < g.since {
			lost = append(lost, g.fact)
		}
	}
	return lost
}

func minorOf(version string) (int, error) {
	major, minor, ok := strings.Cut(strings.TrimSpace(version), ".")
	n, err := strconv.Atoi(minor)
	if !ok || major != "1" || err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no version of Ironic's API: it must be like 1.65", sources.CleanText(version, 32))
	}
	return n, nil
}

// Headers in which every answer of Ironic tells its versions.
const (
	headerMin = "X-OpenStack-Ironic-API-Minimum-Version"
	headerMax = "X-OpenStack-Ironic-API-Maximum-Version"
)

// served gives the range of versions that an answer tells, from its headers or,
// where a proxy took those away, from the discovery document.
func served(h http.Header, body []byte) (least, most int, err error) {
	from, to := h.Get(headerMin), h.Get(headerMax)
	if to == "" {
		var discovery struct {
			Version struct {
				Min string `json:"min_version"`
				Max string `json:"version"`
			} `json:"version"`
		}
		if json.Unmarshal(body, &discovery) == nil {
			from, to = discovery.Version.Min, discovery.Version.Max
		}
	}
	if to == "" {
		return 0, 0, fmt.Errorf("the answer names no version of Ironic's API: is this endpoint an Ironic?")
	}
	if most, err = minorOf(to); err != nil {
		return 0, 0, err
	}
	if from == "" {
		return 1, most, nil
	}
	least, err = minorOf(from)
	return least, most, err
}

// choose gives the version to speak with a server of the range.
func choose(least, most, cap int) (int, error) {
	chosen := min(most, cap)
	switch {
	case chosen < oldest:
		return 0, fmt.Errorf("it would be spoken to in version 1.%d, but 1.%d (traits) is the least that can be used: upgrade Ironic, or raise the configured version", chosen, oldest)
	case chosen < least:
		return 0, fmt.Errorf("it serves version 1.%d and newer, but 1.%d is the newest that can be used: upgrade muster, or raise the configured version", least, cap)
	}
	return chosen, nil
}

// negotiate asks the server for its versions and fixes the one to speak.
func (c *Client) negotiate(ctx context.Context, sc *gophercloud.ServiceClient) (*session, error) {
	const op = "negotiate the version of Ironic's API"
	body, header, err := c.fetch(ctx, sc, sc.ServiceURL(), op)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return nil, foreign(op, body)
	}
	least, most, err := served(header, body)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	minor, err := choose(least, most, c.cap)
	if err != nil {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	pinned := *sc
	pinned.Microversion = "1." + strconv.Itoa(minor)
	return &session{sc: &pinned, minor: minor, most: most, fields: fieldsAt(minor), lost: lostAt(minor)}, nil
}
