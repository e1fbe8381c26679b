package config

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
)

// Value is one key of a resolved configuration, fit to be shown.
type Value struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin Origin `json:"origin"`
}

// Values lists every key that has a value, in order, secrets masked.
func (r *Resolved) Values() ([]Value, error) {
	masked := r.Config
	masked.Database.URL = Mask(masked.Database.URL)
	body, err := json.Marshal(masked)
	if err != nil {
		return nil, fmt.Errorf("show the configuration: %w", err)
	}
	var document map[string]any
	if err := json.Unmarshal(body, &document); err != nil {
		return nil, fmt.Errorf("show the configuration: %w", err)
	}
	flat := map[string]any{}
	flatten(flat, "", document)
	var values []Value
	for _, key := range Keys() {
		value, there := flat[key]
		if !there {
			continue
		}
		origin := r.Origins[key]
		if origin == "" {
			origin = FromDefault
		}
		values = append(values, Value{key, value, origin})
	}
	return values, nil
}

func flatten(into map[string]any, prefix string, document map[string]any) {
	for key, value := range document {
		if inner, ok := value.(map[string]any); ok {
			flatten(into, prefix+key+".", inner)
			continue
		}
		into[prefix+key] = value
	}
}

// passwords finds the password in a database URL that net/url cannot read, and
// in a query.
var passwords = regexp.MustCompile(`(://[^/@:]*:)[^@]*@|((?i)password=)[^&]*`)

// Mask hides the password of a database URL. A reference shows as it is: it
// says where the secret is, not what.
func Mask(databaseURL string) string {
	if u, err := url.Parse(databaseURL); err == nil && u.User != nil {
		if _, has := u.User.Password(); has {
			u.User = url.UserPassword(u.User.Username(), "xxxxx")
		}
		databaseURL = u.String()
	}
	return passwords.ReplaceAllStringFunc(databaseURL, func(found string) string {
		parts := passwords.FindStringSubmatch(found)
		if parts[1] != "" {
			return parts[1] + "xxxxx@"
		}
		return parts[2] + "xxxxx"
	})
}
