package main

import (
	"strings"
	"testing"
)

// eligibility asks whether a device in quarantine may be released.
func (d *development) eligibility(t *testing.T) {
	out, errs, code := d.run(t, "eligibility", "release_to_customer_pool", "hel1-r02-c04")
	for _, want := range []string{"may not run: 1 device refused", "✗ enrollment_proof_missing", "policies/eligibility/release_to_customer_pool.cue:"} {
		if code != 1 || !strings.Contains(out, want) {
			t.Errorf("code %d, no %q in %s%s", code, want, out, errs)
		}
	}
	if out := d.must(t, "eligibility", "--list"); !strings.Contains(out, "move_to_test_cluster") || !strings.Contains(out, "cordon_only=false") {
		t.Errorf("the workflows are %s", out)
	}
	if _, errs, code := d.run(t, "eligibility", "release_to_customer_pool"); code != 2 || !strings.Contains(errs, "on which devices") {
		t.Errorf("without a device: %d %s", code, errs)
	}
	if out := d.must(t, "job", "list"); !strings.HasPrefix(out, "ID") {
		t.Errorf("the jobs are %s", out)
	}
}
