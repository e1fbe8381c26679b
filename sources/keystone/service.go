package keystone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/musterhq/muster/sources"
)

// Service is one service of an OpenStack. It is safe for concurrent use and
// connects when it is first used, again whenever its endpoint gives no answer.
type Service struct {
	access  Access
	http    *http.Client
	prepare func(*gophercloud.ServiceClient) // sets version and address of the API
	meaning Meaning

	gate    chan struct{} // held while connecting and while current is touched
	current *gophercloud.ServiceClient
}

// Meaning classifies an answer of the service that is no success.
type Meaning func(op string, answer gophercloud.ErrUnexpectedResponseCode) *sources.Error

// NewService checks the access; it calls nobody. o bound every call.
func NewService(access Access, o sources.Options, prepare func(*gophercloud.ServiceClient), meaning Meaning) (*Service, error) {
	client, err := sources.NewClient(o)
	if err != nil {
		return nil, err
	}
	if err := access.Open(o); err != nil {
		return nil, err
	}
	return &Service{access: access, http: client, prepare: prepare, meaning: meaning, gate: make(chan struct{}, 1)}, nil
}

// Close releases the connections and the login.
func (s *Service) Close() {
	s.http.CloseIdleConnections()
	s.access.Close()
}

// Connected gives the client of the API, connecting if there is none.
func (s *Service) Connected(ctx context.Context) (*gophercloud.ServiceClient, error) {
	select {
	case s.gate <- struct{}{}:
		defer func() { <-s.gate }()
	case <-ctx.Done():
		return nil, sources.Failure("connect to "+s.access.Name, ctx.Err())
	}
	if s.current != nil {
		return s.current, nil
	}
	sc, err := s.access.Connect(ctx, s.http)
	if err != nil {
		return nil, err
	}
	s.prepare(sc)
	s.current = sc
	return sc, nil
}

// forget drops a client whose endpoint gave no answer: the catalog may name
// another one by now.
func (s *Service) forget(sc *gophercloud.ServiceClient) {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	if s.current == sc {
		s.access.Forget(sc)
		s.current = nil
	}
}

// Call makes one request below the endpoint and reads its answer to its end.
func (s *Service) Call(ctx context.Context, method, op string, query url.Values, path ...string) ([]byte, error) {
	return s.request(ctx, method, op, "", nil, query, path)
}

// Send is Call with a JSON body, in a microversion of its own; "" for the
// service's. It is never repeated.
func (s *Service) Send(ctx context.Context, method, op, microversion string, body any, path ...string) ([]byte, error) {
	return s.request(ctx, method, op, microversion, body, nil, path)
}

func (s *Service) request(ctx context.Context, method, op, microversion string, in any, query url.Values, path []string) ([]byte, error) {
	connected, err := s.Connected(ctx)
	if err != nil {
		return nil, err
	}
	sc := connected
	if microversion != "" {
		own := *connected
		own.Microversion, sc = microversion, &own
	}
	address := sc.ServiceURL(path...)
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	resp, err := sc.Request(ctx, method, address, &gophercloud.RequestOpts{
		JSONBody: in, KeepResponseBody: true, OkCodes: []int{http.StatusOK, http.StatusAccepted, http.StatusNoContent},
	})
	if err != nil {
		var answer gophercloud.ErrUnexpectedResponseCode
		if !errors.As(err, &answer) && !errors.Is(err, context.Canceled) {
			s.forget(connected)
		}
		return nil, Failure(op, err, func(answer gophercloud.ErrUnexpectedResponseCode) *sources.Error { return s.meaning(op, answer) })
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, sources.Failure(op, fmt.Errorf("read the answer: %w", err))
	}
	return body, nil
}

// Gone adds ErrGone to an error that says that there is no such thing.
func Gone(err error) error {
	var classified *sources.Error
	if errors.As(err, &classified) && classified.Kind == sources.KindMissing {
		gone := *classified
		gone.Err = errors.Join(sources.ErrGone, classified.Err)
		return &gone
	}
	return err
}
