package faults

import (
	"testing"

	"github.com/musterhq/muster/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
