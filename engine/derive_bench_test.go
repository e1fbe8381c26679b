package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/musterhq/muster/facts"
)

// fleetOf draws a fleet as one is found: most devices are in the customer pool
// or in validation with one condition or none out of line, each has the status
// that the ladder gives it.
func fleetOf(b *Bundle, size int) []Standing {
	rng := rand.New(rand.NewPCG(7, 8))
	order := bitsOf(allBits)
	fleet := make([]Standing, size)
	for i := range fleet {
		s := &fleet[i]
		s.True = bitEnrolled | bitCustomerReady | bitProvisionAvailable
		switch rng.IntN(4) {
		case 0:
			s.True = bitEnrolled | bitValidationAllocated | bitSlurmMember | bitSlurmSchedulable
		case 1:
			s.True = bitEnrolled | bitCustomerReady | bitInstanceAllocated
		}
		for rng.IntN(3) == 0 {
			switch bit := order[rng.IntN(len(order))]; rng.IntN(3) {
			case 0:
				s.Unknown, s.True = s.Unknown|bit, s.True&^bit
			default:
				s.True, s.Unknown = s.True^bit, s.Unknown&^bit
			}
		}
		s.Present, s.InScope = allBits, allBits
		s.Status = b.Derive(s).Status
	}
	return fleet
}

const benchmarkFleet = 4096

// sink keeps what a benchmark computes.
var sink uint64

func BenchmarkDerive(bench *testing.B) {
	b := deviceModelBundle(bench)
	for _, fresh := range []struct {
		name  string
		stale uint64
	}{{"fresh", 0}, {"slurm stale", slurmBits}, {"openstack stale", openstackBits}} {
		bench.Run(fresh.name, func(bench *testing.B) {
			fleet := fleetOf(b, benchmarkFleet)
			for i := range fleet {
				fleet[i].Stale = fresh.stale
			}
			bench.ReportAllocs()
			var sum uint64
			i := 0
			for bench.Loop() {
				sum += uint64(b.Derive(&fleet[i%benchmarkFleet]).Status)
				i++
			}
			sink += sum
		})
	}
	// Every device wants a promotion that something stale forbids.
	bench.Run("held", func(bench *testing.B) {
		s := Standing{Masks: Masks{True: bitEnrolled | bitCustomerReady | bitProvisionAvailable, Present: allBits &^ slurmBits}, InScope: allBits, Stale: allBits, Status: facts.OperationalStatusQuarantine}
		if v := b.Derive(&s); v.Hold != Held {
			bench.Fatalf("not held: %+v", v)
		}
		bench.ReportAllocs()
		for bench.Loop() {
			sink += uint64(b.Derive(&s).Status)
		}
	})
}

func BenchmarkHandWritten(bench *testing.B) {
	fleet := fleetOf(deviceModelBundle(bench), benchmarkFleet)
	var sum uint64
	i := 0
	for bench.Loop() {
		s := &fleet[i%benchmarkFleet]
		sum += uint64(rungStatus[handWritten(s.True, s.Unknown)])
		i++
	}
	sink += sum
}

// One derivation of a million devices, as the projection of a bundle does it.
func BenchmarkMillion(bench *testing.B) {
	b := deviceModelBundle(bench)
	fleet := fleetOf(b, 1_000_000)
	bench.Run("derive", func(bench *testing.B) {
		for bench.Loop() {
			var sum uint64
			for i := range fleet {
				sum += uint64(b.Derive(&fleet[i]).Status)
			}
			sink += sum
		}
		bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N)/1e6, "ns/device")
	})
	bench.Run("hand-written", func(bench *testing.B) {
		for bench.Loop() {
			var sum uint64
			for i := range fleet {
				sum += uint64(rungStatus[handWritten(fleet[i].True, fleet[i].Unknown)])
			}
			sink += sum
		}
		bench.ReportMetric(float64(bench.Elapsed().Nanoseconds())/float64(bench.N)/1e6, "ns/device")
	})
}
