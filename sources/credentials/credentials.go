package credentials

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/sources/service"
)

// Config says where the service is. Its Name and Mute are set here.
type Config = service.Config

// Client is the credentials service of one site. It may be used by many
// goroutines.
type Client struct{ service *service.Client }

// New gives a client; it calls nobody.
func New(c Config, clock sources.Clock) (*Client, error) {
	c.Name, c.Mute = "the credentials service", true
	s, err := service.New(c, clock)
	if err != nil {
		return nil, err
	}
	return &Client{s}, nil
}

// Close releases the connections.
func (c *Client) Close() { c.service.Close() }

// Credential is whom a BMC lets in. Its JSON and its text have no password.
type Credential struct {
	User     string `json:"user"`
	Password string `json:"-"`
}

// Format writes the user alone, whatever the verb.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = fmt.Fprint(f, c.User, ":[secret]") }

// stored is a credential as the service gives it.
type stored struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

// Get reads a device's credential; missing (sources.ErrGone) where it has none.
func (c *Client) Get(ctx context.Context, device string) (Credential, error) {
	return c.call(ctx, "read the credential of "+device, http.MethodGet, device)
}

// Ensure gives a device's credential, made by the service if there is none, and
// sees that it is kept. A lost answer is looked at.
func (c *Client) Ensure(ctx context.Context, device string) (Credential, error) {
	op := "make the credential of " + device
	made, written := c.call(ctx, op, http.MethodPut, device)
	if written != nil && !service.Unsettled(written) {
		return Credential{}, written
	}
	kept, err := c.Get(ctx, device)
	if err := service.Verified(op, written, err, err == nil && (written != nil || kept == made), "it keeps another one than it gave"); err != nil {
		return Credential{}, err
	}
	return kept, nil
}

// Delete removes a device's credential, and sees it gone. Gone already is done.
func (c *Client) Delete(ctx context.Context, device string) error {
	op := "remove the credential of " + device
	written := c.service.Do(ctx, service.Request{Op: op, Method: http.MethodDelete, Path: []string{"credentials", device}}, nil)
	if errors.Is(written, sources.ErrGone) {
		return nil
	}
	if written != nil && !service.Unsettled(written) {
		return written
	}
	_, err := c.Get(ctx, device)
	gone := errors.Is(err, sources.ErrGone)
	if gone {
		err = nil
	}
	return service.Verified(op, written, err, gone, "the credential is there")
}

// call makes a request whose answer is a credential. An answer without one is
// none.
func (c *Client) call(ctx context.Context, op, method, device string) (Credential, error) {
	var s stored
	if err := c.service.Do(ctx, service.Request{Op: op, Method: method, Path: []string{"credentials", device}}, &s); err != nil {
		return Credential{}, err
	}
	if s.User == "" || s.Password == "" {
		return Credential{}, &sources.Error{Kind: sources.KindTransient, Op: op, Message: "the answer holds no user or no password: check the url, and what stands before the service"}
	}
	return Credential(s), nil
}
