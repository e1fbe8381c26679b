package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/muster/render"
	"github.com/musterhq/muster/simulator"
	"github.com/musterhq/muster/simulator/capture"
	"github.com/musterhq/muster/sources/registry"
)

func (a *app) bmcCommand() *cobra.Command {
	return parent("bmc", "Look at one BMC, let it be logged in to again", a.bmcCaptureCommand(), a.bmcAllowLoginCommand())
}

// captureFlags are what `muster bmc capture` is told.
type captureFlags struct {
	out, report, login, key string
	ca, fingerprint         string
	insecure, plain         bool
	limit                   int
	within                  time.Duration
}

func (a *app) bmcCaptureCommand() *cobra.Command {
	f := &captureFlags{}
	c := &cobra.Command{
		Use:   "capture URL",
		Short: "Write down what a BMC answers, without what tells whose it is",
		Long: `Capture reads the Redfish service at a URL such as https://10.0.0.5 and writes its
answers to a file that ` + "`muster simulator --bmc FILE`" + ` replays. It only reads, one
request at a time, on that host alone, and never asks for accounts, sessions,
logs, certificates, licences or jobs.

Names, serials, addresses and all other strings that are not known to be harmless
become pseudonyms of the same shape, equal ones alike. What was left as it is
(types, states, models, versions, what parts are called) is written to FILE.report:
read it before you pass the file on.`,
		Example: `  muster bmc capture https://10.0.0.5 --login env:BMC_LOGIN --ca bmc-ca.crt --out tray.json.gz`,
		Args:    cobra.ExactArgs(1),
	}
	flags := c.Flags()
	flags.StringVar(&f.out, "out", "", "file to write, gzipped if its name ends in .gz (required)")
	flags.StringVar(&f.report, "report", "", "file for what was left as it is (default: FILE.report)")
	flags.StringVar(&f.login, "login", "", "file:PATH or env:NAME of a text user:password")
	flags.StringVar(&f.ca, "ca", "", "file of the authorities that the BMC's certificate is of (default: the system's)")
	flags.StringVar(&f.fingerprint, "fingerprint", "", "SHA-256 of the BMC's certificate, in hexadecimal digits")
	flags.BoolVar(&f.insecure, "insecure", false, "accept any certificate")
	flags.StringVar(&f.key, "key-file", "", "file of 16 bytes or more that pseudonyms are made with, so that several captures agree (default: a key that is forgotten)")
	flags.BoolVar(&f.plain, "no-redact", false, "write everything as it is: names, serials, addresses")
	flags.IntVar(&f.limit, "limit", 4000, "resources to read at most")
	flags.DurationVar(&f.within, "within", 30*time.Minute, "how long it may take")
	_ = c.MarkFlagRequired("out") // it is a flag of this command
	c.MarkFlagsMutuallyExclusive("ca", "fingerprint", "insecure")
	c.MarkFlagsMutuallyExclusive("no-redact", "key-file")
	c.MarkFlagsMutuallyExclusive("no-redact", "report")
	c.RunE = func(c *cobra.Command, args []string) error { return a.captureBMC(c.Context(), args[0], f) }
	return c
}

