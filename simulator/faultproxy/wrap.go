package faultproxy

import (
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"
)

// Wrap puts the rules before a handler. face and site are what the rules know it
// by.
func (r *Rules) Wrap(face, site string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if one := r.match(face, site, q); one != nil {
			one.serve(w, q, next)
			return
		}
		next.ServeHTTP(w, q)
	})
}

// Proxy puts the rules before a system at a URL. transport nil is the usual one.
func (r *Rules) Proxy(face, site string, target *url.URL, transport http.RoundTripper) http.Handler {
	return r.Wrap(face, site, &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: transport,
	})
}

// maintenance is what a proxy in the way shows.
const maintenance = "<!DOCTYPE html>\n<html><head><title>503 Service Temporarily Unavailable</title></head>\n" +
	"<body><center><h1>503 Service Temporarily Unavailable</h1></center><hr><center>nginx</center></body></html>\n"

func (r *rule) serve(w http.ResponseWriter, q *http.Request, next http.Handler) {
	switch r.Kind {
	case Status:
		if r.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int((r.RetryAfter+time.Second-1)/time.Second)))
		}
		http.Error(w, http.StatusText(r.Code), r.Code)
	case Delay:
		if r.wait(q, r.For) {
			next.ServeHTTP(w, q)
		}
	case Stall:
		r.wait(q, r.For)
		panic(http.ErrAbortHandler)
	case Reset:
		reset(w)
	case Truncate:
		record(next, q).truncated(w)
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(maintenance))
	case Empty:
		a := record(next, q)
		a.body = emptied(a.body)
		a.send(w)
	case Duplicate:
		r.page(next, q).send(w)
	case Repeat:
		r.repeated(next, q).send(w)
	case Loop:
		a := record(next, q)
		a.body = looped(a.body, here(q))
		a.send(w)
	case Skew:
		a := record(next, q)
		a.header.Set("Date", time.Now().UTC().Add(r.For).Format(http.TimeFormat))
		a.body = skewed(a.body, r.For)
		a.send(w)
	case Drip:
		r.drip(w, q, record(next, q))
	}
}

// here is the address that a request was made to.
func here(q *http.Request) string {
	if q.TLS != nil {
		return "https://" + q.Host + q.RequestURI
	}
	return "http://" + q.Host + q.RequestURI
}

// wait tells whether somebody still waits afterwards. It ends with the rule.
func (r *rule) wait(q *http.Request, long time.Duration) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-q.Context().Done():
		return false
	case <-r.over:
		return true
	case <-t.C:
		return true
	}
}

// reset cuts the connection, with a TCP reset where it can.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	under := conn
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		under = secure.NetConn()
	}
	if tcp, ok := under.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = under.Close()
}

// page gives the first page that the rule saw of a listing.
func (r *rule) page(next http.Handler, q *http.Request) *answer {
	if q.Method != http.MethodGet {
		return record(next, q)
	}
	key := q.Host + q.URL.Path // BMCs differ by their hosts alone
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.pages[key]; a != nil {
		return a
	}
	a := record(next, q)
	if a.code == http.StatusOK {
		r.pages[key] = a
	}
	return a
}

// repeated gives an answer with the lists of the first page that the rule saw.
func (r *rule) repeated(next http.Handler, q *http.Request) *answer {
	a := record(next, q)
	if q.Method != http.MethodGet || a.code != http.StatusOK {
		return a
	}
	key := q.Host + q.URL.Path
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.pages[key]
	if first == nil {
		r.pages[key] = a
		return a
	}
	return &answer{header: a.header, code: a.code, body: withLists(a.body, first.body)}
}

// answer is what a handler answered.
type answer struct {
	header http.Header
	code   int
	body   []byte
}

func record(next http.Handler, q *http.Request) *answer {
	a := &answer{header: http.Header{}, code: http.StatusOK}
	plain := q.Clone(q.Context())
	plain.Header.Del("Accept-Encoding") // its text is changed
	next.ServeHTTP((*recorder)(a), plain)
	return a
}

type recorder answer

func (a *recorder) Header() http.Header { return a.header }
func (a *recorder) WriteHeader(c int)   { a.code = c }
func (a *recorder) Write(p []byte) (int, error) {
	a.body = append(a.body, p...)
	return len(p), nil
}

func (a *answer) head(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.code)
}

func (a *answer) send(w http.ResponseWriter) {
	a.head(w)
	_, _ = w.Write(a.body)
}

// pieces are what a dripping answer comes in.
const pieces = 32

func (r *rule) drip(w http.ResponseWriter, q *http.Request, a *answer) {
	a.head(w)
	flush := http.NewResponseController(w)
	size := max(1, (len(a.body)+pieces-1)/pieces)
	for from := 0; from < len(a.body); from += size {
		_, _ = w.Write(a.body[from:min(from+size, len(a.body))])
		_ = flush.Flush()
		if !r.wait(q, r.For/pieces) {
			return
		}
	}
}

func (a *answer) truncated(w http.ResponseWriter) {
	a.head(w)
	_, _ = w.Write(a.body[:len(a.body)/2])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}
