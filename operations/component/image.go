package component

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/jobs/codes"
	"github.com/musterhq/muster/sources"
	"github.com/musterhq/muster/workflows/act"
)

const (
	imageLimit = 8 << 30 // bytes of one image
	// checkedFor is how long an image that was right is taken to be so still: the
	// trays of one rack are updated by one look at it.
	checkedFor = 10 * time.Minute
	checksKept = 256
)

// Images fetches firmware by HTTP and compares it with its checksum.
type Images struct {
	clock  sources.Clock
	client *http.Client

	mu      sync.Mutex
	checked map[string]time.Time     // by URI and checksum
	busy    map[string]chan struct{} // closed when a check has ended
}

// NewImages makes Images.
func NewImages(clock sources.Clock) *Images {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	return &Images{
		clock: clock, checked: map[string]time.Time{}, busy: map[string]chan struct{}{},
		client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// Check compares an image with its checksum; one look serves all that ask for a
// while.
func (i *Images) Check(ctx context.Context, uri, sum string) error {
	key := uri + " " + sum
	for {
		i.mu.Lock()
		if at, ok := i.checked[key]; ok && i.clock().Sub(at) < checkedFor {
			i.mu.Unlock()
			return nil
		}
		other, busy := i.busy[key]
		if !busy {
			i.busy[key] = make(chan struct{})
		}
		i.mu.Unlock()
		if !busy {
			return i.check(ctx, key, uri, sum)
		}
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (i *Images) check(ctx context.Context, key, uri, sum string) (err error) {
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		close(i.busy[key])
		delete(i.busy, key)
	}()
	if _, err = i.read(ctx, uri, sum, io.Discard); err == nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		if len(i.checked) >= checksKept {
			clear(i.checked)
		}
		i.checked[key] = i.clock()
	}
	return err
}

// Fetch gives an image that was compared with its checksum, until drop is called.
func (i *Images) Fetch(ctx context.Context, uri, sum string) (content io.Reader, size int64, drop func(), err error) {
	file, err := os.CreateTemp("", "muster-firmware-*")
	if err != nil {
		return nil, 0, nil, act.Retry(codes.FirmwareImageInvalid, "make room for the image: %v", err)
	}
	_ = os.Remove(file.Name()) // it lives as long as it is open, also when the worker is killed
	drop = func() { _ = file.Close(); _ = os.Remove(file.Name()) }
	size, err = i.read(ctx, uri, sum, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		drop()
		return nil, 0, nil, err
	}
	return file, size, drop, nil
}

// read reads an image into w. A source that is away may answer later; a wrong
// checksum stays wrong.
func (i *Images) read(ctx context.Context, uri, sum string, w io.Writer) (int64, error) {
	if !strings.HasPrefix(uri, "http://") && !strings.HasPrefix(uri, "https://") {
		return 0, act.Final(codes.FirmwareImageInvalid, "the image is not at an http or https address, so its checksum cannot be compared")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, uri, http.NoBody)
	if err != nil {
		return 0, act.Final(codes.FirmwareImageInvalid, "the image's address is none: %s", sources.CleanText(err.Error(), 200))
	}
	answer, err := i.client.Do(request)
	if err != nil {
		return 0, unfetched(ctx, err)
	}
	defer func() { _ = answer.Body.Close() }()
	switch {
	case answer.StatusCode >= http.StatusInternalServerError || answer.StatusCode == http.StatusTooManyRequests:
		return 0, act.Retry(codes.FirmwareImageInvalid, "fetch the image: %s", answer.Status)
	case answer.StatusCode != http.StatusOK:
		return 0, act.Final(codes.FirmwareImageInvalid, "fetch the image: %s", answer.Status)
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(hash, w), io.LimitReader(answer.Body, imageLimit+1))
	if err != nil {
		return 0, unfetched(ctx, err)
	}
	if size > imageLimit {
		return 0, act.Final(codes.FirmwareImageInvalid, "the image is larger than %d GiB", imageLimit>>30)
	}
	if found := hex.EncodeToString(hash.Sum(nil)); sum != "" && !strings.EqualFold(found, sum) {
		return 0, act.Final(codes.FirmwareImageInvalid, "the image's SHA-256 is %s, %s was asked for", found, sources.CleanText(sum, 64))
	}
	return size, nil
}

func unfetched(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ctx.Err()
	}
	return act.Retry(codes.FirmwareImageInvalid, "%s", sources.CleanText(fmt.Sprintf("fetch the image: %v", err), 300))
}
