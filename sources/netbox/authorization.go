package netbox

import "strings"

// authorization gives the header for a token: up to 4.4 only Token is known,
// from 4.5 on the prefix of a v2 token decides.
func authorization(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return "Bearer " + token
	}
	return "Token " + token
}
