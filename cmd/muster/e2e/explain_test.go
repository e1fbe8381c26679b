package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/musterhq/muster/facts"
)

// explanation is what GET /devices/{id}/explain/ is asked for here.
type explanation struct {
	Conditions []conditionTrace
	Facts      facts.Facts
}

type conditionTrace struct {
	Type    string
	Status  string
	Reason  *string
	Message *string
	Stale   *string
}

func (w *world) explain(name string) (explanation, error) {
	d, err := w.find(name)
	if err != nil {
		return explanation{}, err
	}
	var e explanation
	err = w.get(fmt.Sprintf("/devices/%d/explain/", d.ID), &e)
	return e, err
}

// condition waits until a condition of a device reads so, freshly.
func (w *world) condition(t *testing.T, name, kind, status, reason string) (found conditionTrace) {
	t.Helper()
	w.until(t, fmt.Sprintf("%s of %s to be %s by %s", kind, name, status, reason), func() error {
		e, err := w.explain(name)
		if err != nil {
			return err
		}
		for _, c := range e.Conditions {
			if c.Type != kind {
				continue
			}
			if c.Stale == nil && c.Status == status && c.Reason != nil && *c.Reason == reason {
				found = c
				return nil
			}
			return fmt.Errorf("it is %s by %s, stale: %s", c.Status, said(c.Reason), said(c.Stale))
		}
		return fmt.Errorf("it has no such condition")
	})
	return found
}

func said(text *string) string {
	if text == nil {
		return "nothing"
	}
	return *text
}

// fingerprint reads the certificate that a server shows.
func fingerprint(t *testing.T, address string) string {
	t.Helper()
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	print := sha256.Sum256(conn.ConnectionState().PeerCertificates[0].Raw)
	return hex.EncodeToString(print[:])
}
