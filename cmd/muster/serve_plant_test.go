package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/musterhq/muster/embedded"
	"github.com/musterhq/muster/migrations"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/control"
	"github.com/musterhq/muster/simulator/faultproxy"
	"github.com/musterhq/muster/simulator/world"
)

// plant is a simulated site and what runs beside muster, for jobs that are real
// but for the machines.
type plant struct {
	database string
	rows     *pgx.Conn
	control  *control.Client
	site     string // file
	program  string // muster-temporal
	data     string // of Temporal
	port     int    // of Temporal
	temporal *exec.Cmd
	url      string // of muster
	token    string
}

func migrated(url string) error {
	_, err := migrations.Up(context.Background(), url)
	return err
}

// connect opens the test's own connection to the database.
func (p *plant) connect(t *testing.T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.database)
	if err != nil {
		t.Fatal(err)
	}
	p.rows = conn
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
}

type object = map[string]any

// described changes how a simulated site is described to muster.
type described func(spec object, e *simulator.Endpoints, site *simulator.Site)

func newPlant(t *testing.T, database string, adjust ...described) *plant {
	t.Helper()
	return newPlantOf(t, database, 1, adjust...)
}

// newPlantOf makes a plant of so many racks a site.
func newPlantOf(t *testing.T, database string, racks int, adjust ...described) *plant {
	t.Helper()
	p := &plant{program: os.Getenv("MUSTER_TEMPORAL_BIN"), database: database}
	if p.program == "" {
		p.program = "../../bin/muster-temporal"
	}
	if _, err := os.Stat(p.program); err != nil {
		t.Skip("needs bin/muster-temporal (make temporal) or MUSTER_TEMPORAL_BIN: jobs run on a real Temporal only")
	}
	p.connect(t)
	dir := t.TempDir()
	p.data = filepath.Join(dir, "temporal")
	if err := os.Mkdir(p.data, 0o700); err != nil {
		t.Fatal(err)
	}
	p.fleet(t, filepath.Join(dir, "simulator"), racks, adjust)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.port = free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	return p
}

