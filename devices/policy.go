package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/store"
)

// ErrNoPolicy says that no bundle was ever activated in this database.
var ErrNoPolicy = errors.New("no policy is active: run `muster policy activate DIR`")

// policyPoll is how often a replica looks for an activation that it was not
// notified of.
const policyPoll = 5 * time.Second

// Policy follows the active bundle: the row in the database says which, this
// process compiles it against its own schema/. A bundle that does not load
// never replaces one that works.
type Policy struct {
	db      *store.DB
	own     map[string][]byte // cue.mod/ and schema/ of this binary
	log     hclog.Logger
	clock   func() time.Time
	loading sync.Mutex // one load at a time
	current atomic.Pointer[engine.Bundle]

	mu     sync.Mutex
	status PolicyStatus
}

// PolicyStatus says what this replica decides by, and what went wrong last.
type PolicyStatus struct {
	Active      string    // the version that the database says, "" before the first activation
	ActivatedAt time.Time // zero before the first activation
	ActivatedBy string
	Loaded      string    // the version that this replica judges by
	LoadedAt    time.Time // zero while none is loaded
	Error       string    // why the newest candidate does not load; "" when it does
	ErrorAt     time.Time
	Findings    []engine.Finding // of that candidate
}

// OpenPolicy prepares to follow the active bundle. The tree is the binary's
// own, of which cue.mod/ and schema/ are used.
func OpenPolicy(db *store.DB, own fs.FS, clock func() time.Time, log hclog.Logger) (*Policy, error) {
	files, err := engine.Files(own)
	if err != nil {
		return nil, fmt.Errorf("read the binary's own schema: %w", err)
	}
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "policies/") })
	return &Policy{db: db, own: files, log: log, clock: clock}, nil
}

// Current gives the bundle that this replica judges by, nil while none is loaded.
func (p *Policy) Current() *engine.Bundle { return p.current.Load() }

// Status tells what is active, what is loaded and what failed last.
func (p *Policy) Status() PolicyStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// Refresh loads the active bundle unless it is loaded already.
func (p *Policy) Refresh(ctx context.Context) (*engine.Bundle, error) {
	p.loading.Lock()
	defer p.loading.Unlock()
	return p.refresh(ctx)
}

// refresh is Refresh for a caller that holds p.loading.
func (p *Policy) refresh(ctx context.Context) (*engine.Bundle, error) {
	active, err := store.Active(ctx, p.db)
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNoPolicy
	}
	if err != nil {
		return nil, err
	}
	if b := p.Current(); b != nil && b.Version() == active.Version {
		p.note(func(s *PolicyStatus) {
			s.Active, s.ActivatedAt, s.ActivatedBy = active.Version, active.ActivatedAt, active.ActivatedBy
		})
		return b, nil
	}
	b, findings, err := p.load(ctx, active.Version)
	p.note(func(s *PolicyStatus) {
		s.Active, s.ActivatedAt, s.ActivatedBy = active.Version, active.ActivatedAt, active.ActivatedBy
		if err != nil {
			s.Error, s.ErrorAt, s.Findings = err.Error(), p.clock(), findings
			return
		}
		s.Loaded, s.LoadedAt, s.Error, s.ErrorAt, s.Findings = b.Version(), p.clock(), "", time.Time{}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("load the active policy %s: %w", short(active.Version), err)
	}
	p.current.Store(b)
	p.log.Info("policy loaded", "version", short(b.Version()))
	return b, nil
}

// Bundle loads any stored bundle, to replay what was decided by it.
func (p *Policy) Bundle(ctx context.Context, version string) (*engine.Bundle, error) {
	if b := p.Current(); b != nil && b.Version() == version {
		return b, nil
	}
	b, _, err := p.load(ctx, version)
	return b, err
}

func (p *Policy) load(ctx context.Context, version string) (*engine.Bundle, []engine.Finding, error) {
	stored, err := store.Bundle(ctx, p.db, version)
	if err != nil {
		return nil, nil, err
	}
	bits, err := store.ConditionBits(ctx, p.db)
	if err != nil {
		return nil, nil, err
	}
	b, findings, err := engine.Load(p.tree(stored.Files), engine.Options{Bits: bits})
	if err != nil {
		return nil, findings, err
	}
	if b.Version() != version {
		return nil, nil, fmt.Errorf("the stored files have version %s: the row was changed", short(b.Version()))
	}
	return b, findings, nil
}

// tree unifies stored policies with the binary's own schema.
func (p *Policy) tree(policies map[string]string) fs.FS {
	files := maps.Clone(p.own)
	for name, text := range policies {
		files[name] = []byte(text)
	}
	return engine.Tree(files)
}

