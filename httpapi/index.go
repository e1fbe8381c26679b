package httpapi

import (
	"fmt"
	"net/http"
	"strings"
)

// ask is a line that tells a newcomer what to ask.
type ask struct{ Path, Says string }

func questions() []ask {
	return []ask{
		{"/fleet/summary/", "counts by status and site, and what changed last"},
		{"/devices/?operational_status=quarantine", "devices, filtered"},
		{"/devices/1/", "one device, with the conditions that decided its status"},
		{"/devices/1/explain/", "every rung of every ladder: which matched, and why not the others"},
		{"/devices/1/lifecycle-events/", "how it came to be so"},
		{"/workflows/", "what can be done with devices; POST /eligibility/check/ tells whether it may"},
		{"/jobs/?open=true", "what is being done"},
		{"/sites/", "sites; each has sources/ below it"},
		{"/policies/", "what is decided, with file and line"},
	}
}

// index sends a browser to the page and tells everybody else what to ask.
func (s *Server) index(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		http.Redirect(w, r, pageRoot+"/", http.StatusSeeOther)
		return
	}
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	base := scheme + "://" + r.Host
	var b strings.Builder
	b.WriteString("muster decides what every machine of a fleet is fit for, and says why.\n\nAsk, with a token (muster token create):\n\n")
	for _, line := range questions() {
		fmt.Fprintf(&b, "  # %s\n  curl -H \"Authorization: Bearer $MUSTER_TOKEN\" '%s%s%s'\n\n", line.Says, base, apiRoot, line.Path)
	}
	fmt.Fprintf(&b, "Everything there is: %s%s\nA page for people: %s%s/\n", base, documentPath, base, pageRoot)
	plainText(w, http.StatusOK, b.String())
}