// fleet runs a simulated fleet of two sites and describes the first.
func (p *plant) fleet(t *testing.T, dir string, racks int, adjust []described) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan simulator.Endpoints, 1), make(chan error, 1)
	go func() {
		done <- simulator.Run(ctx, simulator.Options{
			Dir: dir, Shape: world.Shape{Sites: 2, Racks: racks}, Still: true, Ready: func(e simulator.Endpoints) { ready <- e },
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	var e simulator.Endpoints
	select {
	case e = <-ready:
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	c, _, err := simulator.ReadControl(dir)
	if err != nil {
		t.Fatal(err)
	}
	p.control = control.Dial(c.URL, c.Token)
	site := &e.Sites[0]
	spec := object{
		"name": site.Name, "engagement_mode": site.Mode, "trait_based": site.TraitBased, "placement_enabled": false, "customer_ready_trait": site.Trait,
		"lessees":   object{"enrol": site.Lessees.Enrol, "slurm": site.Lessees.Slurm, "maintenance": site.Lessees.Maintenance},
		"inventory": "netbox", "netbox": object{"instance": "simulated", "sites": []string{site.Name}},
		"sources": object{
			"netbox": object{"url": site.NetBox, "token": "file:" + e.Secrets.NetBox, "interval": "5s"},
			"ironic": object{
				"url": site.Ironic, "auth": site.IronicAuth, "username": e.User, "password": "file:" + e.Secrets.Password, "interval": "2s",
				"keystone": object{"url": site.Keystone, "project": site.Project, "region": site.Name},
			},
			"bmc": object{
				"port": e.BMCPort, "networks": []string{site.Networks}, "interval": "60s", "tls": object{"ca": e.CA},
				"credentials": []object{{"match": "*", "ref": "file:" + e.Secrets.BMC}},
			},
		},
	}
	for _, change := range adjust {
		change(spec, &e, site)
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	p.site = filepath.Join(filepath.Dir(dir), "site.json")
	if err := os.WriteFile(p.site, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (p *plant) startTemporal(t *testing.T) {
	t.Helper()
	cmd := exec.Command(p.program, "--dir", p.data, "--port", fmt.Sprint(p.port), "--namespace", embedded.TemporalNamespace, "--schema", embedded.TemporalSchema)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.temporal = cmd
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func kill(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // tells that it was killed
}

// serve starts a replica; the first one must have the API.
func (p *plant) serve(t *testing.T, roles string) *replica {
	t.Helper()
	r := serve(t, p.database, "--site", p.site, "--roles", roles, "--listen", "127.0.0.1:0", "--temporal-address", fmt.Sprintf("127.0.0.1:%d", p.port))
	said := r.says(t, `"@message":"serving".*`)
	if p.url == "" {
		p.url = regexp.MustCompile(`http://[0-9.:]+`).FindString(said)
		p.token = strings.TrimSpace(p.run(t, "token", "create", "test", "--scope", "job:read", "--scope", "job:write", "--scope", "job:force"))
		p.until(t, "the BMCs to be known", "select count(*) = 4 from devices where name = any('{sim1-r01-c01,sim1-r01-c02,sim1-r01-c03,sim1-r01-c04}') and bmc_address <> ''")
		p.until(t, "the failed clean to be seen", "select operational_status = 'failed' from devices where name = 'sim1-r01-c02'")
	}
	return r
}

// kill ends a replica as a crash does.
func (r *replica) kill(t *testing.T) {
	t.Helper()
	if err := r.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-r.exited
}

func (p *plant) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(musterBinary(t), args...)
	cmd.Env = append(os.Environ(), "MUSTER_DATABASE_URL="+p.database, "MUSTER_URL="+p.url, "MUSTER_TOKEN="+p.token)
	return cmd
}

func (p *plant) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := p.command(t, args...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("muster %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

func (p *plant) submit(t *testing.T, workflow, device string, more ...string) (job int64) {
	t.Helper()
	said := p.run(t, append([]string{"job", "submit", workflow, device}, more...)...)
	if err := p.rows.QueryRow(t.Context(), "select max(id) from jobs").Scan(&job); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("job %d of %s on 1 device is STATUS: `muster job watch %d` follows it\n", job, workflow, job)
	if said != strings.Replace(want, "STATUS", "pending", 1) && said != strings.Replace(want, "STATUS", "running", 1) { // by now
		t.Errorf("it said %q, want %q", said, want)
	}
	return job
}

// until waits for a query to say true.
func (p *plant) until(t *testing.T, what, query string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(50 * time.Millisecond) {
		var is bool
		if err := p.rows.QueryRow(t.Context(), query, args...).Scan(&is); err != nil {
			t.Fatal(err)
		}
		if is {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

// ends waits for a job of one device to end as it should.
func (p *plant) ends(t *testing.T, job int64, status, code string) {
	t.Helper()
	p.until(t, "the job's end", "select status not in ('pending', 'running', 'cancellation_requested') from jobs where id = $1", job)
	var is, device, got, message string
	err := p.rows.QueryRow(t.Context(), `select j.status, d.status, d.failure_code, d.failure_message from jobs j join job_devices d on d.job_id = j.id where j.id = $1`, job).
		Scan(&is, &device, &got, &message)
	if err != nil || is != status || device != status || got != code {
		t.Fatalf("job %d is %s, its device %s %s (%s), %v; want %s %s", job, is, device, got, message, err, status, code)
	}
}

func (p *plant) fault(t *testing.T, kind, device string) {
	t.Helper()
	f := control.Fault{Device: device}
	f.Kind = faultproxy.Kind(kind)
	if _, err := p.control.Fault(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// effects counts what was done to a machine from outside.
func (p *plant) effects(t *testing.T, device string) map[string]int {
	t.Helper()
	return p.effectsOf(t, "ironic", device)
}

// effectsOf counts what was done to a machine through one face.
func (p *plant) effectsOf(t *testing.T, face, device string) map[string]int {
	t.Helper()
	all, err := p.control.Effects(t.Context(), 0, face)
	if err != nil {
		t.Fatal(err)
	}
	did := map[string]int{}
	for _, e := range all.Effects {
		if e.Subject == device {
			did[e.Op]++
		}
	}
	return did
}

// keepHistory writes, with -update, what Temporal has of a job's only workflow to
// where package workflows replays it from.
func (p *plant) keepHistory(t *testing.T, job int64, name string) {
	t.Helper()
	if !*update {
		return
	}
	var id string
	if err := p.rows.QueryRow(t.Context(), "select workflow_id from executions where job_id = $1", job).Scan(&id); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Options{HostPort: fmt.Sprintf("127.0.0.1:%d", p.port), Namespace: embedded.TemporalNamespace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.GetWorkflow(t.Context(), id, "").Get(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var h history.History
	for events := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); events.HasNext(); {
		e, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		h.Events = append(h.Events, e)
	}
	text, err := protojson.MarshalOptions{Multiline: true, Indent: " "}.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`"(identity|workerInstanceKey|stickyTaskQueue)": *"[^"]*"`).ReplaceAll(text, []byte(`"$1": "a-worker"`))
	text = regexp.MustCompile(`"name": *"[^":]+:[0-9a-f]{8}-[0-9a-f-]+"`).ReplaceAll(text, []byte(`"name": "sticky"`))
	if err := os.WriteFile(filepath.Join("../../workflows/testdata/histories", name+".json"), append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}
