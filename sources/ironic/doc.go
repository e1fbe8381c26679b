// Package ironic reads the nodes of one OpenStack Ironic as facts and does the
// few writes that workflows need. It judges nothing: what a state or a lessee
// means is policy, what an absence means is the reconciler's.
//
// Facts come from GET /v1/nodes with exactly the fields that are facts, decoded
// from the raw body one node and one field at a time: a library's struct turns
// null, absent and odd values into "" and false, and then a node that nobody
// could read looks healthy. Measured on a real Ironic with 300 nodes, fields=
// brings everything in 0.10 s and 265 kB, /v1/nodes/detail in 0.13 s and 823 kB.
//
// Where facts are not a field of the same name:
//
//   - instance_bound is false only where Ironic itself says null.
//   - lessee and reservation are "" where Ironic says null; every other text
//     that Ironic leaves null or empty is a null fact.
//   - our_mark is true if extra holds "muster": "muster:<job>:<instance_uuid>"
//     with the uuid that is bound now, false if it holds none or another.
//   - bmc_address is the host of driver_info's redfish_address, ipmi_address,
//     ilo_address, drac_address or irmc_address, the driver's own one first.
//   - the serial is properties.serial_number, properties.serial,
//     extra.serial_number or extra.serial, the first that is no placeholder.
//   - properties are Ironic's; cpus, memory_mb, local_gb and root_gb are
//     numbers, however they were written.
//   - what Ironic redacts for want of permission is null, with the reason
//     FieldNotServed.
//
// The API version is negotiated: 1.82 or the newest that the server has below
// it. Below 1.65 the lessee is lost, below 1.50 the owner, below 1.42 the
// fault; a server without 1.37 (traits) is refused.
//
// What workflows write:
//
//   - SetLessee, AddTrait, RemoveTrait, SetMaintenance, ClearMaintenance,
//     SetPower and SetProvision alter a node (change).
//   - Create, AddPort and Delete make and remove (deed). A new node has a uuid
//     of the caller's, so that after a lost answer it is told from another's.
//   - Bind, Deploy and Unbind are an image of ours on a node by Ironic alone:
//     an instance that muster mints, bound under its mark in one request, put
//     there with a config drive, and what Ironic's tear-down leaves cleared
//     away in one request again.
//
// Details, Ports and Inventory read what facts do not carry, when a workflow
// asks. An inventory is there from 1.81 on, and only after an inspection by a
// ramdisk.
package ironic
