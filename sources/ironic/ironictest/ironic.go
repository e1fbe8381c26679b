package ironictest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/httpbasic"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/noauth"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"
)

// Patience is how long a node may take to get into a wanted state.
const Patience = 60 * time.Second

// Ironic is a client with every right.
type Ironic struct {
	sc *gophercloud.ServiceClient
}

// New speaks to the Ironic at url, with http_basic if a user is given.
func New(url, user, password string) (*Ironic, error) {
	endpoint := strings.TrimSuffix(url, "/") + "/v1"
	var sc *gophercloud.ServiceClient
	var err error
	if user == "" {
		sc, err = noauth.NewBareMetalNoAuth(noauth.EndpointOpts{IronicEndpoint: endpoint})
	} else {
		sc, err = httpbasic.NewBareMetalHTTPBasic(httpbasic.EndpointOpts{
			IronicEndpoint: endpoint, IronicUser: user, IronicUserPassword: password,
		})
	}
	if err != nil {
		return nil, err
	}
	return Of(sc), nil
}

// Of speaks through a client that is authenticated already.
func Of(sc *gophercloud.ServiceClient) *Ironic {
	own := *sc
	own.Microversion = "1.82"
	return &Ironic{sc: &own}
}

// Node is what a new node shall be; all may be empty.
type Node struct {
	Name          string
	ResourceClass string
	Lessee        string
	Owner         string
	Traits        []string
	Properties    map[string]any
	Extra         map[string]any
	DriverInfo    map[string]any
}

// creation adds the fields that gophercloud's options lack.
type creation struct {
	nodes.CreateOpts
	lessee string
}

func (c creation) ToNodeCreateMap() (map[string]any, error) {
	body, err := c.CreateOpts.ToNodeCreateMap()
	if err == nil && c.lessee != "" {
		body["lessee"] = c.lessee
	}
	return body, err
}

// CreateNode makes a fake-hardware node, which begins in enroll, and gives its uuid.
func (i *Ironic) CreateNode(ctx context.Context, n Node) (string, error) {
	made, err := nodes.Create(ctx, i.sc, creation{
		CreateOpts: nodes.CreateOpts{
			Name: n.Name, Driver: "fake-hardware", ResourceClass: n.ResourceClass, Owner: n.Owner,
			Properties: n.Properties, Extra: n.Extra, DriverInfo: n.DriverInfo,
		},
		lessee: n.Lessee,
	}).Extract()
	if err != nil {
		return "", fmt.Errorf("create node %s: %w", n.Name, err)
	}
	if len(n.Traits) > 0 {
		if err := i.SetTraits(ctx, made.UUID, n.Traits...); err != nil {
			return made.UUID, err
		}
	}
	return made.UUID, nil
}

// DeleteNode removes a node whatever state it is in; one that is gone is no error.
func (i *Ironic) DeleteNode(ctx context.Context, id string) error {
	return i.retry(ctx, "delete node "+id, func() error {
		_ = nodes.SetMaintenance(ctx, i.sc, id, nodes.MaintenanceOpts{Reason: "removed by a test"}).ExtractErr()
		err := nodes.Delete(ctx, i.sc, id).ExtractErr()
		if gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
			return nil
		}
		return err
	})
}

// SetTraits replaces all traits.
func (i *Ironic) SetTraits(ctx context.Context, id string, traits ...string) error {
	return i.retry(ctx, "set traits of "+id, func() error {
		_, err := i.sc.Put(ctx, i.sc.ServiceURL("nodes", id, "traits"), map[string]any{"traits": append([]string{}, traits...)}, nil,
			&gophercloud.RequestOpts{OkCodes: []int{http.StatusNoContent}})
		return err
	})
}

// Set puts a value at a path such as /lessee or /extra/muster; nil removes it.
func (i *Ironic) Set(ctx context.Context, id, path string, value any) error {
	patch := nodes.UpdateOperation{Op: nodes.AddOp, Path: path, Value: value}
	if value == nil {
		patch = nodes.UpdateOperation{Op: nodes.RemoveOp, Path: path}
	}
	return i.retry(ctx, "set "+path+" of "+id, func() error {
		_, err := nodes.Update(ctx, i.sc, id, nodes.UpdateOpts{patch}).Extract()
		return err
	})
}

// Hold sets maintenance as an operator.
func (i *Ironic) Hold(ctx context.Context, id, reason string) error {
	return i.retry(ctx, "hold "+id, func() error {
		return nodes.SetMaintenance(ctx, i.sc, id, nodes.MaintenanceOpts{Reason: reason}).ExtractErr()
	})
}

// Unhold clears maintenance, whoever set it.
func (i *Ironic) Unhold(ctx context.Context, id string) error {
	return i.retry(ctx, "unhold "+id, func() error { return nodes.UnsetMaintenance(ctx, i.sc, id).ExtractErr() })
}

// State gives the provision state.
func (i *Ironic) State(ctx context.Context, id string) (string, error) {
	n, err := nodes.Get(ctx, i.sc, id).Extract()
	if err != nil {
		return "", err
	}
	return n.ProvisionState, nil
}

// Wait polls until the node is in one of the states and nobody holds its lock.
func (i *Ironic) Wait(ctx context.Context, id string, states ...string) error {
	last := "never read"
	err := i.poll(ctx, func() (bool, error) {
		n, err := nodes.Get(ctx, i.sc, id).Extract()
		if err != nil {
			last = err.Error()
			return false, nil
		}
		last = fmt.Sprintf("%q, reservation %q, last error %q", n.ProvisionState, n.Reservation, n.LastError)
		return n.Reservation == "" && slices.Contains(states, n.ProvisionState), nil
	})
	if err != nil {
		return fmt.Errorf("wait until node %s is one of %q: %w; it is %s", id, states, err, last)
	}
	return nil
}

// retry repeats a write while the node is locked, or when Ironic lost the lock
// on the way and answers 400 for it.
func (i *Ironic) retry(ctx context.Context, what string, write func() error) error {
	var failed error
	err := i.poll(ctx, func() (bool, error) {
		failed = write()
		if failed != nil && (gophercloud.ResponseCodeIs(failed, http.StatusConflict) || strings.Contains(failed.Error(), "not to be locked on release")) {
			return false, nil
		}
		return true, failed
	})
	if err != nil {
		if failed != nil {
			err = failed
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// poll asks until the answer is yes, an error, or Patience is over.
func (i *Ironic) poll(ctx context.Context, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		if done, err := ask(); done || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
