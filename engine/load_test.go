package engine

import (
	"os"
	"sync"
	"testing"
)

// shipped is the bundle of this repository, loaded once for all tests.
var shipped = sync.OnceValues(func() (*Bundle, error) {
	b, _, err := Load(os.DirFS(".."), Options{})
	return b, err
})

func shippedBundle(t testing.TB) *Bundle {
	t.Helper()
	b, err := shipped()
	if err != nil {
		t.Fatalf("load the shipped bundle:\n%v", err)
	}
	return b
}

func TestShippedBundleLoads(t *testing.T) {
	t.Parallel()
	b := shippedBundle(t)
	if got := len(b.Catalogue()); got < 14 {
		t.Errorf("%d condition types", got)
	}
	t.Logf("%+v", b.Cost())
}
