package devices_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster"
	"github.com/musterhq/muster/devices"
	"github.com/musterhq/muster/embedded/pgtest"
	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/store"
)

func openDB(t testing.TB) *store.DB {
	t.Helper()
	url := pgtest.Template(t, "migrated", func(url string) error {
		_, err := migrations.Up(context.Background(), url)
		return err
	})
	db, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

func openPolicy(t testing.TB, db *store.DB) *devices.Policy {
	t.Helper()
	p, err := devices.OpenPolicy(db, muster.Bundle(), time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// edited gives the shipped bundle with one replacement made in one file.
func edited(t testing.TB, name, from, to string) map[string][]byte {
	t.Helper()
	files, err := engine.Files(muster.Bundle())
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	if !strings.Contains(string(files[name]), from) {
		t.Fatalf("%s has no %q", name, from)
	}
	files[name] = []byte(strings.Replace(string(files[name]), from, to, 1))
	return files
}

func TestAReplicaFollowsWhatAnotherActivates(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	one, other := openPolicy(t, db), openPolicy(t, db)
	if _, err := other.Refresh(t.Context()); err != devices.ErrNoPolicy {
		t.Fatalf("before the first activation: %v, want ErrNoPolicy", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() { followed <- other.Follow(ctx) }()

	b, _, err := one.Activate(t.Context(), muster.Bundle(), "test")
	if err != nil {
		t.Fatal(err)
	}
	wait(t, "the other replica to follow", func() bool {
		c := other.Current()
		return c != nil && c.Version() == b.Version()
	})
	stop()
	if err := <-followed; err != nil {
		t.Error(err)
	}
}

func TestABrokenTreeReplacesNothingAndIsTold(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	p := openPolicy(t, db)
	good, _, err := p.Activate(t.Context(), muster.Bundle(), "test")
	if err != nil {
		t.Fatal(err)
	}
	broken := edited(t, "policies/status/operational.cue", `then: "failed"`, `then: "faild"`)
	if _, _, err := p.Activate(t.Context(), engine.Tree(broken), "test"); err == nil {
		t.Fatal("a status that does not exist was activated")
	}
	if got := p.Current().Version(); got != good.Version() {
		t.Errorf("loaded %s, want the good one", got)
	}
	status := p.Status()
	if !strings.Contains(status.Error, "operational.cue:") || status.Active != good.Version() {
		t.Errorf("status %+v does not tell the place of the error", status)
	}
	// The next good one clears it.
	if _, _, err := p.Activate(t.Context(), muster.Bundle(), "test"); err != nil {
		t.Fatal(err)
	}
	if status := p.Status(); status.Error != "" {
		t.Errorf("the error stands although the newest tree is good: %s", status.Error)
	}
}

func TestABitIsNeverReused(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	p := openPolicy(t, db)
	first, _, err := p.Activate(t.Context(), muster.Bundle(), "test")
	if err != nil {
		t.Fatal(err)
	}
	// "AAA" sorts before every other type, and still comes last.
	files := edited(t, "policies/conditions/latches.cue", "conditions: {", `conditions: {
	AaaFirst: {
		writer:  "custody"
		feeds:   "none"
		durable: true
		absent:  "False"
		meaning: "A type that sorts first."
	}`)
	second, _, err := p.Activate(t.Context(), engine.Tree(files), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range first.Catalogue() {
		now, ok := second.Type(kind.Name)
		if !ok || now.Bit != kind.Bit {
			t.Errorf("%s moved from bit %d", kind.Name, kind.Bit)
		}
	}
	added, ok := second.Type("AaaFirst")
	if !ok || int(added.Bit) != len(first.Catalogue()) {
		t.Errorf("the new type has bit %d, want the next free one", added.Bit)
	}
}

func TestASchemaOfAnotherBuildIsRefused(t *testing.T) {
	t.Parallel()
	p := openPolicy(t, openDB(t))
	files := edited(t, "schema/names.cue", `"degraded"`, `"degraded" | "poor"`)
	_, _, err := p.Activate(t.Context(), engine.Tree(files), "test")
	if err == nil || !strings.Contains(err.Error(), "muster policy init --schema") {
		t.Errorf("error %v, want the remedy", err)
	}
}

// wait polls until the condition holds, for two minutes at most: a bundle loads
// slowly under the race detector on a busy machine.
func wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}
