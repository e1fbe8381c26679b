package httpapi

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/facts"
	"github.com/musterhq/muster/store"
)

//go:embed page/*
var pageFiles embed.FS

const (
	pageRoot   = "/ui"
	stylePath  = pageRoot + "/style.css"
	scriptPath = pageRoot + "/live.js"
	loginPath  = pageRoot + "/login/"

	// pagePolicy lets a page take its style sheet, its script and its events from
	// here, and nothing else.
	pagePolicy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// pageHandler answers with a template and what it shows.
type pageHandler func(r *request) (name string, data any, err error)

// pages are the templates and the files that they name.
type pages struct {
	templates *template.Template
	files     map[string]pageFile // by path
}

// pageFile is a file that pages name.
type pageFile struct {
	kind string
	data []byte
	tag  string
}

func loadPages() (*pages, error) {
	templates, err := template.New("").Funcs(template.FuncMap{
		"at": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
		"short": func(version string) string {
			return strings.TrimPrefix(version, "sha256:")[:min(12, len(strings.TrimPrefix(version, "sha256:")))]
		},
		"words":    func(code string) string { return strings.ReplaceAll(code, "_", " ") },
		"source":   sourceOfRule,
		"statuses": statusOrder,
		"of":       func(d deviceShown, w prospect) runShown { return runShown{d.deviceDetail, w} },
		"json": func(value any) (string, error) {
			text, err := json.Marshal(value)
			return string(text), err
		},
	}).ParseFS(pageFiles, "page/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the pages: %w", err)
	}
	p := &pages{templates: templates, files: map[string]pageFile{}}
	for path, kind := range map[string]string{stylePath: "text/css; charset=utf-8", scriptPath: "text/javascript; charset=utf-8"} {
		data, err := pageFiles.ReadFile("page" + strings.TrimPrefix(path, pageRoot))
		if err != nil {
			return nil, fmt.Errorf("read the pages: %w", err)
		}
		sum := sha256.Sum256(data)
		p.files[path] = pageFile{kind, data, `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return p, nil
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

func (s *Server) pageFile(w http.ResponseWriter, r *http.Request) {
	file := s.pages.files[r.URL.Path]
	w.Header().Set("Content-Type", file.kind)
	w.Header().Set("ETag", file.tag)
	if matches(r.Header.Get("If-None-Match"), file.tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(file.data) // the caller may be gone
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
	Work    *deviceWork // nil: not for this reader
	Problem *problem    // of a form of the page that was refused
}

// deviceWork is what can be done with a device, and what was.
type deviceWork struct {
	Workflows []prospect
	Jobs      []jobView
}

// runShown is one workflow of the page of a device.
type runShown struct {
	Device *deviceDetail
	Work   prospect
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
	work, err := s.work(r, detail.ID)
	if err != nil {
		return "", nil, err
	}
	return "device.html", deviceShown{detail, why, history.Items, work, r.problem}, nil
}

const jobsShown = 10 // on the page of a device

// work reads what can be done with a device and what was, for those who may see
// jobs.
func (s *Server) work(r *request, id int64) (*deviceWork, error) {
	if !r.principal.May(JobRead) {
		return nil, nil
	}
	rows, err := store.ListJobs(r.Context(), s.DB, store.JobFilter{SiteNames: r.principal.Sites, Devices: []int64{id}, Limit: jobsShown})
	if err != nil {
		return nil, err
	}
	work := &deviceWork{Jobs: []jobView{}}
	for i := range rows {
		work.Jobs = append(work.Jobs, viewJob(&rows[i]))
	}
	work.Workflows, err = s.prospects(r, id)
	return work, err
}

func (s *Server) jobsPage(r *request) (string, any, error) {
	page, err := s.jobPage(r)
	return "jobs.html", page, err
}

// jobShown is everything that is told of one job.
type jobShown struct {
	Title   string
	Job     jobView
	Devices []jobDeviceView
	Cancel  *cancelForm // nil where it cannot be, or the reader may not
	Problem *problem    // of a form of the page that was refused
}

// cancelForm asks a job to end.
type cancelForm struct{ Token, Reason string }

func (s *Server) jobPageOf(r *request) (string, any, error) {
	row, err := s.job(r)
	if err != nil {
		return "", nil, err
	}
	devices, err := s.jobDevices(r.Context(), row.ID)
	shown := jobShown{Title: fmt.Sprintf("Job %d", row.ID), Job: viewJob(&row), Devices: devices, Problem: r.problem}
	if !shown.Job.Ended && row.CancelRequestedAt.IsZero() && r.principal.May(JobWrite) {
		shown.Cancel = &cancelForm{s.formToken(r.Request), r.form.Get("reason")}
	}
	return "job.html", shown, err
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
	if r.Method == http.MethodPost && r.URL.Path != loginPath {
		p.Instance = formPage(r.URL.Path)
	}
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
