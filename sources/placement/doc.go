// Package placement reads the resource providers of one OpenStack Placement as
// facts of Ironic's nodes and does the few writes that workflows need. It judges
// nothing: that a node without a provider holds no allocation is the
// reconciler's conclusion from a complete listing.
//
// A record's ref is the provider's uuid, which Nova makes that of the node; its
// name is Nova's too, the same uuid, and joins nothing. Nova's hypervisors have
// providers as well: they are given like the others, and no device has their
// uuid. A provider within another, such as a GPU of a hypervisor, is no node and
// is left out.
//
//   - provider_exists is true of every record.
//   - allocated tells whether the provider's allocations are any; it is null
//     where the answer cannot be read.
//
// Placement lists providers in one answer, without pages and without their
// allocations: each is asked for its own, a bounded number at a time. One that
// had none is not asked again while its generation stays, for five minutes at
// most: every new allocation raises the generation, but the end of one does not,
// so who has any is asked in each listing. The five minutes are for a provider
// that was deleted and made anew in between, whose generation starts over.
//
// The API is spoken to in version 1.28 (2018), which all newer servers have.
package placement
