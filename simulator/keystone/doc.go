// Package keystone is the face that the Keystone of all simulated sites shows:
// its v3 API as far as a client needs it to get in: tokens by password and by
// application credential, the catalog with a region for each site, application
// credentials. It is held against a real 22.0.
//
// Tokens are sealed with a key that comes from the password, so they outlive the
// process as real ones do; application credentials are rows of the world.
package keystone
