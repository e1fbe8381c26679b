package netbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/musterhq/muster/sources"
)

// readings is how often a list that changes under its pages is read.
const readings = 3

// listing is one List in progress.
type listing struct {
	c     *Client
	op    string
	at    time.Time // before the first request
	racks *rackNames
	given map[string]bool
	// elsewhere counts devices of other sites that came although they were not
	// asked for.
	elsewhere int
	odd       int
	yield     func([]sources.Record) error
}

// List gives every device of our sites. A list that changes under its pages
// would lack devices that are there: it is read again, and what came before is
// not given twice.
func (c *Client) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	const op = "list NetBox's devices"
	l := &listing{c: c, op: op, at: c.clock(), given: map[string]bool{}, yield: yield}
	var err error
	for range readings {
		if l.racks, err = c.readRacks(ctx, op+": read the racks"); !errors.Is(err, errMoved) {
			break
		}
	}
	if err != nil {
		return sources.End{}, classified(op, err)
	}
	count := 0
	for reading := 1; ; reading++ {
		count, err = l.read(ctx)
		if !errors.Is(err, errMoved) {
			break
		}
		if reading == readings {
			return sources.End{}, &sources.Error{Kind: sources.KindTransient, Op: op, Err: err, Message: fmt.Sprintf(
				"NetBox counts %d devices and gives another number of them, %d times in a row: the list changes while it is read, or the token sees only a part of it", count, readings)}
		}
	}
	if err != nil {
		return sources.End{}, err
	}
	end := sources.End{
		At: l.at, Complete: true, Records: len(l.given), Dropped: l.odd,
		Elsewhere: max(l.elsewhere, c.countAll(ctx)-count),
	}
	if l.racks.hidden {
		end.Lost = []string{"racks"}
	}
	if l.odd > 0 {
		c.log.Warn("NetBox lists devices whose id cannot be read", "count", l.odd)
	}
	if l.elsewhere > 0 {
		c.log.Warn("NetBox lists devices of sites that were not asked for", "count", l.elsewhere)
	}
	return end, nil
}

// classified keeps an error's kind, and takes a list that moves for transient.
func classified(op string, err error) error {
	if errors.Is(err, errMoved) {
		return &sources.Error{Kind: sources.KindTransient, Op: op, Message: err.Error(), Err: err}
	}
	return err
}

// read reads the list once; count is how many devices NetBox says there are.
func (l *listing) read(ctx context.Context) (count int, err error) {
	query := l.c.query()
	query.Set("fields", wanted)
	query.Set("exclude", "config_context") // costly, where `fields` is not known
	walk := l.c.walk(l.op, "dcim/devices/", query)
	l.elsewhere = 0
	for walk.more() {
		at, elements, err := walk.page(ctx)
		if err != nil && !errors.Is(err, errMoved) {
			return walk.count, err
		}
		if yielding := l.give(at, elements); yielding != nil {
			return walk.count, yielding
		}
		if err != nil {
			return walk.count, err
		}
	}
	l.odd = walk.odd
	return walk.count, nil
}

func (l *listing) give(at time.Time, elements []json.RawMessage) error {
	records := make([]sources.Record, 0, len(elements))
	for _, element := range elements {
		d, ok := decode(element)
		switch {
		case !ok || l.given[d.id]:
		case d.site != "" && !l.c.sites[d.site]:
			l.elsewhere++
		default:
			l.given[d.id] = true
			records = append(records, l.c.record(d, l.racks, at))
		}
	}
	if len(records) == 0 {
		return nil
	}
	return l.yield(records)
}

// record gives what is known of a device of ours. One whose site cannot be read
// is nobody's: NetBox ignores a filter that it does not know.
func (c *Client) record(d device, racks *rackNames, at time.Time) sources.Record {
	r := sources.Record{Ref: d.id, Name: d.facts.Name.Value, Serial: d.serial, At: at}
	if d.site == "" {
		r.Undecodable = "its site cannot be read: it may be another's"
		return r
	}
	f := d.facts
	f.Rack = racks.name(d.rackID, f.Rack)
	r.Netbox = &f
	return r
}

// countAll gives how many devices of any site NetBox shows, 0 where it does not
// say: the figure is for people only.
func (c *Client) countAll(ctx context.Context) int {
	a, fault := c.call(ctx, "count NetBox's devices", request{method: "GET", url: c.path("dcim/devices/", url.Values{"limit": {"1"}, "fields": {"id"}, "exclude": {"config_context"}})})
	if fault != nil {
		return 0
	}
	p, err := decodePage(a.body)
	if err != nil {
		return 0
	}
	return p.count
}

// Get reads one device by its id. It is gone (ErrGone) where NetBox shows none
// of that id: it was deleted, the token may not see it any more, or it stands in
// a site that is not ours.
func (c *Client) Get(ctx context.Context, ref string) (*sources.Record, error) {
	d, err := c.Read(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &d.Record, nil
}

// Device is one device as it was read on its own.
type Device struct {
	sources.Record
	Version Version // what a write may be tied to
}

// Version tells one state of a device from the next. The zero Version is none.
type Version struct {
	etag    string // from 4.6 on
	updated string
}

// Read reads one device for a write; as Get, with its version.
func (c *Client) Read(ctx context.Context, id string) (*Device, error) {
	op := "read NetBox device " + sources.CleanText(id, 32)
	number, err := strconv.ParseInt(id, 10, 64)
	if err != nil || number <= 0 || strconv.FormatInt(number, 10) != id {
		return nil, &sources.Error{Kind: sources.KindRefused, Op: op, Message: "the id of a device is a whole number"}
	}
	a, fault := c.call(ctx, op, request{method: "GET", url: c.path("dcim/devices/"+id+"/", url.Values{"fields": {wanted}, "exclude": {"config_context"}})})
	if fault != nil {
		if fault.Kind == sources.KindMissing {
			fault.Message, fault.Err = "NetBox shows this token no such device", sources.ErrGone
		}
		return nil, fault
	}
	d, ok := decode(a.body)
	if !ok || d.id != id {
		return nil, &sources.Error{Kind: sources.KindTransient, Op: op, Message: fmt.Sprintf("NetBox answers with another device, %q", d.id)}
	}
	if d.site != "" && !c.sites[d.site] {
		return nil, &sources.Error{Kind: sources.KindMissing, Op: op, Message: fmt.Sprintf("the device stands in NetBox's site %q, which is not ours", d.site), Err: &sources.ElsewhereError{Site: d.site}}
	}
	racks := c.racks.Load()
	if racks == nil || d.facts.Rack.Known && !racks.name(d.rackID, d.facts.Rack).Known {
		if racks, err = c.readRacks(ctx, op+": read the racks"); err != nil {
			return nil, classified(op, err)
		}
	}
	return &Device{Record: c.record(d, racks, a.at), Version: Version{etag: a.header.Get("ETag"), updated: d.updated}}, nil
}
