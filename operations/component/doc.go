// Package component manages the components of a rack: what can be done with a
// compute tray, a switch tray or a power shelf, by capability (power, reachability,
// firmware, decommission).
//
// A component is managed through its BMC (sources/redfish); a compute tray that
// Ironic manages takes its power through Ironic, which would undo what is done
// behind its back. A decommissioning is asked of the inventory (sources/netbox),
// which says when it is done.
//
// # What every act keeps
//
// It reads what is so right before it writes; what is so already is success. What
// leads to a state (Switch) may be tried again at any time. What does not (Reset,
// StartUpdate) says by its code that its answer was lost (RESET_RESULT_UNKNOWN,
// FIRMWARE_START_UNKNOWN): then nothing is sent again, and Marker or FindUpdate
// tells from a reading taken before whether it happened.
//
// Errors carry a code of package codes, by act.Retry (nothing was done, or what was
// done may be done again) or act.Final. Nothing here knows a rule, a step or a row.
package component
