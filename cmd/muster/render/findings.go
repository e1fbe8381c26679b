package render

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/musterhq/muster/engine"
)

// finding is one finding for machines.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Col      int    `json:"col"`
	Severity string `json:"severity"`
	Message  string `json:"message"`
}

// Findings prints what vetting found: text, json or github (annotations of a
// workflow). Files are named as seen from here.
func Findings(w io.Writer, format, dir string, findings []engine.Finding) error {
	if format == "json" {
		list := make([]finding, len(findings))
		for i, f := range findings {
			list[i] = finding{filepath.Join(dir, filepath.FromSlash(f.File)), f.Line, f.Col, f.Severity.String(), f.Message}
		}
		return JSON(w, list)
	}
	for _, f := range findings {
		f.File = filepath.Join(dir, filepath.FromSlash(f.File))
		line := f.String()
		if format == "github" {
			line = annotation(f)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// annotation spells a finding as a workflow command.
func annotation(f engine.Finding) string {
	level := map[engine.Severity]string{engine.Error: "error", engine.Warning: "warning", engine.Note: "notice"}[f.Severity]
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	at := "file=" + property.Replace(f.File)
	if f.Line > 0 {
		at += fmt.Sprintf(",line=%d,col=%d", f.Line, f.Col)
	}
	return fmt.Sprintf("::%s %s::%s", level, at, message.Replace(f.Message))
}

// Count counts errors and warnings.
func Count(findings []engine.Finding) (errs, warnings int) {
	for _, f := range findings {
		switch f.Severity {
		case engine.Error:
			errs++
		case engine.Warning:
			warnings++
		}
	}
	return errs, warnings
}
