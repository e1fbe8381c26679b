package redfish

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/simulator/world"
)

var summaryForm = regexp.MustCompile(`PASS: (\d+), WARN: (\d+), FAIL: (\d+)`)

// DMTF's validator of the protocol finds nothing wrong with the BMC of any
// class.
func TestTheProtocolValidatorFindsNothing(t *testing.T) {
	t.Parallel()
	program := os.Getenv("MUSTER_PEER_REDFISH_VALIDATOR")
	if program == "" {
		t.Skip("MUSTER_PEER_REDFISH_VALIDATOR is not set: it names DMTF's rf_protocol_validator, which testdata/peers/redfish-validator-up.sh installs")
	}
	w, err := world.Open(world.Options{Shape: world.Shape{Sites: 1, Racks: 1}})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := OpenAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: New(w, Options{}), TLSConfig: authority.TLS(), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close(); <-done; _ = w.Close() })
	_, port, _ := net.SplitHostPort(listener.Addr().String())

	for name, address := range map[string]string{"compute": "127.1.1.9", "nvswitch": "127.1.1.27", "powershelf": "127.1.1.1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			dir := t.TempDir()
			cmd := exec.CommandContext(ctx, program, "--user", "admin", "--password", "simulator-0", "--rhost", "https://"+net.JoinHostPort(address, port),
				"--ca-bundle", authority.Path(), "--report-type", "tsv", "--report-dir", dir, "--avoid-http-redirect")
			for _, variable := range os.Environ() { // these would go before --ca-bundle
				if !strings.HasPrefix(variable, "REQUESTS_CA_BUNDLE=") && !strings.HasPrefix(variable, "CURL_CA_BUNDLE=") {
					cmd.Env = append(cmd.Env, variable)
				}
			}
			said, err := cmd.CombinedOutput()
			found := summaryForm.FindStringSubmatch(string(said))
			if found == nil {
				t.Fatalf("%v\n%s", err, said)
			}
			t.Logf("%s", found[0])
			if wrong := complaints(t, dir); wrong != "" || len(found[1]) < 3 || found[3] != "0" {
				t.Errorf("%s%s", said, wrong)
			}
		})
	}
}

// unlucky is what the validator warns of one really random token in fifty: it
// tests the bits of a single one at a level of 1%, twice.
const unlucky = "\tWARN\tThe security token from the X-Auth-Token header may not be sufficiently random\t"

// complaints gives the lines of the reports that are not passed.
func complaints(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	files, err := filepath.Glob(filepath.Join(dir, "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the validator left no report: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, unlucky) {
				t.Log(line)
			} else if strings.Contains(line, "\tFAIL\t") || strings.Contains(line, "\tWARN\t") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}
