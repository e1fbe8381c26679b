package redfish

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/sources"
)

var (
	benchBMCs   = flag.Int("bmcs", 500, "how many BMCs BenchmarkRound has")
	benchAnswer = flag.Duration("answer", 20*time.Millisecond, "how long its BMCs take for an answer")
)

// fleetVariable makes the test binary the fleet that the benchmark asks, so that
// what the fleet needs is not counted as the client's.
const fleetVariable = "MUSTER_TEST_FLEET"

func TestMain(m *testing.M) {
	if os.Getenv(fleetVariable) != "" {
		if err := serveFleet(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// The i-th BMC of the fleet. Of a hundred three are dead and two slow.
func fleetAddress(i int) string {
	return netip.AddrFrom4([4]byte{127, 100, byte(i >> 8), byte(i)}).String()
}

type illness int

const (
	sound illness = iota
	dead          // takes the connection and says nothing
	slow          // 10 s for an answer
)

func illnessOf(address string) illness {
	a := netip.MustParseAddr(address).As4()
	switch (int(a[2])<<8 + int(a[3])) % 100 {
	case 17, 51, 83:
		return dead
	case 29, 66:
		return slow
	}
	return sound
}

// serveFleet answers for all of 127/8 until its standard input ends. Sick BMCs
// are sick only on the second port.
func serveFleet() error {
	answer, err := time.ParseDuration(os.Getenv(fleetVariable))
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := json.Unmarshal([]byte(tray), &tree); err != nil {
		return err
	}
	root := tree["/redfish/v1"].(map[string]any)
	root["ProtocolFeaturesSupported"] = map[string]any{"ExpandQuery": map[string]any{"NoLinks": true}}
	m := &machine{tree: tree}
	bodies := map[string][]byte{}
	for path, resource := range tree {
		bodies[path], _ = json.Marshal(resource)
		if object, ok := resource.(map[string]any); ok && object["Members"] != nil {
			bodies[path+"?"], _ = json.Marshal(m.expanded(maps.Clone(object)))
		}
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var inner error
		return errors.Join(c.Control(func(fd uintptr) { inner = syscall.BindToDevice(int(fd), "lo") }), inner)
	}}
	var ports []string
	for _, sick := range []bool{false, true} {
		listener, err := config.Listen(context.Background(), "tcp4", "0.0.0.0:0")
		if err != nil {
			return err
		}
		ports = append(ports, fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
		server := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate()}}, ErrorLog: hclog.NewNullLogger().StandardLogger(nil),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				local := req.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
				wait := answer
				if sick && illnessOf(local.IP.String()) == slow {
					wait = 10 * time.Second
				}
				select {
				case <-time.After(wait):
				case <-req.Context().Done():
					return
				}
				path := clean(req.URL.Path)
				if req.URL.RawQuery != "" {
					path += "?"
				}
				body, there := bodies[path]
				w.Header().Set("Content-Type", "application/json")
				if !there {
					w.WriteHeader(http.StatusNotFound)
				}
				_, _ = w.Write(body)
			})}
		go func() { _ = server.ServeTLS(deadListener{listener, sick}, "", "") }()
	}
	fmt.Println(strings.Join(ports, " "))
	var end [1]byte
	_, _ = os.Stdin.Read(end[:])
	return nil
}

// deadListener keeps the connections to dead BMCs from the server.
type deadListener struct {
	net.Listener
	sick bool
}

func (l deadListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil || !l.sick || illnessOf(conn.LocalAddr().(*net.TCPAddr).IP.String()) != dead {
			return conn, err
		}
		time.AfterFunc(time.Minute, func() { _ = conn.Close() })
	}
}

// BenchmarkRound measures a round over a fleet in a process of its own: all of
// it sound, and then with three of a hundred dead and two slow, when that is new
// and when it is known from the round before.
func BenchmarkRound(b *testing.B) {
	fleet := exec.Command(os.Args[0])
	fleet.Env = append(os.Environ(), fleetVariable+"="+benchAnswer.String())
	fleet.Stderr = os.Stderr
	stop, err := fleet.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := fleet.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := fleet.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stop.Close(); _ = fleet.Wait() }()
	var soundPort, sickPort int
	if _, err := fmt.Fscan(out, &soundPort, &sickPort); err != nil {
		b.Fatal(err)
	}
	var targets []Target
	for i := range *benchBMCs {
		targets = append(targets, Target{Address: fleetAddress(i), Name: fmt.Sprint("c", i), Class: facts.DeviceClassGpuCompute})
	}
	client := func(port int) *Client {
		random := uint64(1)
		c, err := New(Config{
			Targets: fixed(targets...), Secret: func(string) (string, error) { return "admin:secret", nil }, Credentials: []Credential{{"*", "env:X"}},
			Port: port, Networks: []string{"127.0.0.0/8"}, TLS: TLS{Insecure: true},
			Rand: func() float64 {
				random = random*6364136223846793005 + 1442695040888963407
				return float64(random>>11) / (1 << 53)
			},
		}, time.Now, nil)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	healthy, sick := client(soundPort), client(sickPort)
	b.Run("sound", func(b *testing.B) { measureRounds(b, healthy) })
	b.Run("sound, firmware known", func(b *testing.B) { measureRounds(b, healthy) })
	b.Run("sick and not known", func(b *testing.B) { measureRounds(b, sick) })
	b.Run("sick and known", func(b *testing.B) { measureRounds(b, sick) })
}

func measureRounds(b *testing.B, c *Client) {
	peak, stop := watchHeap()
	defer stop()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var last []time.Duration
	answered, silent := 0, 0
	for b.Loop() {
		last, answered, silent = nil, 0, 0
		began := time.Now()
		_, err := c.List(b.Context(), func(page []sources.Record) error {
			for _, r := range page {
				if illnessOf(r.Ref) == sound {
					last = append(last, time.Since(began))
				}
			}
			a, s, _ := outcome(page)
			answered, silent = answered+a, silent+s
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	slices.Sort(last)
	b.ReportMetric(last[len(last)-1].Seconds(), "s/last-sound")
	b.ReportMetric(last[len(last)*99/100].Seconds(), "s/99%-sound")
	b.ReportMetric(float64(answered), "answered")
	b.ReportMetric(float64(silent), "silent")
	b.ReportMetric(float64(peak.Load())/(1<<20), "MiB-heap-peak")
	cpu := time.Duration(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / time.Duration(b.N)
	b.ReportMetric(cpu.Seconds(), "cpu-s/op")
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(float64(m.HeapAlloc)/(1<<20), "MiB-heap-after")
}

// watchHeap keeps the largest heap that it sees until stop is called.
func watchHeap() (*atomic.Uint64, func()) {
	var peak atomic.Uint64
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return &peak, func() { close(done); running.Wait() }
}