func (a *app) captureBMC(ctx context.Context, url string, f *captureFlags) error {
	options := capture.Options{Resources: f.limit}
	var err error
	if options.User, options.Password, err = bmcLogin(f.login); err != nil {
		return usage("--login: %w", err)
	}
	trust, err := f.trust()
	if err != nil {
		return usage("%w", err)
	}
	if f.report == "" {
		f.report = f.out + ".report"
	}
	for _, name := range []string{f.out, f.report} {
		if _, err := os.Stat(name); err == nil && !(f.plain && name == f.report) {
			return usage("%s is there already: move it aside, or name another file", name)
		}
	}
	key, err := f.readKey()
	if err != nil {
		return usage("--key-file: %w", err)
	}
	transport := &http.Transport{TLSClientConfig: trust, TLSHandshakeTimeout: 10 * time.Second, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	options.Client = &http.Client{Transport: transport}
	ctx, cancel := context.WithTimeout(ctx, f.within)
	defer cancel()
	outcome, err := capture.Crawl(ctx, url, options)
	if err != nil {
		return &exitError{code: exitUnreachable, err: err}
	}
	return a.writeCapture(outcome, key, f)
}

// writeCapture redacts what was captured and writes it.
func (a *app) writeCapture(outcome *capture.Outcome, key []byte, f *captureFlags) error {
	tree := outcome.Tree
	if !f.plain {
		redacted, report, err := capture.Redact(tree, key)
		if err != nil {
			return err
		}
		tree = redacted
		if err := writeReport(f.report, report); err != nil {
			return err
		}
	}
	if err := tree.WriteFile(f.out); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s in %s\n", render.Plural(len(tree), "answer"), f.out)
	for _, missed := range outcome.Missed {
		fmt.Fprintf(a.stderr, "not read: %s: %s\n", missed.Path, missed.Why)
	}
	if !outcome.Whole {
		fmt.Fprintf(a.stderr, "there is more than was read: see --limit\n")
	}
	if f.plain {
		fmt.Fprintf(a.stderr, "nothing was taken away: the file tells whose machine it is\n")
		return nil
	}
	fmt.Fprintf(a.stderr, "what was left as it is: %s\n", f.report)
	return nil
}

func writeReport(path string, report *capture.Report) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return report.Write(file)
}

// bmcLogin resolves a reference to user:password, as a site's bmc.credentials
// have them.
func bmcLogin(ref string) (user, password string, err error) {
	if ref == "" {
		return "", "", nil
	}
	text, err := registry.Secret(ref)
	if err != nil {
		return "", "", err
	}
	user, password, ok := strings.Cut(text, ":")
	if !ok || user == "" || password == "" {
		return "", "", fmt.Errorf("%s is not user:password", ref)
	}
	return user, password, nil
}

func (f *captureFlags) readKey() ([]byte, error) {
	if f.key == "" {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	}
	key, err := os.ReadFile(f.key)
	if err == nil && len(key) < 16 {
		return nil, fmt.Errorf("%s has less than 16 bytes", f.key)
	}
	return key, err
}

// trust gives which certificate is accepted.
func (f *captureFlags) trust() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.insecure}
	switch {
	case f.ca != "":
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--ca: %s holds no PEM certificate", f.ca)
		}
	case f.fingerprint != "":
		want, err := hex.DecodeString(strings.ReplaceAll(f.fingerprint, ":", ""))
		if err != nil || len(want) != sha256.Size {
			return nil, fmt.Errorf("--fingerprint: %q is no SHA-256 in hexadecimal digits", f.fingerprint)
		}
		config.InsecureSkipVerify = true // VerifyConnection does it
		config.VerifyConnection = func(state tls.ConnectionState) error {
			if is := sha256.Sum256(state.PeerCertificates[0].Raw); string(is[:]) != string(want) {
				return fmt.Errorf("the certificate's fingerprint is %s", hex.EncodeToString(is[:]))
			}
			return nil
		}
	}
	return config, nil
}

// replayFlags adds what `muster simulator` replays one captured BMC by.
func (a *app) replayFlags(c *cobra.Command) *simulator.ReplayOptions {
	o := &simulator.ReplayOptions{Clock: a.now}
	c.Flags().StringVar(&o.File, "bmc", "", "replay the BMC of a file of `muster bmc capture` instead of a fleet")
	c.Flags().StringVar(&o.Listen, "bmc-listen", "127.0.0.1:0", "loopback address that it answers at")
	c.Flags().StringVar(&o.User, "bmc-login", "", "file:PATH or env:NAME of the user:password that it asks for (default: none)")
	return o
}

// replayBMC replays one captured BMC until the command is ended.
func (a *app) replayBMC(c *cobra.Command, o *simulator.ReplayOptions, dir string, log hclog.Logger) (err error) {
	o.Dir, o.Log = dir, log
	if o.User, o.Secret, err = bmcLogin(o.User); err != nil {
		return usage("--bmc-login: %w", err)
	}
	o.Ready = func(url, ca string) {
		fmt.Fprintf(a.stdout, "%s answers at %s, with a certificate of %s\n", o.File, url, ca)
	}
	return simulator.Replay(c.Context(), *o)
}
