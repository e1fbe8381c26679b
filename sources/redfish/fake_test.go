package redfish

import (
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	cryptorand "crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/musterhq/muster/facts"
)

// machine is a BMC that serves a tree strictly: what the tree does not name is
// 404, actions only go to declared targets with declared values, PATCH and
// actions obey ETags, logins are checked, sessions have few slots.
type machine struct {
	mu       sync.Mutex
	tree     map[string]any
	log      []string          // method path
	bodies   []string          // of writes
	auths    map[string]int    // basic, token, none
	sessions map[string]string // path → token
	slots    int
	noExpand bool
	password string
	tasks    map[string][]any // path → answers, the last one stays
	versions map[string]int   // path → changes, for ETags
	onReset  func(m *machine, kind string)
	server   *httptest.Server
	answers  []answerRule
}

// answerRule is a scripted answer.
type answerRule struct {
	method, path string // path is a pattern
	status       int
	body         string
	header       map[string]string
	delay        time.Duration
	drop         string // before or after
	times        int    // 0 always
	skip         int
	before       func(m *machine) // what comes about meanwhile
}

func newMachine(t testing.TB, tree map[string]any) *machine {
	t.Helper()
	m := &machine{tree: tree, auths: map[string]int{}, sessions: map[string]string{}, slots: 4, password: "secret", tasks: map[string][]any{}, versions: map[string]int{}}
	m.server = httptest.NewUnstartedServer(m)
	m.server.Config.ErrorLog = nil
	m.server.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	m.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate()}}
	m.server.StartTLS()
	t.Cleanup(m.server.Close)
	return m
}

// certificate is of a cheap key: many handshakes are made.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), cryptorand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bmc"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(cryptorand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
})

func (m *machine) address() (string, int) {
	ap := netip.MustParseAddrPort(m.server.Listener.Addr().String())
	return ap.Addr().String(), int(ap.Port())
}

func (m *machine) fingerprint() string {
	sum := sha256.Sum256(m.server.Certificate().Raw)
	return hex.EncodeToString(sum[:])
}

func (m *machine) rule(r answerRule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers = append(m.answers, r)
}

func (m *machine) requests(pattern string) (found []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, line := range m.log {
		if regexp.MustCompile(pattern).MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

func (m *machine) set(path, field string, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.change(path, field, value)
}

// change makes a copy of the resource: trees are shared between tests.
func (m *machine) change(path, field string, value any) {
	changed := maps.Clone(m.tree[path].(map[string]any))
	if value == nil {
		delete(changed, field)
	} else {
		changed[field] = value
	}
	m.tree[path] = changed
	m.versions[path]++
}

func (m *machine) etag(path string) string { return fmt.Sprintf(`"v%d"`, m.versions[path]) }

func clean(path string) string {
	if path = strings.TrimRight(path, "/"); path == "/redfish/v1" {
		return "/redfish/v1"
	}
	return path
}

func (m *machine) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	path := clean(req.URL.Path)
	m.mu.Lock()
	line := req.Method + " " + path
	if req.URL.RawQuery != "" {
		line += "?" + req.URL.RawQuery
	}
	m.log = append(m.log, line)
	if req.Method != http.MethodGet {
		m.bodies = append(m.bodies, string(body))
	}
	rule := m.find(req.Method, line)
	m.mu.Unlock()
	if rule != nil {
		if rule.before != nil {
			rule.before(m)
		}
		if rule.delay > 0 {
			select {
			case <-time.After(rule.delay):
			case <-req.Context().Done():
				return
			}
		}
		if rule.drop == "before" {
			hangUp(w)
			return
		}
		if rule.drop == "" && rule.status != 0 {
			for name, value := range rule.header {
				w.Header().Set(name, value)
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(rule.status)
			_, _ = io.WriteString(w, rule.body)
			return
		}
	}
	recorder := httptest.NewRecorder()
	m.mu.Lock()
	m.serve(recorder, req, path, body)
	m.mu.Unlock()
	if rule != nil && rule.drop == "after" {
		hangUp(w)
		return
	}
	maps.Copy(w.Header(), recorder.Header())
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(recorder.Body.Bytes())
}

func hangUp(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = conn.Close()
	}
}

func (m *machine) find(method, line string) *answerRule {
	for i := range m.answers {
		r := &m.answers[i]
		if r.method != "" && r.method != method || !regexp.MustCompile(r.path).MatchString(line) {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.times < 0 {
			continue
		}
		if r.times == 1 {
			r.times = -1
		} else if r.times > 1 {
			r.times--
		}
		found := *r
		return &found
	}
	return nil
}

// client gives a client of one machine.
func (m *machine) client(t testing.TB, class facts.DeviceClass, adjust ...func(*Config)) (*Client, Target) {
	t.Helper()
	host, port := m.address()
	target := Target{Address: host, Name: "c01", Class: class}
	config := Config{
		Targets:     fixed(target),
		Secret:      func(string) (string, error) { return "admin:secret", nil },
		Credentials: []Credential{{Match: "*", Ref: "env:X"}},
		Port:        port, Networks: []string{"127.0.0.0/8"},
		TLS:     TLS{Fingerprints: []string{m.fingerprint()}},
		Timeout: 10 * time.Second, ConnectTimeout: 2 * time.Second, RequestTimeout: 5 * time.Second,
	}
	for _, a := range adjust {
		a(&config)
	}
	c, err := New(config, time.Now, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, target
}

// object reads a tree written as JSON.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var tree map[string]any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return tree
}

// captured reads the captured trees of real machines; nil where there are none.
func captured(t testing.TB) map[string]map[string]any {
	dir := os.Getenv("MUSTER_PEER_REDFISH_TREES")
	if dir == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("MUSTER_PEER_REDFISH_TREES names %s, which holds no *.json.gz (%v)", dir, err)
	}
	trees := map[string]map[string]any{}
	for _, file := range files {
		trees[strings.TrimSuffix(filepath.Base(file), ".json.gz")] = readTree(t, file)
	}
	return trees
}

func readTree(t testing.TB, file string) map[string]any {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw := map[string]any{}
	if err := json.NewDecoder(z).Decode(&raw); err != nil {
		t.Fatal(err)
	}
	tree := make(map[string]any, len(raw))
	for path, body := range raw {
		tree[clean(path)] = body
	}
	return tree
}
