package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

// rack is what tells one rack from another of the same name.
type rack struct {
	id       int64
	name     string
	location string
	site     string
}

// rackNames is what a reading of the racks says.
type rackNames struct {
	hidden bool             // the token may not see racks: those of one name count as one
	own    map[int64]string // by id; "" where a rack's own name is no other's
}

// name gives the name by which a rack is known. The rack of a device that is not
// among those that were read is not known: names that others share may be
// anybody's.
func (n *rackNames) name(id int64, name facts.Text) facts.Text {
	if name.Value == "" || id == 0 || n.hidden {
		return name
	}
	own, has := n.own[id]
	switch {
	case !has:
		return facts.Text{}
	case own != "":
		return facts.TextOf(own)
	}
	return name
}

// readRacks learns which racks of our sites share their name with another one:
// a rack is known by its name, which NetBox lets be anybody's in another
// location.
func (c *Client) readRacks(ctx context.Context, op string) (*rackNames, error) {
	var racks []rack
	query := c.query()
	query.Set("fields", "id,name,site,location")
	walk := c.walk(op, "dcim/racks/", query)
	for walk.more() {
		_, elements, err := walk.page(ctx)
		if err != nil {
			if kind := sources.KindOf(err); (kind == sources.KindForbidden && !errors.Is(err, ErrToken)) || kind == sources.KindMissing {
				if c.told.hides(true) {
					c.log.Warn("NetBox shows no racks: those of one name count as one rack", "error", err)
				}
				names := &rackNames{hidden: true}
				c.racks.Store(names)
				return names, nil
			}
			return nil, err
		}
		for _, element := range elements {
			if r, ok := decodeRack(element); ok && (r.site == "" || c.sites[r.site]) {
				racks = append(racks, r)
			}
		}
	}
	if c.told.hides(false) {
		c.log.Info("NetBox shows its racks", "count", len(racks))
	}
	names := &rackNames{own: qualify(racks)}
	c.racks.Store(names)
	return names, nil
}

func decodeRack(raw json.RawMessage) (r rack, ok bool) {
	var fields struct {
		ID       json.RawMessage `json:"id"`
		Name     json.RawMessage `json:"name"`
		Site     json.RawMessage `json:"site"`
		Location json.RawMessage `json:"location"`
	}
	if json.Unmarshal(raw, &fields) != nil {
		return rack{}, false
	}
	lost := reader{lost: map[string]string{}}
	r.id, ok = integer(fields.ID)
	r.name = lost.text("name", fields.Name).Value
	r.site = lost.nested("site", fields.Site, "slug").Value
	r.location = lost.nested("location", fields.Location, "name").Value
	return r, ok && r.name != ""
}

// qualify names the racks whose name is not theirs alone, by their location, by
// site and location, or by their id, whichever tells all of that name apart; the
// others get "". What it says of a rack depends on the racks only, not on their
// order.
func qualify(racks []rack) map[int64]string {
	byName := map[string][]rack{}
	for _, r := range racks {
		byName[r.name] = append(byName[r.name], r)
	}
	names := map[int64]string{}
	for _, same := range byName {
		if len(same) == 1 {
			names[same[0].id] = ""
			continue
		}
		forms := []func(rack) string{
			func(r rack) string { return r.location },
			func(r rack) string { return strings.TrimSpace(r.site + " " + r.location) },
			func(r rack) string { return "id " + strconv.FormatInt(r.id, 10) },
		}
		form := forms[slices.IndexFunc(forms, func(form func(rack) string) bool { return distinct(same, form) })]
		for _, r := range same {
			names[r.id] = fmt.Sprintf("%s (%s)", r.name, form(r))
		}
	}
	return names
}

func distinct(racks []rack, form func(rack) string) bool {
	seen := map[string]bool{"": true}
	for _, r := range racks {
		if seen[form(r)] {
			return false
		}
		seen[form(r)] = true
	}
	return true
}

// query asks for our sites in the order of ids.
func (c *Client) query() url.Values {
	query := url.Values{"ordering": {"id"}, "limit": {strconv.Itoa(c.pageSize)}}
	for site := range c.sites {
		query.Add("site", site)
	}
	slices.Sort(query["site"])
	return query
}
