package slurm

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/sources"
)

// Capabilities are what the cluster's API can do besides being read.
type Capabilities struct {
	Version    string // negotiated, such as "v0.0.42"
	NodeWrites bool   // drain and resume
	NodeCreate bool   // POST /new/node
}

// The first versions that can write nodes and create them, and the first that
// only releases serve whose RESUME clears the reason, whatever others do: 24.11
// (v0.0.42) keeps it, 26.05 (v0.0.45) does not.
const (
	firstWrites   = 39
	firstCreate   = 44
	firstClearing = 45
)

// Capabilities negotiates the version, if none is, and tells what it can do.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	version, fault := c.negotiate(ctx, "negotiate SLURM's API version")
	if fault != nil {
		return Capabilities{}, fault
	}
	return capabilitiesOf(version), nil
}

func capabilitiesOf(version string) Capabilities {
	n := versionNumber(version)
	return Capabilities{Version: version, NodeWrites: n >= firstWrites, NodeCreate: n >= firstCreate}
}

// lost names what a listing under the version cannot serve.
func (c Capabilities) lost() []string {
	if c.NodeWrites {
		return nil
	}
	return []string{"node_writes"}
}

// versionNumber gives 42 for "v0.0.42", 0 for what is no version.
func versionNumber(v string) int {
	digits, ok := strings.CutPrefix(v, "v0.0.")
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n <= 0 {
		return 0
	}
	return n
}

// negotiate gives the version in use, or finds the newest configured one that
// the server has: it answers an unknown one with 404 whoever asks, while any
// answer of slurmrestd's own to a ping shows that it knows the version, be the
// controller up or not.
func (c *Client) negotiate(ctx context.Context, op string) (string, *sources.Error) {
	if v := c.negotiated(); v != "" {
		return v, nil
	}
	select {
	case c.deciding <- struct{}{}:
		defer func() { <-c.deciding }()
	case <-ctx.Done():
		return "", sources.Failure(op, ctx.Err())
	}
	if v := c.negotiated(); v != "" {
		return v, nil
	}
	renewed := false
	for i := 0; i < len(c.versions); i++ {
		version := c.versions[i]
		a, used, fault := c.send(ctx, op, "GET", version, "/ping", nil)
		switch {
		case a == nil:
			return "", fault
		case a.doc != nil && a.doc.fromSlurm():
			c.mu.Lock()
			c.version = version
			c.mu.Unlock()
			c.log.Info("negotiated SLURM's API version", "version", version, "release", a.doc.release())
			return version, nil
		case a.versionGone():
			continue
		case a.authDoubtful() && !renewed && c.token.Renewed(used):
			renewed = true
			i-- // the same version again, once
		case fault != nil:
			return "", fault
		default:
			return "", &sources.Error{Kind: sources.KindTransient, Op: op, Message: c.base + " answers a ping with JSON that is not slurmrestd's"}
		}
	}
	return "", &sources.Error{
		Kind: sources.KindRefused, Op: op,
		Message: fmt.Sprintf("%s serves none of the API versions %s: check that the URL is slurmrestd's, or add its version to the source's versions",
			c.base, strings.Join(c.versions, ", ")),
	}
}

func (c *Client) negotiated() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// forget drops a version that the server no longer serves.
func (c *Client) forget(version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == version {
		c.version = ""
		c.log.Warn("SLURM no longer serves the API version in use: negotiating again", "version", version)
	}
}
