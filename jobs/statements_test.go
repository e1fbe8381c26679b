package jobs_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/musterhq/muster/engine"
	"github.com/musterhq/muster/jobs"
)

// statements counts what is asked of the database.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(q.SQL, "begin") && !strings.HasPrefix(q.SQL, "commit") {
		s.n.Add(1)
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// count makes the world's database count.
func (w *world) count() *statements {
	w.t.Helper()
	s := &statements{}
	config := w.db.Config()
	config.ConnConfig.Tracer = s
	pool, err := pgxpool.NewWithConfig(w.ctx(), config)
	must(w.t, err)
	w.t.Cleanup(w.db.Pool.Close)
	w.db.Pool = pool
	return s
}

// A judgement asks the database no more often for many racks than for one.
func TestStatementsDoNotGrowWithRacksAndCaps(t *testing.T) {
	const racks = 30
	w := newWorld(t)
	asked := w.count()
	ids := w.devices(racks * 2)
	w.exec("insert into racks (site_id, source_ref, name) select $1, n, 'r' || n from generate_series(1, $2) n", w.lab.ID, racks)
	w.exec("update devices set rack_id = (select min(id) from racks) + (id - $1) / 2", ids[0])
	caps := []engine.BlastCap{
		{Scope: engine.Scope{Name: "rack", Per: []string{"rack"}}, Devices: 1},
		{Scope: engine.Scope{Name: "share", Per: []string{"rack"}}, Share: 0.5},
		{Scope: engine.Scope{Name: "site", Per: []string{"site"}}, Share: 0.5},
		{Scope: engine.Scope{Name: "fleet", Per: []string{"fleet"}}, Devices: 100},
	}
	w.svc.Limit(caps, nil)
	w.submit(taking, ids[0]) // every second device of a rack may go

	statementsOf := func(what func()) int64 {
		before := asked.n.Load()
		what()
		return asked.n.Load() - before
	}
	for name, c := range map[string]struct {
		judge func(ids ...int64)
		most  int64
	}{
		"check": {func(ids ...int64) {
			r, err := w.svc.Check(w.ctx(), request(taking, ids...))
			must(t, err)
			if len(r.Refusals) != 2 || r.Refusals[0].Path != "limits.blast_caps.rack@lab.r1" || r.Refusals[1].Path != "limits.blast_caps.share@lab.r1" {
				t.Errorf("%+v", r.Refusals)
			}
		}, 10},
		"submission": {func(ids ...int64) { w.refused(w.submission(taking, ids...), jobs.CodeBlastCapExceeded) }, 21},
	} {
		few, many := []int64{ids[1], ids[2]}, []int64{ids[1]}
		for i := 2; i < len(ids)-2; i += 2 {
			many = append(many, ids[i])
		}
		one := statementsOf(func() { c.judge(few...) })
		if all := statementsOf(func() { c.judge(many...) }); all > one || all > c.most {
			t.Errorf("a %s asks %d times for two racks, %d times for %d", name, one, all, racks-1)
		}
	}
}