// Activate vets a tree, stores its policies/ and makes them the active bundle.
// A tree with errors changes nothing but the status. The findings are what
// vetting said, warnings too.
func (p *Policy) Activate(ctx context.Context, tree fs.FS, actor string) (*engine.Bundle, []engine.Finding, error) {
	files, err := engine.Files(tree)
	if err != nil {
		return nil, nil, err
	}
	if err := p.sameSchema(files); err != nil {
		p.Rejected(err, nil)
		return nil, nil, err
	}
	bits, err := store.ConditionBits(ctx, p.db)
	if err != nil {
		return nil, nil, err
	}
	b, findings, err := engine.Load(engine.Tree(files), engine.Options{Bits: bits, Tests: true})
	if err != nil {
		p.Rejected(err, findings)
		return nil, findings, err
	}
	policies := map[string]string{}
	for name, data := range files {
		if strings.HasPrefix(name, "policies/") {
			policies[name] = string(data)
		}
	}
	// Whoever follows waits: it would load what is at hand here.
	p.loading.Lock()
	defer p.loading.Unlock()
	same := false // the bits it was compiled with are those it was given
	err = p.db.Tx(ctx, func(tx pgx.Tx) error {
		given, err := store.GiveBits(ctx, tx, b.TypeNames(), b.Version())
		if err != nil {
			return err
		}
		same = !slices.ContainsFunc(b.Catalogue(), func(t engine.ConditionType) bool { return given[t.Name] != t.Bit })
		bundle := store.PolicyBundle{Version: b.Version(), Semantics: engine.Semantics, Files: policies, StoredBy: actor}
		if err := store.StoreBundle(ctx, tx, bundle); err != nil {
			return err
		}
		if err := store.Audit(ctx, tx, store.AuditEntry{Principal: actor, Action: "policy.activate", Target: b.Version()}); err != nil {
			return err
		}
		return store.Activate(ctx, tx, b.Version(), actor)
	})
	if err != nil {
		return nil, findings, fmt.Errorf("activate policy: %w", err)
	}
	if same {
		p.current.Store(b)
		p.note(func(s *PolicyStatus) { s.Active, s.Loaded, s.LoadedAt = b.Version(), b.Version(), p.clock() })
	}
	b, err = p.refresh(ctx)
	if err == nil { // a candidate that failed before is no longer the newest
		p.note(func(s *PolicyStatus) { s.Error, s.ErrorAt, s.Findings = "", time.Time{}, nil })
	}
	return b, findings, err
}

// sameSchema refuses a tree whose schema/ is not the binary's: its policies
// would be checked against rules that nobody decides by.
func (p *Policy) sameSchema(files map[string][]byte) error {
	for name := range files {
		if strings.HasPrefix(name, "schema/") && string(files[name]) != string(p.own[name]) {
			return fmt.Errorf("%s: schema/ is not this build's: run `muster policy init --schema DIR` and check the policies again", name)
		}
	}
	for name := range p.own {
		if _, there := files[name]; strings.HasPrefix(name, "schema/") && !there {
			return fmt.Errorf("%s is missing: schema/ is not this build's: run `muster policy init --schema DIR`", name)
		}
	}
	return nil
}

// Rejected notes a candidate that does not load; what is loaded goes on.
func (p *Policy) Rejected(err error, findings []engine.Finding) {
	p.note(func(s *PolicyStatus) { s.Error, s.ErrorAt, s.Findings = err.Error(), p.clock(), findings })
	p.log.Error("policy rejected, the loaded one goes on", "loaded", short(p.Status().Loaded), "error", err)
}

// Follow loads each bundle that becomes active, until ctx ends. It is told by
// the database, and looks every few seconds besides.
func (p *Policy) Follow(ctx context.Context) error {
	for ctx.Err() == nil {
		if _, err := p.Refresh(ctx); err != nil && !errors.Is(err, ErrNoPolicy) && ctx.Err() == nil {
			p.log.Error("policy not refreshed", "error", err)
		}
		p.wait(ctx)
	}
	return nil
}

// wait returns at the next notification, or after policyPoll.
func (p *Policy) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, policyPoll)
	defer cancel()
	conn, err := p.db.Acquire(ctx)
	if err != nil {
		<-ctx.Done()
		return
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "listen "+store.PolicyChannel); err != nil {
		<-ctx.Done()
		return
	}
	// A time-out here closes the connection; the pool replaces it.
	_, _ = conn.Conn().WaitForNotification(ctx)
}

func (p *Policy) note(change func(*PolicyStatus)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.status)
}

// short is a version as people read it.
func short(version string) string {
	version = strings.TrimPrefix(version, "sha256:")
	return version[:min(12, len(version))]
}
