package reconciler

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/sources"
)

const (
	batchSize  = 500
	pagesAhead = 1 // read while another is applied
)

// listing is what is kept of one listing until its end: every ref, and the
// records whose ref no device has. What is known already is applied and gone.
type listing struct {
	*sweep
	known    *devices.Known // what was stored when the sweep began
	listed   map[string]bool
	unknown  []sources.Record
	findings []fleet.Finding
	borders  *borders
	fresh    int // devices that were born here or moved here
}

// newListing looks at what is stored before the source is asked.
func newListing(ctx context.Context, s *sweep) (*listing, error) {
	l := &listing{sweep: s, listed: map[string]bool{}}
	var err error
	if l.borders, err = s.bordersOf(ctx); err != nil {
		return nil, err
	}
	l.known, err = s.Devices.Look(ctx, s.site.ID, s.lease.Source, l.typesOf(s.lease.Source))
	return l, err
}

// read lists the source. Each page is applied while the next one is fetched:
// what changed waits for nothing but its own page.
func (l *listing) read(ctx context.Context) (sources.End, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	pages := make(chan []sources.Record, pagesAhead)
	applied := make(chan error, 1)
	go func() {
		err := guard(func() error { return l.applyPages(ctx, pages) })
		if err != nil {
			cancel(err)
		}
		applied <- err
	}()
	end, err := l.list(ctx, pages)
	close(pages)
	if applying := <-applied; applying != nil {
		return end, applying
	}
	return end, err
}

func (l *listing) list(ctx context.Context, pages chan<- []sources.Record) (end sources.End, err error) {
	err = guard(func() error {
		end, err = l.client.List(ctx, func(page []sources.Record) error {
			select {
			case pages <- page:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		return err
	})
	return end, err
}

// applyPages applies pages until there are no more, or one fails.
func (l *listing) applyPages(ctx context.Context, pages <-chan []sources.Record) error {
	for page := range pages {
		if err := l.page(ctx, page); err != nil {
			return err
		}
	}
	return nil
}

// page takes one page. What repeats what is stored is not applied.
func (l *listing) page(ctx context.Context, page []sources.Record) error {
	var fresh []*sources.Record
	var readings []fleet.Reading
	listed := len(l.listed)
	for i := range page {
		record := &page[i]
		if record.Ref == "" || l.listed[record.Ref] {
			continue // a listing that shifts under its pages repeats records
		}
		if l.borders.beyond(record) {
			continue
		}
		l.listed[record.Ref] = true
		if record.Undecodable != "" {
			l.metrics.undecodable.WithLabelValues(l.lease.Source).Inc()
			l.find(fleet.FindingUndecodable, record.Ref, 0, map[string]any{"error": sources.CleanText(record.Undecodable, 512)})
		}
		if rd := reading(record); !l.known.Unchanged(&rd) {
			fresh, readings = append(fresh, record), append(readings, rd)
		}
	}
	l.metrics.records.WithLabelValues(l.lease.Source).Add(float64(len(l.listed) - listed))
	return l.apply(ctx, readings, func(i int) {
		if fresh[i].Undecodable == "" {
			l.unknown = append(l.unknown, *fresh[i])
		}
	})
}

// overtaken reads again what somebody else has written while the listing
// brought a later word that said what was stored before.
func (l *listing) overtaken(ctx context.Context) error {
	refs, err := l.known.Overtaken(ctx, l.DB, l.site.ID)
	if err != nil {
		return err
	}
	var records []sources.Record
	for _, ref := range refs {
		record, err := l.ask(ctx, ref)
		if errors.Is(err, sources.ErrGone) || err != nil && l.lease.Source == "bmc" && ctx.Err() == nil {
			continue // the next listing says so, the next round tries it again
		}
		if err != nil {
			return err
		}
		records = append(records, *record)
	}
	readings := make([]fleet.Reading, len(records))
	for i := range records {
		readings[i] = reading(&records[i])
	}
	return l.apply(ctx, readings, nil)
}

// apply applies readings in batches; unknown is told the index of each whose
// ref no device has.
func (l *listing) apply(ctx context.Context, readings []fleet.Reading, unknown func(i int)) error {
	for first := 0; first < len(readings); first += batchSize {
		batch := readings[first:min(first+batchSize, len(readings))]
		applied, err := l.Devices.Apply(ctx, fleet.Batch{
			SiteID: l.site.ID, Source: l.lease.Source, Owner: l.lease.Owner, Epoch: l.lease.Epoch, Readings: batch,
		})
		if err != nil {
			return err
		}
		l.fresh += len(applied.Born)
		for _, i := range applied.Unknown {
			if unknown != nil {
				unknown(first + i)
			}
		}
		if err := l.note(ctx, batch, &applied); err != nil {
			return err
		}
	}
	return nil
}

// note keeps what a person should know of what was applied.
func (l *listing) note(ctx context.Context, batch []fleet.Reading, applied *devices.Applied) error {
	for _, refused := range applied.Refused {
		rd := &batch[refused.Index]
		kind := fleet.FindingUndecodable
		if refused.Code == devices.CodeJoinAmbiguous {
			kind = fleet.FindingAmbiguous
		}
		l.find(kind, rd.Ref, rd.Device, map[string]any{"name": rd.Name, "why": string(refused.Code), "error": sources.CleanText(refused.Reason, 512)})
	}
	if err := l.noteMoves(ctx, batch, applied); err != nil {
		return err
	}
	return l.noteSwaps(ctx, applied.Swapped)
}

func (l *listing) find(kind, ref string, device int64, detail map[string]any) {
	l.findings = append(l.findings, fleet.Finding{Kind: kind, Ref: ref, DeviceID: device, Detail: detail})
}

// reading gives what a record says, for whoever has its ref.
func reading(r *sources.Record) fleet.Reading {
	rd := fleet.Reading{Ref: r.Ref, Name: r.Name, Serial: r.Serial, At: r.At, Facts: family(r), Undecodable: r.Undecodable, Unanswered: r.Unanswered}
	if sources.PlaceholderSerial(rd.Serial) {
		rd.Serial = ""
	}
	return rd
}

func family(r *sources.Record) (f facts.Facts) {
	switch {
	case r.Ironic != nil:
		f.Ironic = *r.Ironic
	case r.Placement != nil:
		f.Placement = *r.Placement
	case r.Slurm != nil:
		f.Slurm = *r.Slurm
	case r.Netbox != nil:
		f.Netbox = *r.Netbox
	case r.BMC != nil:
		f.BMC = *r.BMC
	}
	return f
}

// ask reads one thing by its own identity, bounded.
func (l *listing) ask(ctx context.Context, ref string) (*sources.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, l.CallLimit)
	defer cancel()
	record, err := l.client.Get(ctx, ref)
	if err == nil && (record == nil || record.Ref != ref) {
		err = fmt.Errorf("get %s %q: the answer is of another thing", l.lease.Source, ref)
	}
	return record, err
}
