package redfish

import "context"

// FactoryLogin shows that a BMC takes what it came with: the first of the site's
// credentials for the device beside the store. It is as Login otherwise.
func (c *Client) FactoryLogin(ctx context.Context, target Target) error {
	op := "log in to the BMC of " + target.Name + " with what it came with"
	b, fault := c.actingAs(op, target, c.logins().factory(target.Name))
	if fault != nil {
		return fault
	}
	defer b.close()
	if err := b.lets(ctx); err != nil {
		return c.failure(op, nil, err)
	}
	return nil
}
