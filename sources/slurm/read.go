package slurm

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/musterhq/muster/sources"
)

// pageSize is how many records are given at a time.
const pageSize = 500

// List gives every node of the cluster. SLURM answers all at once, and tells
// its errors at the answer's end: nothing is given before that was read.
func (c *Client) List(ctx context.Context, yield func([]sources.Record) error) (sources.End, error) {
	const op = "list SLURM's nodes"
	a, fault := c.call(ctx, op, "GET", "/nodes", nil)
	if fault != nil {
		return sources.End{}, fault
	}
	elements, err := a.elements()
	if err != nil {
		return sources.End{}, &sources.Error{Kind: sources.KindTransient, Op: op, Message: err.Error()}
	}
	records, dropped := c.records(elements, a)
	if dropped > 0 {
		c.log.Warn("SLURM lists nodes whose name cannot be read", "count", dropped)
	}
	for start := 0; start < len(records); start += pageSize {
		if err := yield(records[start:min(start+pageSize, len(records))]); err != nil {
			return sources.End{}, err
		}
	}
	return sources.End{
		At: a.at, Complete: true, Records: len(records), Dropped: dropped,
		Lost: capabilitiesOf(a.version).lost(),
	}, nil
}

// elements gives nodes[] undecoded. An answer without the list is not an empty
// cluster.
func (a *answer) elements() ([]json.RawMessage, error) {
	if a.doc.Nodes == nil || string(a.doc.Nodes) == "null" {
		return nil, fmt.Errorf("the answer of %s has no list of nodes", a.version)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(a.doc.Nodes, &elements); err != nil {
		return nil, fmt.Errorf("the answer of %s has no list of nodes: %w", a.version, err)
	}
	return elements, nil
}

// records decodes element by element. A name that comes twice is one record;
// if the two differ, neither is believed.
func (c *Client) records(elements []json.RawMessage, a *answer) (records []sources.Record, dropped int) {
	records = make([]sources.Record, 0, len(elements))
	place := make(map[string]int, len(elements))
	for _, element := range elements {
		n, ok := decode(element, a.version)
		if !ok {
			dropped++
			continue
		}
		if i, twice := place[n.name]; twice {
			if r := &records[i]; r.Slurm != nil && !reflect.DeepEqual(*r.Slurm, n.facts) {
				r.Slurm, r.Undecodable = nil, "SLURM lists the node twice, with different facts"
			}
			continue
		}
		place[n.name] = len(records)
		records = append(records, c.record(n, a.at))
	}
	c.forgetStrange(place)
	return records, dropped
}

func (c *Client) record(n node, at time.Time) sources.Record {
	for fact := range n.facts.Unreadable {
		c.meter.DecodeFailed(fact)
	}
	c.warnStrange(n)
	f := n.facts
	return sources.Record{Ref: n.name, Name: n.name, At: at, Slurm: &f}
}

// warnStrange warns of unmodelled tokens when they change, not at every reading.
func (c *Client) warnStrange(n node) {
	tokens := strings.Join(n.facts.UnknownTokens, " ")
	c.mu.Lock()
	before := c.strange[n.name]
	if tokens == "" {
		delete(c.strange, n.name)
	} else {
		c.strange[n.name] = tokens
	}
	c.mu.Unlock()
	for _, token := range n.facts.UnknownTokens {
		c.meter.Unmodelled(n.name, token)
	}
	if tokens != "" && tokens != before {
		c.log.Warn("SLURM gives a node state that muster does not know", "node", n.name, "token", tokens)
	}
}

// forgetStrange drops the memory of nodes that are no longer listed.
func (c *Client) forgetStrange(listed map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.strange {
		if _, ok := listed[name]; !ok {
			delete(c.strange, name)
		}
	}
}

// Get reads one node by its name. It is gone (ErrGone) only where SLURM says
// that it has no node of that name.
func (c *Client) Get(ctx context.Context, ref string) (*sources.Record, error) {
	n, at, err := c.read(ctx, "read SLURM node "+ref, ref)
	if err != nil {
		return nil, err
	}
	record := c.record(n, at)
	return &record, nil
}

// read reads one node; at is the instant before the request.
func (c *Client) read(ctx context.Context, op, name string) (n node, at time.Time, err error) {
	if err := validName(name); err != nil {
		return node{}, at, &sources.Error{Kind: sources.KindRefused, Op: op, Message: err.Error(), Err: err}
	}
	a, fault := c.call(ctx, op, "GET", "/node/"+name, nil)
	if a != nil && a.gone() {
		return node{}, a.at, &sources.Error{Kind: sources.KindMissing, Op: op, Message: "SLURM has no such node", Err: sources.ErrGone}
	}
	if fault != nil {
		if fault.Kind == sources.KindMissing {
			fault.Kind = sources.KindTransient // not SLURM's way to say that a node is gone
		}
		return node{}, at, fault
	}
	elements, err := a.elements()
	if err != nil {
		return node{}, at, &sources.Error{Kind: sources.KindTransient, Op: op, Message: err.Error()}
	}
	if len(elements) != 1 {
		return node{}, at, &sources.Error{Kind: sources.KindTransient, Op: op, Message: fmt.Sprintf("SLURM answers with %d nodes in place of one", len(elements))}
	}
	n, ok := decode(elements[0], a.version)
	if !ok || n.name != name {
		return node{}, at, &sources.Error{Kind: sources.KindTransient, Op: op, Message: fmt.Sprintf("SLURM answers with another node, %q", n.name)}
	}
	return n, a.at, nil
}

// gone reports SLURM's ways to say of one node that it has none of the name:
// error 2018, or, from v0.0.40 on, 200 with error 0 and no list of nodes.
func (a *answer) gone() bool {
	if a.doc == nil || len(a.doc.errors) == 0 {
		return false
	}
	if a.status == 200 {
		for _, e := range a.doc.errors {
			if !e.known || e.number != 0 {
				return false
			}
		}
		return a.doc.Nodes == nil
	}
	for _, e := range a.doc.errors {
		if !e.known || e.number != errNodeUnknown {
			return false
		}
	}
	return true
}

// validName refuses every name that SLURM would expand to more than one node
// (lists, ranges, node sets by syntax, ALL) or that would change the path.
func validName(name string) error {
	if name == "" || len(name) > maxName || name[0] == '.' || name[0] == '-' || strings.EqualFold(name, "all") || strings.EqualFold(name, "default") {
		return fmt.Errorf("%q is not the name of one SLURM node", sources.CleanText(name, 64))
	}
	for _, r := range name {
		if r != '-' && r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return fmt.Errorf("%q is not the name of one SLURM node", sources.CleanText(name, 64))
		}
	}
	return nil
}
