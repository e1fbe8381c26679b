package sources

import "fmt"

// ElsewhereError says that a thing that was asked for by its identity is there,
// and that the source has it at a site which is not the asked one. As far as the
// asked site goes it is gone.
type ElsewhereError struct {
	Site string // as the source names it
}

func (e *ElsewhereError) Error() string {
	return fmt.Sprintf("it stands in the source's site %q, which is not this one", e.Site)
}

// Unwrap makes it one of the ways to be gone.
func (e *ElsewhereError) Unwrap() error { return ErrGone }
