package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Credentials is what `muster dev` leaves for the commands, in cli.json of its
// data directory, readable by its owner alone.
type Credentials struct {
	URL      string `json:"url"`
	Token    string `json:"token"`
	Database string `json:"database,omitempty"` // for commands that administer
}

const credentialsFile = "cli.json"

// ErrNowhere says that nothing names a server.
var ErrNowhere = errors.New("which server? Start one with `muster dev`, or name one with MUSTER_URL and MUSTER_TOKEN (--url, --token)")

// ReadCredentials reads a data directory's cli.json; without one they are zero.
func ReadCredentials(dataDir string) (Credentials, error) {
	var c Credentials
	data, err := os.ReadFile(filepath.Join(dataDir, credentialsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the credentials of muster dev: %w", err)
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("read the credentials of muster dev: %s: %w", filepath.Join(dataDir, credentialsFile), err)
	}
	return c, nil
}

// Write replaces a data directory's cli.json as a whole.
func (c Credentials) Write(dataDir string) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("write the credentials: %w", err)
	}
	temp, err := os.CreateTemp(dataDir, "."+credentialsFile+"-*") // 0600
	if err != nil {
		return fmt.Errorf("write the credentials: %w", err)
	}
	_, err = temp.Write(append(data, '\n'))
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), filepath.Join(dataDir, credentialsFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the credentials: %w", err), os.Remove(temp.Name()))
	}
	return nil
}

// Pick chooses where to ask and by which token: what was said, in the order of
// the arguments, else what is left. A left token is shown to no other server.
func Pick(said Credentials, left Credentials) (Credentials, error) {
	said.URL = strings.TrimRight(said.URL, "/")
	if said.URL == "" {
		said.URL = left.URL
	}
	if said.URL == "" {
		return said, ErrNowhere
	}
	if said.Token == "" && said.URL == left.URL {
		said.Token = left.Token
	}
	return said, nil
}
