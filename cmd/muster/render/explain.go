package render

import (
	"time"
)

// Explanation tells why a device is what it is, as the API's explain answers
// and as a folder of recordings is judged.
type Explanation struct {
	Device struct {
		ID   int64  `json:"id,omitempty"`
		Name string `json:"name"`
		Site string `json:"site"`
	} `json:"device"`
	At            time.Time        `json:"at"`
	BundleVersion string           `json:"bundle_version"`
	Status        string           `json:"operational_status"`
	Rung          *string          `json:"rung"`
	Derived       bool             `json:"derived"`
	Held          bool             `json:"held"`
	Frozen        bool             `json:"frozen"`
	StatusFresh   bool             `json:"status_fresh"`
	Operational   *StatusTrace     `json:"operational"`
	Freeze        *Trace           `json:"freeze,omitempty"`
	Health        *Trace           `json:"health"`
	CustomerReady *Trace           `json:"customer_ready"`
	Class         *Trace           `json:"device_class"`
	Inventory     *Trace           `json:"inventory_status"`
	Conditions    []ConditionTrace `json:"conditions"`
	Writers       []WriterTrace    `json:"writers"`
	Sources       []SourceTrace    `json:"sources"`
}

// Trace tells how a ladder came to its outcome.
type Trace struct {
	Ladder  string  `json:"ladder"`
	Outcome string  `json:"outcome"`
	Rung    string  `json:"rung"`
	Pos     string  `json:"pos"`
	Reason  *string `json:"reason"`
	Message *string `json:"message"`
	Steps   []Step  `json:"steps"`
}

// Step is one rung of a trace.
type Step struct {
	Rung    string `json:"rung"`
	Pos     string `json:"pos"`
	Then    string `json:"then"`
	Matched bool   `json:"matched"`
	Skipped bool   `json:"skipped"`
	Failed  *Test  `json:"failed"`
	Tests   []Test `json:"tests"`
}

// Test is one question that a rung asks.
type Test struct {
	Path    string `json:"path"`
	Want    string `json:"want"`
	Actual  string `json:"actual"`
	Pos     string `json:"pos"`
	Matched bool   `json:"matched"`
	In      string `json:"in"`
}

// StatusTrace is the trace of the operational ladder, with what staleness made
// of it.
type StatusTrace struct {
	Trace
	Fresh    bool     `json:"fresh"`
	Hold     string   `json:"hold"`
	HeldWhy  *string  `json:"held_why"`
	Decisive []string `json:"decisive"`
	Stale    []string `json:"stale"`
	NoRow    []string `json:"no_row"`
	PastHold []string `json:"past_hold"`
}

// ConditionTrace is one type of the catalogue as it stands for the device.
type ConditionTrace struct {
	Type     string     `json:"type"`
	Status   string     `json:"status"`
	Reason   *string    `json:"reason"`
	Message  *string    `json:"message"`
	HasRow   bool       `json:"has_row"`
	InScope  bool       `json:"in_scope"`
	Decisive bool       `json:"decisive"`
	Stale    *string    `json:"stale"`
	Observed *time.Time `json:"observed_at"`
	Emission *Trace     `json:"emission"`
}

// WriterTrace says whether a writer speaks of the device.
type WriterTrace struct {
	Writer  string            `json:"writer"`
	InScope bool              `json:"in_scope"`
	Unread  map[string]Unread `json:"unread"`
	Scope   *Trace            `json:"scope"`
}

// Unread says why a good reading did not give something.
type Unread struct {
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
}

// SourceTrace says what one source knows the device by.
type SourceTrace struct {
	Source  string     `json:"source"`
	Ref     *string    `json:"ref"`
	RefGone bool       `json:"ref_gone"`
	SeenAt  time.Time  `json:"seen_at"`
	ReadAt  *time.Time `json:"read_at"`
	Failing *time.Time `json:"failing_since"`
	Stale   bool       `json:"stale"`
	Unread  *Unread    `json:"unread"`
}

// Event is one row of a device's history.
type Event struct {
	ID            int64      `json:"id"`
	DeviceID      int64      `json:"device_id"`
	Kind          string     `json:"kind"`
	Value         string     `json:"value"`
	CreatedAt     time.Time  `json:"created_at"`
	EndedAt       *time.Time `json:"ended_at"`
	Rung          *string    `json:"rung"`
	BundleVersion *string    `json:"bundle_version"`
	StatusBefore  *string    `json:"status_before"`
}

// Replay tells why one change of the past happened, by the policy of its time.
type Replay struct {
	Event       Event        `json:"event"`
	Operational *StatusTrace `json:"operational"`
}
