package main

import (
	"encoding/json"
	"time"

	"github.com/musterhq/muster/facts"
)

// benchIngest measures what turns facts into what the engine reads.
func benchIngest(r *report, e effort) error {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	fleet, codes := drawFacts(ingestSize, now)
	context := factsContext(now)
	bodies, slurmBodies := make([][]byte, ingestSize), make([][]byte, ingestSize)
	size := 0
	for i := range fleet {
		var err error
		if bodies[i], err = json.Marshal(bare(fleet[i].Ironic)); err != nil {
			return err
		}
		if slurmBodies[i], err = json.Marshal(&fleet[i].Slurm); err != nil {
			return err
		}
		size += len(bodies[i]) + len(slurmBodies[i])
	}
	f := race(e,
		contender{"Intern: facts to codes", func(n int) {
			for i := range n {
				fleet[i%ingestSize].Intern(&codes[i%ingestSize])
				sink += uint64(codes[i%ingestSize][18])
			}
		}},
		contender{"Complete and Intern", func(n int) {
			for i := range n {
				facts.Complete(&fleet[i%ingestSize], &context)
				fleet[i%ingestSize].Intern(&codes[i%ingestSize])
			}
		}},
		contender{"decode both stored bodies, Complete, Intern", func(n int) {
			for i := range n {
				var f facts.Facts
				if json.Unmarshal(bodies[i%ingestSize], &f.Ironic) != nil || json.Unmarshal(slurmBodies[i%ingestSize], &f.Slurm) != nil {
					panic("a body that was encoded just now does not decode")
				}
				facts.Complete(&f, &context)
				f.Intern(&codes[i%ingestSize])
			}
		}},
		contender{"name what one Ironic reading says, changed or not", func(n int) {
			var form []byte
			for i := range n {
				form = fleet[i%ingestSize].Ironic.AppendCanonical(form[:0])
				hash := facts.Hash(form)
				sink += uint64(hash[0])
			}
		}},
	)
	t := r.table("Ingest the facts of one device", "stored bodies of Ironic and SLURM are %d bytes on average", size/ingestSize)
	t.figures(f...)
	t.target("Intern, ns", f[0].ns, atMost, 500)
	t.target("Intern, allocations", f[0].allocs, atMost, 0)
	t.target("Complete and Intern, ns", f[1].ns, atMost, 500)
	t.remark("Facts are decoded once for each change: what says the same as before is named alone.")
	return nil
}

// bare is what is stored of a node: without derived facts.
func bare(n facts.Ironic) *facts.Ironic {
	n.LesseeRole, n.CustomerTrait, n.Settled, n.Overdue = 0, 0, 0, 0
	return &n
}
