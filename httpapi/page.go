package httpapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
)

//go:embed page/*
var pageFiles embed.FS

const (
	pageRoot  = "/ui"
	stylePath = pageRoot + "/style.css"
	loginPath = pageRoot + "/login/"

	// pagePolicy lets a page take its one style sheet from here, and nothing else.
	pagePolicy = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// pageHandler answers with a template and what it shows.
type pageHandler func(r *request) (name string, data any, err error)

// pages are the templates and their style sheet.
type pages struct {
	templates *template.Template
	style     []byte
	tag       string
}

func loadPages() (*pages, error) {
	templates, err := template.New("").Funcs(template.FuncMap{
		"at": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"short": func(version string) string {
			return strings.TrimPrefix(version, "sha256:")[:min(12, len(strings.TrimPrefix(version, "sha256:")))]
		},
		"statuses": statusOrder,
	}).ParseFS(pageFiles, "page/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the pages: %w", err)
	}
	style, err := pageFiles.ReadFile("page/style.css")
	if err != nil {
		return nil, fmt.Errorf("read the pages: %w", err)
	}
	sum := sha256.Sum256(style)
	return &pages{templates: templates, style: style, tag: `"` + hex.EncodeToString(sum[:12]) + `"`}, nil
}

// statusOrder lists the operational statuses in the order of the table.
func statusOrder() []string {
	field, _ := facts.FieldOf("device.operational_status")
	statuses := make([]string, len(field.Values))
	for i, literal := range field.Values {
		statuses[i] = strings.Trim(literal, `"`)
	}
	return statuses
}

func (p *pages) write(w http.ResponseWriter, status int, name string, data any) error {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, data); err != nil {
		return fmt.Errorf("write the page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // the caller may be gone
	return nil
}

func (s *Server) style(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("ETag", s.pages.tag)
	if matches(r.Header.Get("If-None-Match"), s.pages.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(s.pages.style) // the caller may be gone
}

func (s *Server) fleetPage(r *request) (string, any, error) {
	v, err := s.summary(r)
	return "fleet.html", v, err
}

// devicesShown is a page of devices with the filters that chose it.
type devicesShown struct {
	*list[deviceView]
	Statuses []string
}

func (s *Server) devicesPage(r *request) (string, any, error) {
	page, err := s.devicePage(r)
	return "devices.html", devicesShown{page, r.query["operational_status"]}, err
}

// deviceShown is everything that is told of one device.
type deviceShown struct {
	*deviceDetail
	Why     *explanation
	History []eventView
}

func (s *Server) devicePageOf(r *request) (string, any, error) {
	detail, err := s.detail(r)
	if err != nil {
		return "", nil, err
	}
	why, err := s.explanation(r, detail.ID)
	if err != nil {
		return "", nil, err
	}
	history, err := s.history(r, detail.ID)
	if err != nil {
		return "", nil, err
	}
	slices.SortStableFunc(why.Conditions, func(a, b conditionTrace) int { // those that decided first, then those in scope
		return rank(a) - rank(b)
	})
	return "device.html", deviceShown{detail, why, history.Items}, nil
}

func rank(c conditionTrace) int {
	switch {
	case c.Decisive:
		return 0
	case c.InScope:
		return 1
	}
	return 2
}

// failPage tells a person what went wrong. Who is not known may log in.
func (s *Server) failPage(w http.ResponseWriter, r *http.Request, err error) {
	p := *problemOf(err)
	t := trailOf(r)
	p.Instance, p.RequestID = r.URL.RequestURI(), t.id
	if p.Status >= http.StatusInternalServerError {
		t.cause = p.cause
	}
	for name, values := range p.header {
		w.Header()[name] = values
	}
	name := "problem.html"
	if p.Status == http.StatusUnauthorized {
		w.Header().Del("WWW-Authenticate") // a browser would ask in its own way
		name = "login.html"
	}
	if err := s.pages.write(w, p.Status, name, p); err != nil {
		s.fail(w, r, t, err)
	}
}
