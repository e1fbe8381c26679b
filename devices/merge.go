package devices

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/fleet"
	"github.com/musterhq/muster/store"
)

// merged says what became of one reading.
type merged uint8

const (
	mergedNew     merged = iota // something of it is new
	mergedNothing               // what is stored says the same
	mergedOlder                 // what is stored is newer
	mergedUnknown               // no device has the ref any more
)

// merge brings one reading into what is stored of a device. Order is kept here:
// a reading older than the device's facts is ignored whole.
func (r *round) merge(s *subject, b *fleet.Batch, rd *fleet.Reading, hash [16]byte) (merged, error) {
	source := b.Source
	stored := s.stored[source]
	if rd.Reclassify { // it says nothing of its own that could be too old
		s.reclassify = true
		return mergedNew, nil
	}
	if stored != nil && rd.At.Before(stored.SeenAt) {
		return mergedOlder, nil
	}
	if rd.Device == 0 && !s.born && (stored == nil || stored.Ref != rd.Ref) {
		return mergedUnknown, nil // it passed to another device after the first look
	}
	switch {
	case rd.Gone:
		return r.mergeGone(s, b, rd)
	case rd.Missing:
		return s.trouble(source, ReasonMissing, rd.At), nil
	case rd.Moving:
		return s.trouble(source, ReasonSiteMove, rd.At), nil
	case rd.Doubtful:
		return s.trouble(source, ReasonAmbiguous, rd.At), nil
	case rd.Undecodable != "":
		return s.trouble(source, ReasonDecodeFailed, rd.At), nil
	case rd.Unanswered != "":
		return s.unanswered(source, rd)
	}
	fresh := fleet.Stored{
		DeviceID: s.device.ID, SiteID: r.site.ID, Source: source, Ref: rd.Ref, Serial: rd.Serial, Hash: hash, SeenAt: micros(rd.At),
	}
	if stored == nil {
		return mergedNew, s.keepSaid(&fresh, rd)
	}
	known, now := fleet.SerialKey(stored.Serial), fleet.SerialKey(fresh.Serial)
	if known != "" && now == "" { // a serial that was not read is not another one
		fresh.Serial = stored.Serial
	}
	if stored.Ref == fresh.Ref && known != "" && now != "" && known != now {
		s.swapped, s.swappedFrom = true, stored.Serial
	}
	same := stored.Hash == fresh.Hash && stored.Ref == fresh.Ref && stored.Serial == fresh.Serial && !stored.RefGone && stored.Trouble.Reason == ""
	switch {
	case same && b.Epoch != 0:
		return mergedNothing, nil
	case same:
		fresh.Body = stored.Body
		s.keep(&fresh)
		return mergedNothing, nil
	}
	return mergedNew, s.keepSaid(&fresh, rd)
}

// keepSaid keeps what a source said, encoded.
func (s *subject) keepSaid(fresh *fleet.Stored, rd *fleet.Reading) (err error) {
	if fresh.Body, err = bodyOf(&rd.Facts, fresh.Source); err != nil {
		return err
	}
	s.keep(fresh)
	return nil
}

// mergeGone takes that a complete listing does not have the device. One that
// the source never listed gets a row that says so.
func (r *round) mergeGone(s *subject, b *fleet.Batch, rd *fleet.Reading) (merged, error) {
	stored := s.stored[b.Source]
	s.confirmedGone = s.confirmedGone || rd.Confirmed && b.Source == r.site.Spec.InventorySource()
	same := stored != nil && stored.RefGone && stored.Trouble.Reason == ""
	if same && b.Epoch != 0 {
		return mergedNothing, nil
	}
	if stored == nil {
		stored = &fleet.Stored{DeviceID: s.device.ID, SiteID: r.site.ID, Source: b.Source}
	}
	if err := s.lose(stored, micros(rd.At)); err != nil {
		return mergedNothing, err
	}
	if same {
		return mergedNothing, nil
	}
	return mergedNew, nil
}

// nothingSaid is the hash of facts that no record gave: none is the same.
var nothingSaid [16]byte

// lose ends what a source says of a device. The ref stays to be known again.
func (s *subject) lose(stored *fleet.Stored, at time.Time) error {
	body, err := goneBody(stored.Source, stored.Body)
	if err != nil {
		return err
	}
	gone := *stored
	gone.RefGone, gone.Trouble = true, fleet.Unread{}
	gone.Hash, gone.Body, gone.SeenAt = nothingSaid, body, at
	s.keep(&gone)
	return nil
}

// trouble notes that the newest reading gave nothing. The facts keep their
// values and their instant. Of a device of which the source has said nothing,
// only a doubt is noted: some record may be it.
func (s *subject) trouble(source, reason string, at time.Time) merged {
	stored := s.stored[source]
	switch {
	case stored == nil && reason == ReasonAmbiguous:
		stored = &fleet.Stored{DeviceID: s.device.ID, SiteID: s.device.SiteID, Source: source, RefGone: true, Hash: nothingSaid, Body: []byte("{}"), SeenAt: micros(at)}
	case stored == nil, stored.Trouble.Reason == reason, stored.RefGone && reason != ReasonAmbiguous:
		return mergedNothing
	case stored.Trouble.Reason == ReasonSiteMove && reason == ReasonMissing: // and it is known where it is
		return mergedNothing
	}
	troubled := *stored
	if troubled.Trouble.Reason == "" {
		troubled.Trouble.Since = micros(at)
	}
	troubled.Trouble.Reason = reason
	s.keep(&troubled)
	return mergedNew
}

func (s *subject) keep(stored *fleet.Stored) {
	s.stored[stored.Source] = stored
	s.newFacts[stored.Source] = true
}

// newborn makes the device that a reading gives birth to. Its axes follow from
// its facts.
func (r *round) newborn(id int64, rd *fleet.Reading) *subject {
	name := rd.Name
	if name == "" {
		name = rd.Ref
	}
	s := newSubject(fleet.Device{
		ID: id, SiteID: r.site.ID, Name: name, Serial: rd.Serial, InventoryOnly: r.site.Spec.InventoryOnly,
		Class: facts.DeviceClassOther, Inventory: facts.InventoryStatusUnknown,
		Operational: facts.OperationalStatusUnknown, Health: facts.HealthStatusUnknown,
		Proof: fleet.Proof{Source: proofNone}, CreatedAt: r.now,
	})
	s.born = true
	return s
}

// micros cuts an instant to what the database keeps.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// check refuses a batch that breaks the contract of Apply. Names and serials are
// compared as they are stored; a ref that cannot be stored is nobody's.
func check(b *fleet.Batch) error {
	if len(b.Readings) > maxBatch {
		return fmt.Errorf("apply %d readings: at most %d fit one batch", len(b.Readings), maxBatch)
	}
	given := b.Readings
	for i := range given {
		rd := &given[i]
		if rd.At.IsZero() {
			return fmt.Errorf("apply reading %d (%s): it has no instant", i, rd.Ref)
		}
		name, serial := store.Clean(rd.Name), store.Clean(rd.Serial)
		if name == rd.Name && serial == rd.Serial {
			continue
		}
		if &given[0] == &b.Readings[0] {
			b.Readings = slices.Clone(given)
		}
		b.Readings[i].Name, b.Readings[i].Serial = name, serial
	}
	return nil
}
