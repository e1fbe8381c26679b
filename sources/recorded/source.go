package recorded

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/sources"
)

const pageSize = 500

// Source is one source of one site, read from a file.
type Source struct {
	path   string
	source string
	clock  sources.Clock
}

// New gives the source that the file at path holds.
func New(path, source string, clock sources.Clock) (*Source, error) {
	if _, known := families[source]; !known {
		return nil, fmt.Errorf("read the recorded source %q: there is no such source", source)
	}
	return &Source{path: path, source: source, clock: clock}, nil
}

// List gives the file's records as if the source had just said so.
func (s *Source) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	end := sources.End{At: s.clock(), Complete: true}
	f, err := read(s.path, s.source)
	if err != nil {
		return end, s.failure("list", err)
	}
	seen := make(map[string]bool, len(f.Records))
	page := make([]sources.Record, 0, pageSize)
	for _, element := range f.Records {
		record, ok := decode(element, s.source, end.At)
		switch {
		case !ok:
			end.Dropped++
			continue
		case notListed(&record):
			continue
		case seen[record.Ref]:
			return end, s.failure("list", fmt.Errorf("%s: the ref %q is there twice", s.path, record.Ref))
		}
		seen[record.Ref] = true
		end.Records++
		if page = append(page, record); len(page) == pageSize {
			if err := give(ctx, page, yield); err != nil {
				return end, err
			}
			page = make([]sources.Record, 0, pageSize)
		}
	}
	if len(page) > 0 {
		err = give(ctx, page, yield)
	}
	return end, err
}

func give(ctx context.Context, page []sources.Record, yield func([]sources.Record) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return yield(page)
}

// Get gives one record of the file.
func (s *Source) Get(_ context.Context, ref string) (*sources.Record, error) {
	at := s.clock()
	f, err := read(s.path, s.source)
	if err != nil {
		return nil, s.failure("get", err)
	}
	dropped := false
	for _, element := range f.Records {
		record, ok := decode(element, s.source, at)
		if ok && record.Ref == ref && !notListed(&record) {
			return &record, nil
		}
		dropped = dropped || !ok
	}
	if dropped { // it may be the one whose identity cannot be read
		return nil, s.failure("get", fmt.Errorf("%s: records without a readable ref", s.path))
	}
	return nil, fmt.Errorf("get %s %q: %w", s.source, ref, sources.ErrGone)
}

// Close does nothing: no file stays open.
func (s *Source) Close() {}

func (s *Source) failure(op string, err error) error {
	return &sources.Error{Kind: sources.KindTransient, Op: op + " recorded " + s.source, Err: err}
}
