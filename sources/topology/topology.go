package topology

import (
	"context"
	"fmt"
	"net/http"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/service"
)

// Config says where the service is. Its Name and Mute are set here.
type Config = service.Config

// Client is the topology service of one site. It may be used by many goroutines.
type Client struct{ service *service.Client }

// New gives a client; it calls nobody.
func New(c Config, clock sources.Clock) (*Client, error) {
	c.Name = "the topology service"
	s, err := service.New(c, clock)
	if err != nil {
		return nil, err
	}
	return &Client{s}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.service.Close() }

// ActionRemove takes a device out of the fabric.
const ActionRemove = "remove"

// Intent is what is declared.
type Intent struct {
	Name   string `json:"name"` // of the declaration, the caller's to choose
	Device string `json:"device"`
	Site   string `json:"site"`
	Action string `json:"action"`
}

// Get reads a declaration; missing (sources.ErrGone) where there is none.
func (c *Client) Get(ctx context.Context, name string) (Intent, error) {
	var i Intent
	err := c.service.Do(ctx, service.Request{Op: "read the topology intent " + name, Method: http.MethodGet, Path: []string{"sync-intents", name}}, &i)
	return i, err
}

// Declare makes a declaration, and reads it back. Under the same name it is
// accepted again, and the service begins its work anew; a name that declares
// something else is a conflict. Accepted says nothing of the fabric. A request
// whose answer is lost is made once more: that does no harm.
func (c *Client) Declare(ctx context.Context, want Intent) error {
	op := fmt.Sprintf("declare the topology intent %s", want.Name)
	r := service.Request{Op: op, Method: http.MethodPost, Path: []string{"sync-intents"}, Body: want}
	written := c.service.Do(ctx, r, nil)
	if service.Unsettled(written) && ctx.Err() == nil {
		written = c.service.Do(ctx, r, nil)
	}
	if written != nil { // a declaration that is there may be an earlier one: it shows nothing of this request
		return written
	}
	now, err := c.Get(ctx, want.Name)
	return service.Verified(op, nil, err, now == want, fmt.Sprintf("it declares %s of %s", sources.CleanText(now.Action, 64), sources.CleanText(now.Device, 255)))
}
